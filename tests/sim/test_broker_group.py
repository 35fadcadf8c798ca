"""Brokers in a Raft group, in the simulator: seeds that keep all promises, and planted defects that don't."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid.broker import switch
from perseid.broker.group import Group
from perseid.broker.node import Broker
from perseid.raft.commit_log import EntryLog
from perseid.raft.store import GroupStore
from perseid.sim.broker_group import run

Mutation = Callable[[pytest.MonkeyPatch], None]
SEEDS = 8
"""Seeds of `make test`; more by `perseid sim --model group`."""


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = run(seed)
    assert not result.failure, result.failure
    assert result.virtual_s >= 60 and result.operations >= 300 and result.faults >= 10


def master_at_once(patch: pytest.MonkeyPatch) -> None:
    """An elected leader is master before it knows what older terms left."""
    patch.setattr(GroupStore, "settled", True)


def offsets_of_the_dispatched(patch: pytest.MonkeyPatch) -> None:
    """A new leader's own message takes the queue offset of one that is not committed yet."""
    patch.setattr(GroupStore, "learn_pending", lambda self: None)


def acknowledged_before_commit(patch: pytest.MonkeyPatch) -> None:
    """An answer leaves when the leader has the entry."""
    real = Broker.ready.fget  # type: ignore[attr-defined]

    def ready(self: Broker) -> int:
        group = self.group
        return group._entries.end_of(group._entries.end) if group is not None else int(real(self))

    patch.setattr(Broker, "ready", property(ready))
    patch.setattr(Broker, "validate", lambda self: None)


def read_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Readers see entries that no quorum has."""
    real = EntryLog.committed
    patch.setattr(EntryLog, "committed", lambda self, index: real(self, self._entries.end))


def pending_offsets_kept(patch: pytest.MonkeyPatch) -> None:
    """A broker that is master again goes on with the queue offsets that it had given."""
    patch.setattr(GroupStore, "forget_pending", lambda self: None)


def marks_by_nobody(patch: pytest.MonkeyPatch) -> None:
    """A new leader waits for somebody else to commit older terms."""

    def lead(self: Group) -> None:
        if self.store.settled:
            self.is_master, self._term = True, self.raft.member.term
            switch.become(self._broker, master=True)

    patch.setattr(Group, "_lead", lead)


FOUND: dict[Mutation, tuple[str, int]] = {
    master_at_once: ("an offset keeps its message", 1),
    offsets_of_the_dispatched: ("no member breaks", 6),
    acknowledged_before_commit: ("acknowledged is committed", 1),
    read_before_commit: ("acknowledged is committed", 1),
    pending_offsets_kept: ("no member breaks", 3),
    marks_by_nobody: ("sends succeed after faults heal", 1),
}
"""The promise that breaks first, and in which seed, from 1 on."""


@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    promise, seed = FOUND[mutation]
    mutation(monkeypatch)
    failure = run(seed, transactions=False).failure
    assert failure.startswith(promise), failure or f"seed {seed} keeps all promises"


@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
def test_without_it_the_same_seed_keeps_all_promises() -> None:
    for seed in sorted({seed for _, seed in FOUND.values()}):
        assert not run(seed, transactions=False).failure, f"seed {seed}"
