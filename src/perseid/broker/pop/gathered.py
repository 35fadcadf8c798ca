"""Acknowledgements of one checkpoint that share a turn, and a record of the revive log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perseid.base.machine import ConnId
from perseid.broker.kernel.request import Request
from perseid.wire.pop import Ack


class Run(NamedTuple):
    """Acknowledgements of one connection, one behind the other, as the compiled core read them."""

    conn: ConnId
    offsets: Sequence[int]
    """Each once, in the order in which they came."""
    requests: int
    """How many."""
    answers: bytes
    """The frames that say yes."""


class Gathered:
    """What a turn acknowledges of one checkpoint."""

    __slots__ = ("_first", "_offsets", "count", "waiting")

    def __init__(self, first: Ack) -> None:
        """`first`: of the first of the messages; the others have the same checkpoint."""
        self._first = first
        self._offsets: dict[int, None] = {}
        self.count = 0
        """The requests, of which several may name the same message."""
        self.waiting: list[Request | Run] = []
        """What is answered when the record was written."""

    def add(self, request: Request, offsets: Iterable[int]) -> None:
        """One request acknowledges these."""
        self._add(offsets, 1)
        self.waiting.append(request)

    def add_run(self, run: Run) -> None:
        """The requests of a run do."""
        self._add(run.offsets, run.requests)
        self.waiting.append(run)

    def _add(self, offsets: Iterable[int], count: int) -> None:
        self._offsets.update(dict.fromkeys(offsets))
        self.count += count

    @property
    def joined(self) -> Ack:
        """All of them in one acknowledgement."""
        if self.count == 1:
            return self._first
        return self._first._replace(offsets=tuple(self._offsets), batch=True)
