"""The connections of the HA port in a turn of the broker: what the stream asks for becomes effects of that turn."""

from __future__ import annotations

from perseid.base.machine import Closed, ConnectFailed, ConnId, Frames, Millis, Opened
from perseid.broker.kernel.turn import Turn
from perseid.replication.auto_switch.node import AutoSwitchReplication, CutFor, TrimmedTo
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.receiver import LISTENER
from perseid.replication.sender import FetchedFor


class HaStream:
    """Those of one broker."""

    def __init__(self, turn: Turn, replication: ClassicReplication | AutoSwitchReplication) -> None:
        self._turn = turn
        self._replication = replication

    def takes(self, event: Opened) -> bool:
        """Is this one of them?"""
        return event.listener == LISTENER

    def owns(self, conn: ConnId) -> bool:
        """The same of one that is open."""
        return self._replication.owns(conn)

    def opened(self, event: Opened) -> None:
        self._turn.emit_all(self._replication.opened(event, self._turn.now))

    def received(self, event: Frames) -> None:
        self._turn.emit_all(self._replication.received(event, self._turn.now))

    def closed(self, event: Closed) -> None:
        self._turn.emit_all(self._replication.closed(event, self._turn.now))

    def connect_failed(self, event: ConnectFailed) -> None:
        self._turn.emit_all(self._replication.connect_failed(event, self._turn.now))

    def fed(self, event: FetchedFor | CutFor | TrimmedTo) -> None:
        """Something that the stream asked for has come to pass."""
        self._turn.emit_all(self._replication.fed(event, self._turn.now))

    def settle(self) -> None:
        """At the end of a turn."""
        self._turn.emit_all(self._replication.settle(self._turn.now))

    def tick(self, now: Millis) -> None:
        self._turn.emit_all(self._replication.tick(now))
