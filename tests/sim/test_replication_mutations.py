"""Defects planted in the replication: each is found within so many seeds with slaves.

The numbers are those of the register of real defects that they are like.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perseid.broker.replication.awaited_nodes import CountedNodes
from perseid.broker.replication.modes.classic import Classic
from perseid.broker.replication.replicas import Replicas
from perseid.replication.classic.master import Follower, Master
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.classic.slave import Slave
from perseid.replication.sender import EVERYTHING
from perseid.sim.models.broker.run import run
from perseid.sim.options import Options
from perseid.store.flushing import Flusher
from perseid.store.replica import Replica

from .planted import Mutation, seek

FIRST = 700
SLAVES = 3


def reports_trusted(patch: pytest.MonkeyPatch) -> None:
    """B14a: a report beyond what was sent counts."""

    def advance(self: Master, follower: Follower, report: int, now: int) -> list[Any]:
        follower.acknowledged = report
        return []

    patch.setattr(Master, "_advance", advance)


def headers_must_come_whole(patch: pytest.MonkeyPatch) -> None:
    """B16: a header that is cut is read from its second part on."""
    real = Slave._take

    def take(self: Slave, view: memoryview) -> None:
        self._head = bytearray()
        real(self, view)

    patch.setattr(Slave, "_take", take)


def connections_counted(patch: pytest.MonkeyPatch) -> None:
    """B17: each connection counts as a slave of its own."""

    def replicated(self: Master, nodes: int) -> int:
        acknowledged = sorted((f.acknowledged for f in self.followers.values()), reverse=True)
        return EVERYTHING if nodes <= 1 else acknowledged[nodes - 2] if len(acknowledged) >= nodes - 1 else -1

    patch.setattr(Master, "replicated", replicated)


def slaves_take_messages(patch: pytest.MonkeyPatch) -> None:
    """B38: sends are taken whatever the role."""
    patch.setattr(Replicas, "_check", lambda self, route: None)


def history_taken_for_granted(patch: pytest.MonkeyPatch) -> None:
    """A slave goes on where it was, whatever its master has there."""
    patch.setattr(Classic, "_prove", lambda self, now: self.ha.slave.proved(now))


def reported_before_durable(patch: pytest.MonkeyPatch) -> None:
    """With haReportDurableOnly all is reported that was written."""
    real = Slave.received

    def received(self: Slave, data: Any, now: int) -> list[Any]:
        effects = real(self, data, now)
        return effects + self.report_new(self._replica.end, now)

    patch.setattr(Slave, "received", received)


def sent_before_durable(patch: pytest.MonkeyPatch) -> None:
    """With SYNC_FLUSH slaves are sent what may yet be lost."""
    patch.setattr(ClassicReplication, "_sendable", lambda self: self._store.log.end)


def acknowledged_without_slaves(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for slaves."""
    patch.setattr(CountedNodes, "replicated", lambda self: EVERYTHING)


def partial_records_written(patch: pytest.MonkeyPatch) -> None:
    """What is left of a record when its connection ends is taken for the beginning of the next bytes."""
    patch.setattr(Replica, "forget_partial", lambda self: None)


def flush_cursor_kept(patch: pytest.MonkeyPatch) -> None:
    """B34: after a truncation the log counts as flushed up to its file's end."""
    real = Flusher.start

    def start(self: Flusher, now: int) -> None:
        real(self, now)
        if self._log.segments.starts:
            self._log.issued = max(self._log.issued, self._log.segments.end)

    patch.setattr(Flusher, "start", start)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    "mutation",
    [
        reports_trusted,
        headers_must_come_whole,
        connections_counted,
        slaves_take_messages,
        history_taken_for_granted,
        reported_before_durable,
        sent_before_durable,
        acknowledged_without_slaves,
        partial_records_written,
        flush_cursor_kept,
    ],
)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    options = Options(slaves=SLAVES, transactions=False, timed=False, features=())
    seek(mutation, partial(run, options=options), first=FIRST)
