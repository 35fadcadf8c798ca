"""What capabilities tell the kernel: each name has its place, each place its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.broker import capabilities
from perseid.broker.kernel.capability import Step, in_order
from perseid.broker.kernel.roles import RoleHook
from perseid.raft.config import RaftConfig


@pytest.fixture(params=["alone", "group", "slave"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    raft = RaftConfig(group="g", self_id="n0", peers="n0-127.0.0.1:40911") if request.param == "group" else None
    return Rig(tmp_path, raft=raft, broker_role="SLAVE" if request.param == "slave" else "ASYNC_MASTER")


def test_each_name_has_its_place(rig: Rig) -> None:
    found = rig.broker.capabilities
    named = {
        capabilities.SAVED: {file.path for one in found for file in one.files},
        capabilities.HANGING: {"who hears of appends", *(hook.name for one in found for hook in one.hooks)},
        capabilities.TICKING: {timer.name for one in found for timer in one.timers} - {"held pulls"},
        capabilities.SETTLING: {step.name for one in found for step in one.settles},
        capabilities.ENDING: {step.name for one in found for step in one.ends},
    }
    for order, names in named.items():
        assert names <= set(order), names - set(order)
        assert len(set(order)) == len(order)
    lmq_or_group = {"config/lmqConsumerOffset.json", "the group"}
    unused = {name for order, names in named.items() for name in order if name not in names}
    assert unused <= lmq_or_group, unused


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
