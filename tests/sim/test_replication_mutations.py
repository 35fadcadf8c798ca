"""Defects planted in the replication: each is found within so many seeds with slaves.

The numbers are those of the register of real defects that they are like.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perseid.broker.replicas import Replicas
from perseid.replication.classic.master import Follower, Master
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.classic.slave import Slave
from perseid.replication.sender import EVERYTHING
from perseid.sim.run import run
from perseid.store.flushing import Flusher
from perseid.store.replica import Replica

FIRST = 700
SLAVES = 3
Mutation = Callable[[pytest.MonkeyPatch], None]


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
    patch.setattr(Replicas, "check", lambda self, code: None)


def history_taken_for_granted(patch: pytest.MonkeyPatch) -> None:
    """A slave goes on where it was, whatever its master has there."""
    patch.setattr(Replicas, "_prove", lambda self, now: self.slave.proved(now))


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
    patch.setattr(Replicas, "replicated", lambda self: EVERYTHING)


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


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    ("mutation", "first", "within"),
    [
        (reports_trusted, FIRST, 40),
        (headers_must_come_whole, FIRST, 10),
        (connections_counted, 1_015, 10),
        (slaves_take_messages, FIRST, 10),
        (history_taken_for_granted, FIRST, 20),
        (reported_before_durable, FIRST, 20),
        (sent_before_durable, FIRST, 20),
        (acknowledged_without_slaves, FIRST, 10),
        (partial_records_written, 760, 20),
        (flush_cursor_kept, FIRST, 20),
    ],
)
def test_a_planted_defect_is_found(
    mutation: Mutation, first: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first`: where the search begins, for a defect that few seeds find."""
    play = partial(run, slaves=SLAVES, transactions=False, timed=False)
    mutation(monkeypatch)
    for seed in range(first, first + within):
        result = play(seed)
        if result.failure:
            monkeypatch.undo()
            assert not play(seed).failure, f"seed {seed} fails without it, too"
            promise = result.failure.splitlines()[0]
            print(f"{mutation.__name__}: found by seed {seed}, from {first} on: {promise}")
            return
    raise AssertionError(f"{mutation.__name__} was not found in {within} seeds: {mutation.__doc__}")
