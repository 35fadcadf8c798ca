"""What clients send: plain sends go the quick way, everything else is dispatched, and streams of replication go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from perseid.base.machine import Buffer, ConnId, Frames
from perseid.broker.kernel.connections import Connections
from perseid.broker.kernel.dispatch import Dispatch
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.request import Connection
from perseid.broker.kernel.turn import Turn
from perseid.wire import command as wire
from perseid.wire.command import Command


class Sends(Protocol):
    """Takes plain sends out of what a connection sent."""

    @property
    def taken(self) -> int:
        """The messages that `answers` will answer."""

    def unusual(self, conn: Connection, data: Buffer) -> Iterable[Command]:
        """Take the plain sends of a read; the other commands come out."""

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""

    def settle(self) -> None:
        """Write what was taken."""


class Quick(Protocol):
    """The quick way as it is now."""

    @property
    def current(self) -> Sends | None:
        """None: no send can be plain."""


class StreamData(Protocol):
    """Connections of replication."""

    def owns(self, conn: ConnId) -> bool:
        """Is this one of them?"""

    def received(self, event: Frames) -> None:
        """Bytes came on one."""


class Intake:
    """The reads of one broker."""

    def __init__(
        self, turn: Turn, dispatch: Dispatch, durability: Durability, connections: Connections, quick: Quick,
        streams: StreamData,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._dispatch = dispatch
        self._durability = durability
        self._connections = connections
        self._quick = quick
        self._streams = streams

    def take(self, reads: Iterable[Frames]) -> None:
        """What one turn brings."""
        running = self._dispatch.serves
        sends = self._quick.current if running else None
        clients: list[tuple[Connection, Buffer]] = []
        ready: list[tuple[ConnId, bytes]] = []
        """Answers to plain sends, before other requests are answered."""
        waiting: list[tuple[ConnId, bytes]] = []
        """The same of those that may not leave yet."""
        count = 0
        for frames in reads:
            conn = self._connections.get(frames.conn)
            if conn is not None:
                clients.append((conn, frames.data))
            elif running and self._streams.owns(frames.conn):
                self._streams.received(frames)  # before sends are gathered: it may end our term
        for conn, data in clients:
            commands = wire.decode_each(data) if sends is None else sends.unusual(conn, data)
            if commands:
                self._turn.write_each(ready)
                ready.clear()
                self._dispatch.take(conn, commands)
            if sends is None:
                continue
            waits = self._durability.waits
            if waits:
                count += sends.taken
            if answers := sends.answers():
                (waiting if waits else ready).append((conn.id, answers))
        self._turn.write_each(ready)
        if sends is not None:
            sends.settle()
            if count:
                self._durability.acknowledge_frames(waiting, count)
