"""Users in the simulator: what they have to keep is kept, and planted defects are noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid import core
from perseid.broker import composition
from perseid.broker.access.gate import Gate
from perseid.broker.access.tables import AclTable
from perseid.broker.fast_path.signers import Signers
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.route import Route
from perseid.security import authentication
from perseid.security.members import Members
from perseid.security.policies import Acl
from perseid.security.verdicts import Verdicts
from perseid.sim import security, users
from perseid.sim.models.registry import MODELS
from perseid.wire.codes import RequestCode

MET = ("permission given", "permission revoked", "guest served", "guest refused", "stranger refused")
Patch = Callable[[pytest.MonkeyPatch], None]


def a_code_without_a_check(patch: pytest.MonkeyPatch) -> None:
    right = Gate.admit

    def admit(self: Gate, request: Request, route: Route | None) -> None:
        if request.command.code != RequestCode.GET_BROKER_CONFIG:
            right(self, request, route)

    patch.setattr(Gate, "admit", admit)


def a_verdict_that_outlives_its_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Verdicts, "forget", lambda self: None)


def an_allowance_that_outlives_its_policy(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Verdicts) -> None:
        for key in [key for key, why_not in self._known.items() if why_not]:
            del self._known[key]

    patch.setattr(Verdicts, "forget", forget)


def a_permit_of_the_fast_way_that_outlives_its_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Signers, "_forget", lambda self: None)


def a_signature_that_nobody_compares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authentication, "is_signed", lambda *given: True)


def a_revocation_that_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    right = AclTable.put

    def put(self: AclTable, name: str, acl: Acl | None) -> None:
        dirty = self.dirty
        right(self, name, acl)
        if acl is None or not acl.entries:
            self.dirty = dirty

    patch.setattr(AclTable, "put", put)
    patch.setattr(core, "compiled", None)  # the seed was found where all that is signed takes the handlers' way
    patch.setattr(users, "PROPERTIES", "")


def a_name_server_that_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Members, "stranger", lambda self, command: "")


def a_group_that_takes_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(composition, "stranger", lambda *given: "")


DEFECTS: dict[Patch, tuple[int, str]] = {
    a_code_without_a_check: (23, "who does not sign is not served"),
    a_verdict_that_outlives_its_policy: (23, "who "),
    an_allowance_that_outlives_its_policy: (23, "who may not is not served"),
    a_permit_of_the_fast_way_that_outlives_its_policy: (71, "who may not is not served"),
    a_signature_that_nobody_compares: (23, "who does not sign is not served"),
    a_revocation_that_is_not_saved: (1034, "who may not is not served"),
    a_name_server_that_asks_nobody: (9, "who does not sign is not served"),
    a_group_that_takes_anybody: (9, "who does not sign is not served"),
}
"""Each with the first seed that finds it, and the promise that it breaks."""
OF_MODEL = {a_group_that_takes_anybody: "dledger"}
"""Whose seed that is, if it is none of `broker`."""


@pytest.mark.sim
def test_a_seed_with_users_keeps_all_promises() -> None:
    result = MODELS["broker"].run(23)
    assert security.has_users("broker", 23) and not result.failure, result.failure
    assert all(result.counts[what] > 5 for what in MET), {what: result.counts[what] for what in MET}


@pytest.mark.sim
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, defect: Patch) -> None:
    if defect is a_permit_of_the_fast_way_that_outlives_its_policy and core.compiled is None:
        pytest.skip("without the core what has to be signed goes no fast way")
    seed, promise = DEFECTS[defect]
    defect(monkeypatch)
    result = MODELS[OF_MODEL.get(defect, "broker")].run(seed)
    assert promise in (result.failure or ""), result.failure


def test_a_few_seeds_have_users() -> None:
    for model in security.USERS:
        assert 32 <= sum(security.has_users(model, seed) for seed in range(480)) <= 48
