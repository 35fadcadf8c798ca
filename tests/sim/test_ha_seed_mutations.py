"""Defects planted where seeds of the simulator have found one (`ha_seed_scenarios`, `ha_pop_scenarios`), and where a
mutation had gone unnoticed: each breaks the promise that it should (see `test_ha_mutations`)."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.base.machine import Effect, Millis
from perseid.broker.pop.ack_requests import PopAckRequests
from perseid.broker.pop.service import PopService
from perseid.broker.replication import new_master
from perseid.broker.replication.modes import controlled
from perseid.broker.replication.peer_checks import PeersOfSet
from perseid.controller import writes
from perseid.raft.follower import Follower
from perseid.replication.auto_switch.epochs import Epochs
from perseid.replication.auto_switch.in_sync import InSync, Proposal
from perseid.replication.auto_switch.master import Master
from perseid.store.flushing import Flusher
from perseid.store.results import Appended, Flushed
from perseid.wire import pop
from perseid.wire.dledger import Code, Push, PushEntryRequest, PushEntryResponse
from perseid.wire.pop import BatchAck

from .planted import Mutation
from .test_ha_mutations import is_found

# ---- who is in sync ----


def late_answers_speak_for_all(patch: pytest.MonkeyPatch) -> None:
    """C10: the answer to an earlier proposal ends the present one."""
    real = InSync.failed

    def failed(self: InSync, proposal: Proposal, now: Millis, **how: bool) -> None:
        real(self, self.proposed or proposal, now, **how)

    patch.setattr(InSync, "failed", failed)


def the_same_set_is_agreed_twice(patch: pytest.MonkeyPatch) -> None:
    """C10: an answer with the known set ends a later proposal."""
    real = InSync.agree

    def agree(self: InSync, members: Any, epoch: int, now: Millis) -> bool:
        self.epoch -= epoch == self.epoch
        return real(self, members, epoch, now)

    patch.setattr(InSync, "agree", agree)


def joins_before_its_masters_epoch(patch: pytest.MonkeyPatch) -> None:
    """C4: a replica joins that has reached the confirm offset, but not the start of the epoch."""

    def may_be_in(self: Master, replica: int) -> bool:
        return self._has.get(replica, -1) >= self._confirmed()

    patch.setattr(Master, "_may_be_in", may_be_in)


def strangers_count_as_nodes(patch: pytest.MonkeyPatch) -> None:
    """inSyncReplicas: the replication port accepts an id that the controllers don't know."""
    real = PeersOfSet.is_replica

    def is_replica(self: PeersOfSet, number: int, peer: str, now: Millis) -> bool:
        return real(self, number, peer, now) or number not in self._addresses

    patch.setattr(PeersOfSet, "is_replica", is_replica)


def strangers_displace_replicas(patch: pytest.MonkeyPatch) -> None:
    """C10: a replica's id is accepted from any address."""
    patch.setattr(PeersOfSet, "is_replica", lambda self, number, peer, now: True)


# ---- controllers ----


def unknown_says_whoever_was_leader(patch: pytest.MonkeyPatch) -> None:
    """C7: a controller answers that a broker is unknown without confirming with its group that it leads."""
    patch.setattr(writes, "FINAL", frozenset[int]())


def an_epoch_without_a_byte_is_held(patch: pytest.MonkeyPatch) -> None:
    """C6: heartbeats give the last known epoch as that of the log's end."""

    def at_end(self: Epochs, end: int) -> int:
        return max((entry.epoch for entry in self.entries if entry.start <= end), default=-1)

    patch.setattr(Epochs, "at_end", at_end)


# ---- the log, and groups of consumers ----


def what_a_cut_overtook_was_not_issued(patch: pytest.MonkeyPatch) -> None:
    """A flush that was requested before a truncation raises the durable offset beyond the issued one."""
    real = Flusher.handle

    def handle(self: Flusher, event: object) -> list[Effect]:
        issued = self._log.issued
        effects = real(self, event)
        if isinstance(event, Flushed):
            self._log.issued = issued
        return effects

    patch.setattr(Flusher, "handle", handle)


def a_cut_leaves_the_last_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """After a truncation, the part that a start would find counts as longer than the log."""
    real = Flusher.clamp

    def clamp(self: Flusher, end: int) -> Any:
        before = self.saved_log_end
        found = real(self, end)
        self.saved_log_end = before
        return found

    patch.setattr(Flusher, "clamp", clamp)


def groups_stay_ahead_when_elected_again(patch: pytest.MonkeyPatch) -> None:
    """C11, #4771: a re-elected master leaves groups ahead of their queues."""
    for module in (new_master, controlled):
        patch.setattr(module, "set_groups_back", lambda offsets, store: None)


def commits_are_not_doubted(patch: pytest.MonkeyPatch) -> None:
    """C13: a restarted follower does not answer while it does not know whether the committed entries are its own."""
    real = Follower._response

    def response(self: Follower, request: PushEntryRequest, code: int) -> PushEntryResponse:
        return real(self, request, Code.SUCCESS if request.type == Push.COMMIT else code)

    patch.setattr(Follower, "_response", response)


# ---- pop ----


def acks_of_what_is_not_out_are_not_written(patch: pytest.MonkeyPatch) -> None:
    """POP: a broker confirms at once acks of messages that it does not know."""
    patch.setattr(PopService, "has_to_write", lambda self, ack: self.waits_for(ack.key, ack.offsets, ack.revive_time))


def acks_beyond_the_end_are_left_out(patch: pytest.MonkeyPatch) -> None:
    """POP: what a batch acknowledges beyond a queue's end is passed over, and said to be acknowledged."""
    real = PopAckRequests._batch_ack

    def batch_ack(self: PopAckRequests, one: BatchAck, broker_name: str) -> Appended | None:
        there = self._that_are_there(pop.real_topic(one.topic, one.group, one.retry), one)
        return real(self, one._replace(offsets=there), broker_name)

    patch.setattr(PopAckRequests, "_batch_ack", batch_ack)


ACKED = "what is acknowledged does not come again"
FOUND: dict[Mutation, tuple[str, str]] = {
    late_answers_speak_for_all: ("C10", "late_answer_of_a_proposal"),
    the_same_set_is_agreed_twice: ("C10", "old_word_while_a_proposal_is_under_way"),
    joins_before_its_masters_epoch: ("C4", "joins_after_the_epoch_began"),
    strangers_count_as_nodes: ("inSyncReplicas", "stranger_is_no_node"),
    strangers_displace_replicas: ("C10", "stranger_in_the_place_of_a_replica"),
    unknown_says_whoever_was_leader: ("C7", "unknown_to_a_deposed_controller"),
    an_epoch_without_a_byte_is_held: ("C6", "elected_again_with_a_live_stream"),
    what_a_cut_overtook_was_not_issued: ("no member breaks", "flush_asked_for_before_a_cut"),
    a_cut_leaves_the_last_checkpoint: ("no member breaks", "stale_tail_behind_a_cut"),
    groups_stay_ahead_when_elected_again: ("C11", "offsets_of_groups_when_elected_again"),
    commits_are_not_doubted: ("C13", "controller_restarted_while_nothing_happens"),
    acks_of_what_is_not_out_are_not_written: (ACKED, "acknowledged_at_a_deposed_master"),
    acks_beyond_the_end_are_left_out: (ACKED, "acknowledged_at_a_deposed_master"),
}
"""What is broken first, and in which scenario."""


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    is_found(mutation, *FOUND[mutation])
