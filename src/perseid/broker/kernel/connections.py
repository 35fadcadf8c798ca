"""Who is connected: clients, other brokers, name servers; and which connections belong to replication.

A connection is open from its `Opened` to its `Closed`; what hangs on it (held pulls, members of groups, calls) is told
when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from perseid.base.errors import LocalProtocolError
from perseid.base.machine import Closed, ConnectFailed, ConnId, Millis, Opened
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.request import Connection
from perseid.broker.kernel.turn import Turn
from perseid.store.plain import packed_host
from perseid.wire.host import NOWHERE, host_from
from perseid.wire.rpc import Caller

Gone = Callable[[Connection], None]
"""Is told that a connection is closed."""


def of_dialled(turn: Turn, closed: Callable[[str, Millis], None]) -> Gone:
    """Tell of the address, when a connection that we dialled is closed."""

    def gone(conn: Connection) -> None:
        if conn.dialled:
            closed(conn.dialled, turn.now)

    return gone


class Streams(Protocol):
    """Connections of replication."""

    def takes(self, event: Opened) -> bool:
        """Is this one of them?"""

    def opened(self, event: Opened) -> None:
        """One was opened."""

    def closed(self, event: Closed) -> None:
        """One is gone, or nobody's."""

    def connect_failed(self, event: ConnectFailed) -> None:
        """One that was dialled, perhaps of these, could not be opened."""


class Connections(Mapping[ConnId, Connection]):
    """Those of one broker that carry requests."""

    def __init__(self, turn: Turn, caller: Caller, generation: Generation, streams: Streams) -> None:
        self._turn = turn
        self._caller = caller
        self._generation = generation
        self._streams = streams
        self._open: dict[ConnId, Connection] = {}
        self.get = self._open.get  # type: ignore[method-assign]  # asked for each read
        self._gone: Sequence[Gone] = ()

    def tell(self, gone: Sequence[Gone]) -> None:
        """These hear of closed connections, in their order."""
        self._gone = gone

    def __getitem__(self, conn: ConnId) -> Connection:
        return self._open[conn]

    def __iter__(self) -> Iterator[ConnId]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, event: Opened) -> None:
        """A connection is open."""
        if self._streams.takes(event):
            self._streams.opened(event)
            return
        try:
            born_host = host_from(event.peer)
        except LocalProtocolError:
            born_host = NOWHERE
            self._turn.note("warning", f"connection {event.conn} has a peer without an address: {event.peer!r}")
        self._open[event.conn] = Connection(
            event.conn, event.peer, event.local, event.listener, event.dialled, born_host, packed_host(born_host)
        )
        if event.dialled:
            self._turn.emit_all(self._caller.handle(event, self._turn.now))

    def closed(self, event: Closed) -> None:
        """A connection is gone."""
        conn = self._open.pop(event.conn, None)
        if conn is None:
            self._streams.closed(event)
            return
        self._generation.rise()
        self._turn.emit_all(self._caller.handle(event, self._turn.now))
        for gone in self._gone:
            gone(conn)

    def connect_failed(self, event: ConnectFailed) -> None:
        """A dial came to nothing."""
        self._streams.connect_failed(event)
        self._turn.emit_all(self._caller.handle(event, self._turn.now))
