"""Defects planted in controllers and in brokers under them: each breaks the promise that it should, in the seed or in
the scenario (`ha_scenarios`) that found it.

The numbers are those of the register of real defects that they are like (B…), and of the invariants (C1 to C13, R1 to
R10, see `perseid.sim.models.ha.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perseid.base.machine import Effect, Feed, Millis, SaveState
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.node import Broker
from perseid.broker.replication.manager.enrolment import Enrolment
from perseid.broker.replication.manager.heartbeats import Heartbeats
from perseid.broker.replication.manager.manager import ReplicasManager
from perseid.broker.replication.manager.role import Role as BrokerRole
from perseid.controller import commands
from perseid.controller.live import Liveness
from perseid.controller.node import Controller
from perseid.controller.state import Tables
from perseid.controller.writes import Writes
from perseid.replication.auto_switch.epochs import Epochs
from perseid.replication.auto_switch.in_sync import InSync
from perseid.replication.auto_switch.master import Follower, Master
from perseid.replication.auto_switch.node import AutoSwitchReplication, CutFor, Led
from perseid.replication.auto_switch.slave import Slave
from perseid.sim.models.ha.run import run
from perseid.sim.options import Options
from perseid.sim.promises import Violation
from perseid.store.confirm_gate import ConfirmGate
from perseid.wire.dledger import Code, Entry
from perseid.wire.ha_auto import EpochEntry, SlaveHandshake

from .planted import Mutation, seek
from .test_scenarios_ha import SCENARIOS


def no_self_checks(patch: pytest.MonkeyPatch) -> None:
    """The nodes' own checks of their own state are off: what the defect does has to show."""
    for kind in (Broker, Controller):
        patch.setattr(kind, "validate", lambda self: None)


# ---- the controller ----


def answers_before_commit(patch: pytest.MonkeyPatch) -> None:
    """R9: a request is answered when its entry is in the leader's log."""
    real = Writes._begin

    def begin(self: Writes, name: str, write: Any) -> None:
        decide = write.decide

        def decided() -> Any:
            outcome = decide()
            if outcome.events:
                write.answer(outcome)
                write.answer = lambda outcome: None
            return outcome

        write.decide = decided
        real(self, name, write)

    patch.setattr(Writes, "_begin", begin)


def unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    """B25, R9: an append with an unknown outcome counts as a success."""
    real = Writes._begin

    def begin(self: Writes, name: str, write: Any) -> None:
        raft = self.controller.raft
        append = raft.append

        def appended(body: bytes, done: Callable[[int, Entry], None]) -> int:
            return append(body, lambda code, entry: done(Code.SUCCESS, entry))

        raft.append = appended  # type: ignore[method-assign]
        try:
            real(self, name, write)
        finally:
            raft.append = append  # type: ignore[method-assign]

    patch.setattr(Writes, "_begin", begin)


def decided_side_by_side(patch: pytest.MonkeyPatch) -> None:
    """B24, C7: requests of one set are decided while others of it are under way."""
    no_self_checks(patch)

    def submit(self: Writes, name: str, decide: Any, answer: Any) -> None:
        self._sets.pop(name, None)
        real(self, name, decide, answer)

    real = Writes.submit
    patch.setattr(Writes, "submit", submit)


def active_when_elected(patch: pytest.MonkeyPatch) -> None:
    """C7: a controller decides as soon as it is elected, before it knows all committed entries."""
    no_self_checks(patch)

    def mark(self: Controller) -> None:
        member = self.raft.member
        if member.is_leader and not self.active and self._marking != member.term:
            self._marking = member.term
            self._activate()

    patch.setattr(Controller, "_mark", mark)


def any_id_is_given(patch: pytest.MonkeyPatch) -> None:
    """B24, C7: a broker gets the id that it claims, although another broker has it."""
    real = commands.apply_broker_id

    def apply(facts: Any, request: Any) -> Any:
        outcome = real(facts, request)
        if outcome.reply.code:
            outcome.reply.code = 0
        return outcome

    patch.setattr(commands, "apply_broker_id", apply)


def old_masters_are_heard(patch: pytest.MonkeyPatch) -> None:
    """C4: the in-sync set is accepted from any former master, whatever its state."""
    real = commands.alter_sync_state_set

    def alter(facts: Any, request: Any, proposed: Any, peer: str) -> Any:
        state = facts.tables.in_sync.get(request.broker_name)
        if state is not None and state.master is not None:
            request.master_broker_id, request.master_epoch = state.master, state.master_epoch
            proposed.sync_state_set_epoch = state.epoch
            proposed.sync_state_set = sorted({*proposed.sync_state_set, state.master})
        return real(facts, request, proposed, peer)

    patch.setattr(commands, "alter_sync_state_set", alter)
    patch.setattr(commands, "_is_of", lambda facts, state, broker_id, peer: True)


def anybody_is_elected(patch: pytest.MonkeyPatch) -> None:
    """C6: with no in-sync replica alive, another replica is elected, although that is not allowed."""
    real = commands.policy.elect

    def elect(in_sync: Any, others: Any, old: Any, prefer: Any, alive: Any) -> int | None:
        return real(in_sync, range(1, 9), old, prefer, alive)

    patch.setattr(commands.policy, "elect", elect)


def snapshot_without_data(patch: pytest.MonkeyPatch) -> None:
    """B26, R7: a snapshot of the controllers' state has nothing in it."""
    patch.setattr(Tables, "snapshot", lambda self: Tables.__new__(Tables) and b'{"replicas":{},"in_sync":{}}')


def never_heard_is_dead(patch: pytest.MonkeyPatch) -> None:
    """B21: a new active controller takes brokers for dead before it has heard from them."""
    real = Liveness.may_live

    def may_live(self: Liveness, cluster: str, name: str, broker_id: int, now: int) -> bool:
        self.judging_from = 0
        return real(self, cluster, name, broker_id, now)

    patch.setattr(Liveness, "may_live", may_live)


def old_channels_count(patch: pytest.MonkeyPatch) -> None:
    """B19: a broker's first connection counts as its connection for ever."""
    no_self_checks(patch)
    real = Liveness.heard

    def heard(self: Liveness, beat: Any, broker_id: int, conn: int, peer: str, now: int) -> Any:
        row = self.rows.get((beat.cluster_name, beat.broker_name, broker_id))
        return real(self, beat, broker_id, row.conn if row is not None and row.alive else conn, peer, now)

    patch.setattr(Liveness, "heard", heard)


def only_the_active_one_listens(patch: pytest.MonkeyPatch) -> None:
    """B20: a new active controller knows no brokers, and notices no death."""
    real = Controller._activate

    def activate(self: Controller) -> None:
        self.live = Liveness()
        real(self)

    def came(self: Liveness, beat: Any, broker_id: int, conn: int, peer: str, now: int) -> Any:
        return None

    patch.setattr(Controller, "_activate", activate)
    patch.setattr(Liveness, "heard", came)


# ---- who is in sync ----


def joiners_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """B1: a proposed replica is waited for only after the controller has agreed."""
    patch.setattr(InSync, "required", property(lambda self: self.agreed))


def the_lost_are_dropped_at_once(patch: pytest.MonkeyPatch) -> None:
    """B2: a replica with a lost connection is no longer waited for, although the controller may elect it."""
    real = InSync.gone

    def gone(self: InSync, replica: int) -> None:
        real(self, replica)
        if replica != self.own:
            self.agreed -= {replica}

    patch.setattr(InSync, "gone", gone)


def the_unconnected_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """B4: the confirm offset only needs the connected replicas."""

    def on_all(self: Master) -> int:
        connected = {follower.replica for follower in self.followers.values()}
        has, self._has = self._has, {one: end for one, end in self._has.items() if one in connected}
        own = self.in_sync.own
        try:
            ends = [self._has[one] for one in self.in_sync.required if one != own and one in self._has]
            return min(ends, default=1 << 62)
        finally:
            self._has = has

    patch.setattr(Master, "on_all", on_all)


def the_set_of_the_last_term(patch: pytest.MonkeyPatch) -> None:
    """B8: a new master goes on with the in-sync set that it knew, not with the controller's."""
    real = InSync.agree

    def agree(self: InSync, members: Any, epoch: int, now: int) -> bool:
        return real(self, (self.own,), epoch, now)

    patch.setattr(InSync, "agree", agree)


def joins_before_it_has_all(patch: pytest.MonkeyPatch) -> None:
    """C4: a replica joins the in-sync set as soon as it follows."""
    patch.setattr(Master, "_may_be_in", lambda self, replica: True)


def joins_by_an_old_report(patch: pytest.MonkeyPatch) -> None:
    """C4: a replica that had reached the confirm offset joins later, when the confirm offset is higher."""
    patch.setattr(InSync, "keep_joiners", lambda self, may_join: None)


def one_is_enough(patch: pytest.MonkeyPatch) -> None:
    """C4: the best replica's offset counts as that of all."""

    def on_all(self: Master) -> int:
        own = self.in_sync.own
        return max((self._has.get(one, -1) for one in self.in_sync.required if one != own), default=1 << 62)

    patch.setattr(Master, "on_all", on_all)


def connections_are_counted(patch: pytest.MonkeyPatch) -> None:
    """B17: a returning replica counts twice, for its old connection and for its new one."""
    no_self_checks(patch)
    real = Master.on_all

    def on_all(self: Master) -> int:
        ends = sorted((f.acknowledged for f in self.followers.values()), reverse=True)
        needed = len(self.in_sync.required) - 1
        return real(self) if needed < 1 else (ends[needed - 1] if len(ends) >= needed else -1)

    def _believe(self: Master, follower: Follower, said: SlaveHandshake, now: Millis) -> Any:
        if self._is_at(said.broker_id, follower.peer, now):
            return self._greet(follower, said)
        follower.waits_until = now + 100
        return []

    patch.setattr(Master, "on_all", on_all)
    patch.setattr(Master, "_believe", _believe)


# ---- the stream ----


def reports_without_a_handshake(patch: pytest.MonkeyPatch) -> None:
    """B14a: a report before the handshake counts for the last replica that sent one."""
    real = Master._reported

    def reported(self: Master, follower: Follower, report: int, now: Millis) -> Any:
        if not follower.replica and report >= 0:
            for one in self.in_sync.agreed - {self.in_sync.own}:
                self._has[one] = report
            return []
        return real(self, follower, report, now)

    patch.setattr(Master, "_reported", reported)


def reports_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """C4, C5: a replica reports its written data, although its durable data is required."""
    real = Slave.report_new
    patch.setattr(Slave, "report_new", lambda self, upto, now: real(self, self._replica.end, now))


def reported_before_it_is_cut(patch: pytest.MonkeyPatch) -> None:
    """B13: a slave follows before its truncation is durable."""

    def trim(self: AutoSwitchReplication, trim: Any) -> list[Effect]:
        if trim.end >= self._store.log.end:
            return self._adopt(trim)
        self._store.truncation.begin(trim.end, [])
        return [*self._store.truncation.begin(trim.end, []), Feed(CutFor(trim))]

    patch.setattr(AutoSwitchReplication, "_trim", trim)


# ---- epochs ----


def epochs_outlive_a_cut(patch: pytest.MonkeyPatch) -> None:
    """B9: a slave that truncates its log keeps the epochs of the truncated part."""

    def adopt(self: Epochs, theirs: Any, upto: int) -> bool:
        kept = list(self.entries)
        for entry in theirs:
            if not kept or (entry.epoch > kept[-1].epoch and entry.start > kept[-1].start):
                kept.append(entry)
        changed, self.entries = kept != self.entries, kept
        return changed

    patch.setattr(Epochs, "adopt", adopt)


def labels_of_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    """B10: epochs in a handshake that ended within one packet are forgotten."""
    real = Epochs.adopt

    def adopt(self: Epochs, theirs: Any, upto: int) -> bool:
        return real(self, [entry for entry in theirs if entry.start <= upto or entry is theirs[-1]], upto)

    patch.setattr(Epochs, "adopt", adopt)


def nothing_is_cut(patch: pytest.MonkeyPatch) -> None:
    """C9: a slave takes its whole log for the master's."""
    patch.setattr(Slave, "_point", lambda self, theirs, end: min(self._replica.end, end))


def the_epoch_is_not_opened(patch: pytest.MonkeyPatch) -> None:
    """B11, #6505: a new master goes on writing in the last one's epoch."""

    def begin(self: Epochs, epoch: int, end: int) -> None:
        if not self.entries:
            self.entries.append(EpochEntry(epoch, end))

    patch.setattr(Epochs, "begin", begin)


def empty_epochs_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    """B12: a slave follows before the epochs that it takes over are on its disk."""
    real = AutoSwitchReplication._adopt

    def adopt(self: AutoSwitchReplication, trim: Any) -> list[Effect]:
        return [effect if not isinstance(effect, SaveState) else effect.then[0] for effect in real(self, trim)]

    patch.setattr(AutoSwitchReplication, "_adopt", adopt)


def leads_before_its_epoch_is_durable(patch: pytest.MonkeyPatch) -> None:
    """C9: a master writes before the entry of its epoch is durable."""
    real = AutoSwitchReplication.lead

    def lead(self: AutoSwitchReplication, epoch: int, now: Millis) -> list[Effect]:
        effects = real(self, epoch, now)
        return [Feed(Led(epoch)) if isinstance(effect, SaveState) else effect for effect in effects]

    patch.setattr(AutoSwitchReplication, "lead", lead)


def an_epoch_is_led_twice(patch: pytest.MonkeyPatch) -> None:
    """C9: a restarted master goes on in its former epoch."""
    patch.setattr(BrokerRole, "_may_lead", lambda self, epoch, now: True)


# ---- what readers see, and roles ----


def all_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    """B4, C10: readers see messages that only the master has."""

    def confirm(self: AutoSwitchReplication) -> None:
        self._store.flusher.confirm(self._store.log.end)

    patch.setattr(AutoSwitchReplication, "confirm", confirm)


def a_start_confirms_all(patch: pytest.MonkeyPatch) -> None:
    """B5, #6609: readers see everything that a start finds in the log."""
    real = ConfirmGate.load

    def load(self: ConfirmGate, confirmed: int, queues: Any) -> None:
        units = [queue.raw(queue.end - 1) for queue in queues if queue.end > queue.min]
        real(self, max([confirmed, *(unit.physical_offset + unit.size for unit in units if unit is not None)]), queues)

    patch.setattr(ConfirmGate, "load", load)


def offsets_of_what_is_shown(patch: pytest.MonkeyPatch) -> None:
    """B6, #7689: a new master's first message of a queue takes the offset of one that is not confirmed."""
    no_self_checks(patch)
    from perseid.store.appends import Appends

    real = Appends.append

    def append(self: Appends, message: Any, now: int) -> Any:
        queue = self.queues.get(message.topic, message.queue_id)
        if queue is not None and queue.shown < queue.end:
            queue.cut(queue.shown)
        return real(self, message, now)

    patch.setattr(Appends, "append", append)
    patch.setattr("perseid.broker.fast_path.plain_sends.sends_of", lambda ports: None)


def group_offsets_are_not_clamped(patch: pytest.MonkeyPatch) -> None:
    """B14, #4771: a group stays ahead of a queue that has lost messages."""
    patch.setattr(ConsumerOffsets, "clamp", lambda self, end_of: None)


def serves_before_its_role_is_known(patch: pytest.MonkeyPatch) -> None:
    """B38: a broker serves in its former role before a controller has told it one."""
    real = ReplicasManager.start

    def start(self: ReplicasManager, now: Millis) -> None:
        real(self, now)
        role, replication, broker_id = self.role, self.role._replication, self.enrolment.broker_id
        if replication.epochs.last > 0:
            role.epoch = replication.epochs.last
            role.fenced = role._roles.is_slave = False
            role.master_id = broker_id
            role._turn.emit(replication.lead(role.epoch, now)[-1])
            self._agreement.agree([broker_id], 0, role.epoch, now)
            role._registration.start(now)

    patch.setattr(ReplicasManager, "start", start)


def the_elder_wins_at_the_name_server(patch: pytest.MonkeyPatch) -> None:
    """B37, #6316: a table of topics does not name its master's epoch."""
    real = TopicTable.bump
    patch.setattr(TopicTable, "bump", lambda self, now, state_version=None: real(self, now))


def a_wiped_disk_counts(patch: pytest.MonkeyPatch) -> None:
    """C5: a broker that lost its log but kept its id can be elected."""
    patch.setattr(Heartbeats, "be_silent", lambda self, why: None)
    patch.setattr(Heartbeats, "wiped", property(lambda self: False, lambda self, value: None), raising=False)


def a_wiped_disk_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """C5: a broker that lost its log takes its copy for complete after a restart, as soon as it has any epochs."""
    real = ReplicasManager.start

    def start(self: ReplicasManager, now: Millis) -> None:
        real(self, now)
        self.heartbeats.wiped = self.role._replication.epochs.lost

    patch.setattr(ReplicasManager, "start", start)


def a_copy_is_welcome(patch: pytest.MonkeyPatch) -> None:
    """C7: a broker on a copied disk takes over the id of the living one."""
    real = commands.register_broker

    def register(facts: Any, request: Any) -> Any:
        live, facts.live = facts.live, Liveness()
        facts.live.judging_from = 1 << 62
        try:
            return real(facts, request)
        finally:
            facts.live = live

    heard = Liveness.heard

    def taken(self: Liveness, beat: Any, broker_id: int, conn: int, peer: str, now: int) -> Any:
        row = self.rows.get((beat.cluster_name, beat.broker_name, broker_id))
        if row is not None:
            row.address = beat.broker_addr
        return heard(self, beat, broker_id, conn, peer, now)

    patch.setattr(commands, "register_broker", register)
    patch.setattr(Liveness, "heard", taken)
    patch.setattr(Enrolment, "_checked", property(lambda self: True, lambda self, value: None), raising=False)


FOUND: dict[Mutation, tuple[str, str]] = {
    answers_before_commit: ("C7", "seeds"),
    unknown_is_success: ("R9", "active_controller_without_its_group"),
    decided_side_by_side: ("C7", "seeds"),
    active_when_elected: ("C7", "seeds"),
    any_id_is_given: ("C7", "seeds"),
    old_masters_are_heard: ("C10", "old_master_that_does_not_know"),
    anybody_is_elected: ("C6", "seeds"),
    snapshot_without_data: ("R7", "seeds"),
    never_heard_is_dead: ("C6", "new_controller_without_heartbeats"),
    old_channels_count: ("C13", "stale_channel_closes"),
    only_the_active_one_listens: ("C13", "seeds"),
    joiners_do_not_count: ("C10", "expand_whose_answer_is_lost"),
    the_lost_are_dropped_at_once: ("C10", "shrink_without_the_controllers"),
    the_unconnected_are_passed_over: ("C10", "shrink_without_the_controllers"),
    the_set_of_the_last_term: ("C10", "active_controller_without_its_group"),
    joins_before_it_has_all: ("C4", "seeds"),
    joins_by_an_old_report: ("C4", "seeds"),
    one_is_enough: ("C10", "active_controller_without_its_group"),
    connections_are_counted: ("C10", "one_slave_on_two_connections"),
    reports_without_a_handshake: ("C10", "seeds"),
    reports_what_is_not_durable: ("C5", "power_of_all_lost_after_an_acknowledgement"),
    reported_before_it_is_cut: ("C9", "confirm_offset_of_an_unrecognised_master"),
    epochs_outlive_a_cut: ("C13", "seeds"),
    labels_of_the_next_epoch: ("C9", "epochs_of_a_few_bytes"),
    nothing_is_cut: ("C9", "confirm_offset_of_an_unrecognised_master"),
    the_epoch_is_not_opened: ("C9", "confirm_offset_of_an_unrecognised_master"),
    empty_epochs_are_not_saved: ("C13", "seeds"),
    leads_before_its_epoch_is_durable: ("C12", "controller_and_master_killed_together"),
    an_epoch_is_led_twice: ("no member breaks", "seeds"),
    all_is_confirmed: ("C10", "active_controller_without_its_group"),
    a_start_confirms_all: ("C12", "killed_with_an_unconfirmed_tail"),
    offsets_of_what_is_shown: ("C11", "copied_disk"),
    group_offsets_are_not_clamped: ("C11", "offsets_of_groups_after_a_loss"),
    serves_before_its_role_is_known: ("no member breaks", "seeds"),
    the_elder_wins_at_the_name_server: ("C8", "old_master_at_the_name_server"),
    a_wiped_disk_counts: ("C5", "wiped_disk_with_its_old_id"),
    a_wiped_disk_is_forgotten: ("C5", "wiped_disk_that_is_filled_again"),
    a_copy_is_welcome: ("C13", "copied_disk"),
}
"""What is broken first, and whether by seeds or in which scenario."""

BY_NAME = {scenario.__name__: scenario for scenario in SCENARIOS}


SEEDS = "seeds"


def failure_of(scenario: str) -> str:
    """How it failed; "": it did not."""
    try:
        BY_NAME[scenario]()
    except Violation as violation:
        return str(violation)
    return ""


def is_found(mutation: Mutation, promise: str, where: str) -> None:
    """By seeds, or in a scenario (which has a test of its own without the defect)."""
    if where == SEEDS:
        seek(mutation, partial(run, options=Options(transactions=False, timed=False, features=())), promise=promise)
        return
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        failure = failure_of(where)
    assert failure.startswith(promise), failure or f"{where} keeps all promises"


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    is_found(mutation, *FOUND[mutation])
