"""Pulls of what is not in memory: they wait until the reader thread has fetched it, and are then looked at again, once.

Without this one consumer that reads an old log would hold up everybody: a mapped page that is not there stops the
whole process until the disk has brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perseid.base.errors import RequestRefused
from perseid.base.machine import ConnId, Feed, Fetch
from perseid.broker.consume.cold_reads import ColdReads
from perseid.broker.kernel.request import Connection, Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.segments import Part
from perseid.wire.codes import ResponseCode

MAX_FETCHING = 4096
"""Pulls that wait for the disk at once; the next one is refused with 2."""


@dataclass(slots=True)
class Fetched:
    """What a pull waited for is in memory, or (`failed`) can't be read."""

    request: Request
    failed: bool = False


class Fetches:
    """The pulls of one broker that wait for the disk."""

    def __init__(self, turn: Turn, settings: Settings, connections: Mapping[ConnId, Connection]) -> None:
        self._turn = turn
        self._settings = settings
        self._connections = connections
        self.count = 0
        self.cold = ColdReads()

    def wait(self, request: Request, parts: list[Part]) -> None:
        """Let a pull wait for parts of files. RequestRefused (2): too many wait, or its group has read too much."""
        if self.count >= MAX_FETCHING:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{self.count} pulls wait for the disk; try again later"
            )
        size = sum(length for _, _, length in parts)
        self.cold.admit(self._settings.current, request.header.consumer_group, size, self._turn.now)
        self.count += 1
        request.command.keep()
        self._turn.emit(Fetch(parts, [Feed(Fetched(request))], [Feed(Fetched(request, failed=True))]))

    def fetched(self, event: Fetched, again: Callable[[Request], None]) -> None:
        """A pull need not wait any longer: look at it `again`; an error, when the disk can't read what it wants."""
        self.count -= 1
        assert self.count >= 0, "pulls that wait for the disk are counted"
        request = event.request
        request.may_fetch = False
        if self._connections.get(request.conn.id) is not request.conn:
            return
        if event.failed:
            why = "the disk can't read these messages"
            self._turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark=why))
        else:
            again(request)
