"""Brokers in a Raft group, in the simulator: seeds that keep all promises, and planted defects that don't."""

from __future__ import annotations

from functools import partial

import pytest

from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.roles import Roles
from perseid.broker.node import Broker
from perseid.broker.replication.dledger_member import DLedgerMember
from perseid.raft.commit_log import EntryLog
from perseid.raft.store import GroupAppends, GroupStore
from perseid.sim.models.dledger.clients import Client
from perseid.sim.models.dledger.group import BrokerGroup
from perseid.sim.models.dledger.history import GroupHistory
from perseid.sim.models.dledger.run import run
from perseid.sim.options import Options
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

from .planted import Mutation, seek
from .seeds import seeds

SEEDS = 2
"""Seeds of `make test`; more by `perseid sim --model dledger`."""


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(1, SEEDS))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = run(seed)
    assert not result.failure, result.failure
    assert result.virtual_s >= 60 and result.operations >= 300 and result.faults >= 10


@pytest.mark.sim
def test_a_cut_that_the_disk_refuses_stops_a_member_by_name() -> None:
    """Files that are cut off could not be removed: that ended a member as what nobody had thought of."""
    result = run(265253250058, Options(selection=Selection(swarm=True)))
    assert not result.failure, result.failure


@pytest.mark.sim
@pytest.mark.parametrize("power", [False, True])
def test_brokers_whose_oldest_entries_went_with_a_full_disk_start_and_go_on(power: bool) -> None:
    """As seed 530975750004 of swarms, without the core: what is left is found as it was, and entries follow."""
    often = {"clean_resource_first_ms": 1_000, "clean_resource_interval": 1_000}
    group = BrokerGroup(3, strangers=False, store_settings=often)
    assert group.synced
    scheduler, history = group.scheduler, GroupHistory(group)
    group.start()
    for number in range(2):
        Client(group, f"client{number}", history).begin()
    scheduler.run(20 * US_PER_S)
    for one in group.members:
        one.driver.disk.fill(1)
    scheduler.run(scheduler.now_us + 2 * US_PER_S)
    assert all(one.raft is not None and one.raft.log.begin > 0 for one in group.members)
    for one in group.members:
        one.driver.heal()
        (group.cut_power if power else group.crash)(one)
        scheduler.run(scheduler.now_us + 2 * US_PER_S)
        group.restart(one)
        scheduler.run(scheduler.now_us + 2 * US_PER_S)
    before = history.acknowledged
    assert scheduler.run(scheduler.now_us + 60 * US_PER_S, lambda: history.acknowledged > before + 5)
    assert scheduler.run(scheduler.now_us + 60 * US_PER_S, lambda: not group.settled()), group.settled()


def master_at_once(patch: pytest.MonkeyPatch) -> None:
    """An elected leader is master before it knows the entries of older terms."""
    patch.setattr(GroupStore, "settled", True)


def offsets_of_the_dispatched(patch: pytest.MonkeyPatch) -> None:
    """A new leader's own message takes the queue offset of one that is not committed yet."""
    patch.setattr(GroupAppends, "learn_pending", lambda self: None)


def acknowledged_before_commit(patch: pytest.MonkeyPatch) -> None:
    """An answer is sent when only the leader has the entry."""

    def ready(self: Durability) -> int:
        entries = self._store.log._entries  # type: ignore[attr-defined]
        return int(entries.end_of(entries.end))

    patch.setattr(Durability, "ready", property(ready))
    patch.setattr(Broker, "validate", lambda self: None)


def read_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Readers see entries that no quorum has."""
    real = EntryLog.committed
    patch.setattr(EntryLog, "committed", lambda self, index: real(self, self._entries.end))


def pending_offsets_kept(patch: pytest.MonkeyPatch) -> None:
    """A broker that is master again goes on with its former queue offsets."""
    patch.setattr(GroupAppends, "forget_pending", lambda self: None)


def marks_by_nobody(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not commit older terms itself."""

    def lead(self: DLedgerMember) -> None:
        if self.store.settled:
            self.is_master, self._term = True, self.raft.member.term
            self._roles.become(master=True)

    patch.setattr(DLedgerMember, "_lead", lead)


def stays_master(patch: pytest.MonkeyPatch) -> None:
    """A deposed broker goes on as master, and still is one when it leads in a later term."""
    real = Roles.become
    patch.setattr(Roles, "become", lambda self, *, master: real(self, master=master) if master else None)
    settle = DLedgerMember.settle

    def settled(self: DLedgerMember) -> None:
        was = self.is_master
        settle(self)
        self.is_master |= was

    patch.setattr(DLedgerMember, "settle", settled)
    patch.setattr(DLedgerMember, "validate", lambda self: self.raft.validate())  # which would find it at once


FOUND: dict[Mutation, str] = {
    master_at_once: "an offset keeps its message",
    offsets_of_the_dispatched: "no member breaks",
    acknowledged_before_commit: "acknowledged is committed",
    read_before_commit: "acknowledged is committed",
    pending_offsets_kept: "no member breaks",
    marks_by_nobody: "sends succeed after faults heal",
    stays_master: "no member breaks",
}
"""What is broken first."""


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    seek(mutation, partial(run, options=Options(transactions=False, features=())), promise=FOUND[mutation])
