"""What capabilities tell the kernel: each name has its place, each place its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.broker import capabilities
from perseid.broker.access.tables import ACLS_PATH, USERS_PATH
from perseid.broker.kernel.capability import Step, in_order
from perseid.broker.kernel.roles import RoleHook
from perseid.raft.config import RaftConfig

MODES = ("alone", "dledger", "slave", "controlled")


def rig_of(mode: str, folder: Path) -> Rig:
    if mode == "dledger":
        return Rig(folder, raft=RaftConfig(group="g", self_id="n0", peers="n0-127.0.0.1:40911"))
    if mode == "controlled":
        return Rig(folder, enable_controller_mode=True, controller_addr="10.0.0.9:9878")
    return Rig(folder, broker_role="SLAVE" if mode == "slave" else "ASYNC_MASTER")


@pytest.fixture(params=MODES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return rig_of(request.param, tmp_path)


def names_of(rig: Rig) -> dict[tuple[str, ...], set[str]]:
    """What stands in each order."""
    found = rig.broker.capabilities
    return {
        capabilities.SAVED: {file.path for one in found for file in one.files},
        capabilities.HANGING: {"who hears of appends", *(hook.name for one in found for hook in one.hooks)},
        capabilities.TICKING: {timer.name for one in found for timer in one.timers} - {"held pulls"},
        capabilities.SETTLING: {step.name for one in found for step in one.settles},
        capabilities.ENDING: {step.name for one in found for step in one.ends},
    }


def test_each_name_has_its_place(rig: Rig) -> None:
    for order, names in names_of(rig).items():
        assert names <= set(order), names - set(order)
        assert len(set(order)) == len(order)


def test_each_place_has_its_name_in_one_mode_at_least(tmp_path: Path) -> None:
    modes = [names_of(rig_of(mode, tmp_path / mode)) for mode in MODES]
    unused = {name for order in modes[0] for name in order if not any(name in named[order] for named in modes)}
    of_users = {USERS_PATH, ACLS_PATH, "audit"}
    assert unused == {"config/lmqConsumerOffset.json"} | of_users, "which take another one's place, or need users"


def test_names_of_capabilities_and_requests_are_unique(rig: Rig) -> None:
    names = [one.name for one in rig.broker.capabilities]
    assert len(set(names)) == len(names)
    codes = [row.code for one in rig.broker.capabilities for part in one.requests for row in part.routes()]
    assert len(set(codes)) == len(codes) == len(rig.parts.dispatch.routes)


def test_what_is_not_named_comes_last() -> None:
    steps = [Step(name, lambda: None) for name in ("new", "b", "a", "newer")]
    assert [step.name for step in in_order(("a", "b", "c"), steps)] == ["a", "b", "new", "newer"]


def test_a_change_of_role_goes_through_all_hooks_in_their_order(rig: Rig) -> None:
    seen: list[str] = []

    def told(name: str) -> Callable[[], None]:
        return lambda: seen.append(name)

    hooks = [
        RoleHook(name, told(f"{name} leads"), told(f"{name} follows"), sent_away=away)
        for name, away in (("first", False), ("second", True))
    ]
    rig.parts.roles.hang(hooks)
    rig.parts.roles.become(master=True)
    rig.parts.roles.become(master=False)
    assert seen == ["first leads", "second leads", "first follows", "second follows"]
    assert rig.parts.roles.is_slave
    seen.clear()

    class Escapes:
        wanted = True

        def switch(self, on: bool) -> None:
            seen.append(f"escape {on}")

    rig.parts.roles.send_away(Escapes(), on=True)
    rig.parts.roles.send_away(Escapes(), on=False)
    assert seen == ["escape True", "second leads", "second follows", "escape False"]
    Escapes.wanted = False
    rig.parts.roles.send_away(Escapes(), on=True)
    assert len(seen) == 4
