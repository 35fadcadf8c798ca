"""Defects planted in the log of a broker under controllers, in its stream, and in the modes that few sets are in: each
breaks the promise that it should (see `test_ha_mutations`)."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.base.machine import Effect, Feed
from perseid.broker.replication.awaited_nodes import SyncStateSetNodes
from perseid.replication.auto_switch import master as masters
from perseid.replication.auto_switch.in_sync import InSync
from perseid.replication.auto_switch.master import EVERYTHING, Follower, Master
from perseid.replication.auto_switch.node import AutoSwitchReplication, Led
from perseid.replication.auto_switch.slave import Slave
from perseid.store.flushing import Flusher
from perseid.store.results import CheckpointSaved
from perseid.store.segments import Segments
from perseid.wire.ha_auto import STATE_BYTES, SlaveHandshake, decode_slave_handshake

from .planted import Mutation
from .test_ha_mutations import is_found, no_self_checks

# ---- what is durable, and what is cut ----


def shown_before_it_is_flushed(patch: pytest.MonkeyPatch) -> None:
    """C5, #8239: a master without in-sync slaves shows readers messages that a power cut takes back."""

    def confirm(self: AutoSwitchReplication) -> None:
        assert self.master is not None
        end = self._store.log.end
        self._store.flusher.confirm(min(end, self.master.on_all()) if self.config.all_ack_in_sync_state_set else end)

    patch.setattr(AutoSwitchReplication, "confirm", confirm)


def an_old_checkpoint_counts(patch: pytest.MonkeyPatch) -> None:
    """B13: a checkpoint that was being saved when the log was truncated counts as the last one."""
    real = Flusher.handle

    def handle(self: Flusher, event: Any) -> Any:
        out = real(self, event)
        if isinstance(event, CheckpointSaved):
            self.saved_replay_from = event.replay_from
        return out

    patch.setattr(Flusher, "handle", handle)


def cut_without_zeros(patch: pytest.MonkeyPatch) -> None:
    """B13, #10666: truncated records stay in the files, after the end."""
    patch.setattr(Segments, "zero_from", lambda self, offset: 0)


# ---- who is in sync ----


def stuck_for_ever(patch: pytest.MonkeyPatch) -> None:
    """C13: a replica that died during the proposal to add it is waited for until it comes back."""
    patch.setattr(InSync, "stuck", False)


def nobody_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """C13: a replica joins only if it has every byte at one instant."""
    patch.setattr(InSync, "near", lambda self, replica, now: None)


def the_mark_moves_on(patch: pytest.MonkeyPatch) -> None:
    """C13: the offset that a replica must reach to catch up rises with all data sent to it."""
    real = Master._sent

    def sent(self: Master, follower: Follower, first: int, now: int) -> None:
        real(self, follower, first, now)
        follower.mark = self._log.end, now

    patch.setattr(Master, "_sent", sent)


# ---- the same master again ----


def offsets_are_rebuilt(patch: pytest.MonkeyPatch) -> None:
    """B7, #6344: a re-elected master takes a queue's confirmed end for its end."""
    no_self_checks(patch)
    real = AutoSwitchReplication.lead_on

    def lead_on(self: AutoSwitchReplication, epoch: int) -> list[Effect]:
        for queue in self._store.queues.table.values():
            if queue.shown < queue.end:
                queue.cut(queue.shown)
        return real(self, epoch)

    patch.setattr(AutoSwitchReplication, "lead_on", lead_on)


def no_epoch_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """B11, #9689: a re-elected master goes on in its former epoch."""

    def lead_on(self: AutoSwitchReplication, epoch: int) -> list[Effect]:
        self.epoch = epoch
        return [Feed(Led(epoch))]

    patch.setattr(AutoSwitchReplication, "lead_on", lead_on)


# ---- frames ----


def twelve_bytes_are_a_handshake(patch: pytest.MonkeyPatch) -> None:
    """B15, #6307: a handshake is taken for complete when twelve bytes of it are there."""

    def decode(data: Any, at: int = 0) -> Any:
        return decode_slave_handshake(bytes(data[at : at + 16]).ljust(16, b"\0"))

    patch.setattr(masters, "SLAVE_HANDSHAKE_BYTES", 12)
    patch.setattr(masters, "decode_slave_handshake", decode)


def half_a_head_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """B16, #5651: a packet whose header arrives in two pieces is lost."""
    real = Slave._take

    def take(self: Slave, view: memoryview) -> None:
        real(self, view)
        if len(self._head) >= STATE_BYTES:
            self._head = bytearray()

    patch.setattr(Slave, "_take", take)


# ---- modes ----


def learners_come_in(patch: pytest.MonkeyPatch) -> None:
    """asyncLearner: the flag in a handshake is ignored."""
    real = Master._greet

    def greet(self: Master, follower: Follower, said: SlaveHandshake) -> list[Effect]:
        effects = real(self, follower, said)
        follower.learner = False
        return effects

    patch.setattr(Master, "_greet", greet)


def one_node_less(patch: pytest.MonkeyPatch) -> None:
    """inSyncReplicas: the master is counted twice."""

    def on_nodes(self: Master, nodes: int) -> int:
        return real(self, nodes - 1) if nodes > 2 else EVERYTHING

    real = Master.on_nodes
    patch.setattr(Master, "on_nodes", on_nodes)


def however_few_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    """minInSyncReplicas: messages are accepted with any number in sync."""
    patch.setattr(SyncStateSetNodes, "too_few", "")


FOUND: dict[Mutation, tuple[str, str]] = {
    shown_before_it_is_flushed: ("C5", "reader_of_what_is_not_flushed"),
    an_old_checkpoint_counts: ("no member breaks", "seeds"),
    cut_without_zeros: ("C13", "stale_tail_behind_a_cut"),
    stuck_for_ever: ("the scenario goes on", "joiner_dies_with_its_proposal"),
    nobody_is_awaited: ("C13", "comes_back_under_steady_load"),
    the_mark_moves_on: ("C13", "comes_back_under_steady_load"),
    offsets_are_rebuilt: ("C11", "elected_again_with_messages_under_way"),
    no_epoch_of_its_own: ("C9", "elected_again_with_messages_under_way"),
    twelve_bytes_are_a_handshake: ("C13", "seeds"),
    half_a_head_is_forgotten: ("C13", "frames_in_single_bytes"),
    learners_come_in: ("learners stay out", "seeds"),
    one_node_less: ("inSyncReplicas", "seeds"),
    however_few_are_in_sync: ("minInSyncReplicas", "seeds"),
}
"""What is broken first, and whether by seeds or in which scenario."""


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    is_found(mutation, *FOUND[mutation])
