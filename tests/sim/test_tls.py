"""TLS in the simulator: both kinds of connections in one run, which is the same whatever the keys are; what has to hold
of it is kept, and planted defects are noticed."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from perseid.base.errors import RemoteProtocolError
from perseid.controller.node import Controller
from perseid.security.tls import HANDSHAKE, Mode, State, Tls
from perseid.sim import coverage, secured, security
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

SEED = 26
SHORT = Options(selection=Selection(until_us=30 * US_PER_S))
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def own_keys() -> Iterator[None]:
    """What is patched into contexts stays in none."""
    secured.forget_keys()
    yield
    secured.forget_keys()


# ---- what stays the same ----


@pytest.mark.sim
def test_a_seed_with_tls_gives_the_same_run_with_other_keys() -> None:
    assert security.has_tls("broker", SEED)
    digests = set()
    for _ in range(2):
        secured.forget_keys()
        result = MODELS["broker"].run(SEED, SHORT)
        assert result.counts["TLS handshake"] > 20 and result.counts["plain bytes where TLS is taken"] > 5
        digests.add(result.digest)
    assert len(digests) == 1


@pytest.mark.sim
@pytest.mark.parametrize("seed", [11, 59])
def test_a_seed_with_tls_keeps_all_promises(seed: int) -> None:
    result = MODELS["broker"].run(seed)
    assert security.has_tls("broker", seed) and not result.failure, result.failure


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("model", "seed"), [("raft", 35), ("dledger", 9), ("ha", 9)])
def test_a_seed_of_a_group_with_tls_keeps_all_promises(model: str, seed: int) -> None:
    result = MODELS[model].run(seed)
    assert security.has_tls(model, seed) and not result.failure, result.failure
    assert result.counts["TLS handshake"] > 100 and result.counts["a server's certificate refused"]


def test_a_few_seeds_have_it() -> None:
    for model in security.TLS:
        assert 16 <= sum(security.has_tls(model, seed) for seed in range(240)) <= 24
    for model in security.USERS:
        assert any(security.has_tls(model, seed) and security.has_users(model, seed) for seed in range(48))


MEETING = (9, 11)
"""Seeds."""


@pytest.mark.sim
@pytest.mark.slow
def test_a_few_seeds_meet_all_that_there_is_of_it() -> None:
    met = {name for seed in MEETING for name in MODELS["broker"].run(seed).counts}
    assert not set(coverage.TLS_STATES) - met


# ---- planted ----


def a_port_that_demands_tls_takes_plain_bytes(patch: pytest.MonkeyPatch) -> None:
    right = Tls._choose

    def choose(self: Tls, data: bytes) -> None:
        assert self._side is not None
        if data[0] == HANDSHAKE or self._side.mode is not Mode.ENFORCING:
            right(self, data)
        else:
            self.state = State.CLEAR

    patch.setattr(Tls, "_choose", choose)


def ready_before_the_handshake_is(patch: pytest.MonkeyPatch) -> None:
    right = Tls._shake

    def shake(self: Tls) -> None:
        right(self)
        self.state = State.OPEN

    patch.setattr(Tls, "_shake", shake)


def a_record_that_is_not_sound_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    right = Tls._read

    def read(self: Tls) -> bytes:
        try:
            return right(self)
        except RemoteProtocolError:
            self.state = State.OPEN
            return b""

    patch.setattr(Tls, "_read", read)


def what_is_sent_is_not_sealed(patch: pytest.MonkeyPatch) -> None:
    right = Tls.seal

    def seal(self: Tls, data: bytes) -> bytes:
        return bytes(data) if self.state is State.OPEN and len(data) > 200 else right(self, data)

    patch.setattr(Tls, "seal", seal)


def certificates_of_clients_are_wished_for(patch: pytest.MonkeyPatch) -> None:
    """`require` is taken as `optional`."""
    right = secured.server_context

    def context(*given: Any, **more: Any) -> ssl.SSLContext:
        made = right(*given, **more)
        if made.verify_mode is ssl.CERT_REQUIRED:
            made.verify_mode = ssl.CERT_OPTIONAL
        return made

    patch.setattr(secured, "server_context", context)


def anybody_is_taken_for_a_slave(patch: pytest.MonkeyPatch) -> None:
    right = Tls.accepted
    patch.setattr(Tls, "accepted", lambda side: right(replace(side, certified=False)))


def any_server_is_believed(patch: pytest.MonkeyPatch) -> None:
    right = secured.client_context
    patch.setattr(secured, "client_context", lambda **more: right(**{**more, "verify": False}))


def anybody_is_taken_for_a_controller(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_check_member", lambda self, conn: None)


DEFECTS: dict[Patch, tuple[int, str]] = {
    a_port_that_demands_tls_takes_plain_bytes: (11, "a port that demands TLS takes nothing else"),
    ready_before_the_handshake_is: (9, "a connection that was begun goes on"),
    a_record_that_is_not_sound_is_passed_over: (9, "a flipped bit ends the connection"),
    what_is_sent_is_not_sealed: (9, "nothing leaves in the clear"),
    certificates_of_clients_are_wished_for: (9, "who shows no certificate that is trusted stays outside"),
    anybody_is_taken_for_a_slave: (153, "who shows no certificate that is trusted stays outside"),
    anybody_is_taken_for_a_controller: (35, "a stranger learns nothing"),
    any_server_is_believed: (9, "nobody goes on with who can't show that it is the server"),
}
"""Each with the first seed that finds it, and the promise that it breaks."""
OF_MODEL = {anybody_is_taken_for_a_controller: "ha"}
"""Whose seed that is, if it is none of `broker`."""


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, defect: Patch) -> None:
    seed, promise = DEFECTS[defect]
    defect(monkeypatch)
    result = MODELS[OF_MODEL.get(defect, "broker")].run(seed)
    assert (result.failure or "").startswith(promise), result.failure
