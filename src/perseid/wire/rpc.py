"""Requests that a node makes of others, without I/O: what is pending, what has to be dialled, what timed out.

A call ends exactly once: `on_reply` gets the response, or a `Failure` (no connection, connection lost,
no answer in time). What it returns is carried out like any other effects. One connection per address is
dialled when the first call needs it and kept; after a failed dial the next one waits, twice as long each
time up to `MAX_BACKOFF_MS`, and calls wait for it as long as their own timeout allows.

The node passes on the events that concern connections and time (`handle`), and every response that it
finds in received frames (`answered`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import (
    Buffer,
    Close,
    Closed,
    Connect,
    ConnectFailed,
    ConnId,
    Effect,
    Event,
    Millis,
    Opened,
    Write,
)
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.base import Header

MIN_BACKOFF_MS = 100
MAX_BACKOFF_MS = 5_000
MAX_WAITING = 1_024
"""Requests that wait for one connection to open; the next fails at once."""

MAX_PENDING = 65_535
"""Requests without an answer on all connections; the next fails at once."""

NO_ANSWER = "no answer in time"

_OPAQUE_MASK = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no response."""

    reason: str


Fields: TypeAlias = Header | Mapping[str, str | None] | None
"""A request's header, or its fields by their names."""
Sign: TypeAlias = Callable[[Fields, Buffer], Fields]
"""Gives the fields of a request, with its signature among them."""
OnReply: TypeAlias = Callable[[Command | Failure, Millis], list[Effect]]
"""Takes how a call ended. A response is valid only during the call (`Command.keep`)."""


@dataclass(slots=True)
class _Call:
    frame: bytes
    deadline: Millis
    on_reply: OnReply | None
    conn: ConnId | None = None


@dataclass(slots=True)
class _Peer:
    """A dialled address. `conn` is None until it is open; `dial_at` is None unless a dial is due."""

    address: str
    conn: ConnId | None = None
    dialling: bool = False
    dial_at: Millis | None = None
    backoff_ms: Millis = 0
    not_before: Millis = 0
    waiting: deque[int] = field(default_factory=deque)


class Caller:
    """The calls of one node."""

    def __init__(self, first_opaque: int = 1, *, max_backoff_ms: Millis = MAX_BACKOFF_MS) -> None:
        self._max_backoff_ms = max_backoff_ms
        self.sign: Sign | None = None
        """None: requests are not signed."""
        self._opaque = first_opaque
        self._calls: dict[int, _Call] = {}
        self._peers: dict[str, _Peer] = {}
        self._by_conn: dict[ConnId, _Peer] = {}
        self._redials: dict[str, _Peer] = {}
        """Those whose dial is due some time: few, however many there are."""
        self._deadlines: list[tuple[Millis, int]] = []

    # ---- to call ----

    def call(
        self,
        address: str,
        code: int,
        header: Fields,
        body: Buffer,
        now: Millis,
        timeout_ms: Millis,
        on_reply: OnReply,
    ) -> list[Effect]:
        """Ask `address` (`host:port`), dialling it when needed."""
        return self._submit(address, code, header, body, now, timeout_ms, on_reply)

    def oneway(
        self,
        address: str,
        code: int,
        header: Fields,
        body: Buffer,
        now: Millis,
        timeout_ms: Millis,
    ) -> list[Effect]:
        """Tell `address` without an answer; dropped in silence when it can't be reached in time."""
        return self._submit(address, code, header, body, now, timeout_ms, None)

    def call_on(
        self,
        conn: ConnId,
        code: int,
        header: Fields,
        body: Buffer,
        now: Millis,
        timeout_ms: Millis,
        on_reply: OnReply,
    ) -> list[Effect]:
        """Ask the peer of an open connection, accepted or dialled."""
        if len(self._calls) >= MAX_PENDING:
            return on_reply(Failure(f"{MAX_PENDING} requests are pending already"), now)
        opaque = self._next_opaque()
        frame = encode_request(code, opaque, header, body)
        self._remember(opaque, _Call(b"", now + timeout_ms, on_reply, conn))
        return [Write(conn, frame)]

    def _submit(
        self,
        address: str,
        code: int,
        header: Fields,
        body: Buffer,
        now: Millis,
        timeout_ms: Millis,
        on_reply: OnReply | None,
    ) -> list[Effect]:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(address)
        if len(peer.waiting) >= MAX_WAITING or len(self._calls) >= MAX_PENDING:
            return on_reply(Failure("too many requests are pending already"), now) if on_reply else []
        opaque = self._next_opaque()
        if self.sign is not None:
            header = self.sign(header, body)
        frame = encode_request(code, opaque, header, body, oneway=on_reply is None)
        if peer.conn is not None and on_reply is None:
            return [Write(peer.conn, frame)]
        self._remember(opaque, _Call(frame, now + timeout_ms, on_reply, peer.conn))
        if peer.conn is not None:
            return [Write(peer.conn, frame)]
        peer.waiting.append(opaque)
        return self._dial(peer, now)

    def _remember(self, opaque: int, call: _Call) -> None:
        self._calls[opaque] = call
        heappush(self._deadlines, (call.deadline, opaque))

    def _next_opaque(self) -> int:
        while True:
            opaque = self._opaque
            self._opaque = (opaque + 1) & _OPAQUE_MASK
            if opaque not in self._calls:
                return opaque

    def _dial(self, peer: _Peer, now: Millis) -> list[Effect]:
        if peer.dialling or peer.conn is not None:
            return []
        if now < peer.not_before:
            peer.dial_at = peer.not_before
            self._redials[peer.address] = peer
            return []
        peer.dialling = True
        peer.dial_at = None
        self._redials.pop(peer.address, None)
        return [Connect(peer.address)]

    def drop(self, address: str) -> list[Effect]:
        """Close the connection to `address`, if there is one; what was asked on it fails when it is closed."""
        peer = self._peers.get(address)
        return [Close(peer.conn, "not needed any more")] if peer is not None and peer.conn is not None else []

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._calls)

    # ---- what happened ----

    def owns(self, conn: ConnId) -> bool:
        """Whether this caller dialled the connection."""
        return conn in self._by_conn

    def connected(self, address: str) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.conn is not None

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """Take in Opened, ConnectFailed, Closed or Tick, whatever connection it is about."""
        if isinstance(event, Opened):
            return self.opened(event.conn, event.dialled, now) if event.dialled else []
        if isinstance(event, ConnectFailed):
            return self.connect_failed(event.address, event.reason, now)
        if isinstance(event, Closed):
            return self.closed(event.conn, now, event.reason)
        return self.tick(now)

    def answered(self, conn: ConnId, command: Command, now: Millis) -> list[Effect]:
        """A response came in: the effects of its call; none when nobody waits for it (any more)."""
        call = self._calls.get(command.opaque)
        if call is None or call.conn != conn or call.on_reply is None:
            return []
        del self._calls[command.opaque]
        try:
            return call.on_reply(command, now)
        except RemoteProtocolError as error:
            return [*call.on_reply(Failure(str(error)), now), Close(conn, str(error))]

    def next_deadline(self) -> Millis | None:
        """The next timeout or dial."""
        while self._deadlines and self._deadlines[0][1] not in self._calls:
            heappop(self._deadlines)
        first = self._deadlines[0][0] if self._deadlines else None
        for peer in self._redials.values():
            if peer.dial_at is not None and (first is None or peer.dial_at < first):
                first = peer.dial_at
        return first

    def validate(self) -> None:
        """AssertionError when what is pending and what is connected contradict one another."""
        for conn, peer in self._by_conn.items():
            assert peer.conn == conn and not peer.dialling and not peer.waiting, peer
        for peer in self._peers.values():
            waiting = [opaque for opaque in peer.waiting if opaque in self._calls]
            assert (peer.dial_at is not None) == (peer.address in self._redials), peer
            assert not waiting or peer.dialling or peer.dial_at is not None, peer

    def opened(self, conn: ConnId, address: str, now: Millis) -> list[Effect]:
        """A dialled connection is open: what waited for it leaves."""
        peer = self._peers.get(address)
        if peer is None or not peer.dialling:
            return []
        peer.conn = conn
        peer.dialling = False
        peer.backoff_ms = 0
        self._by_conn[conn] = peer
        effects: list[Effect] = []
        for opaque in peer.waiting:
            call = self._calls.get(opaque)
            if call is not None:
                call.conn = conn
                effects.append(Write(conn, call.frame))
                if call.on_reply is None:
                    del self._calls[opaque]
        peer.waiting.clear()
        return effects

    def connect_failed(self, address: str, reason: str, now: Millis) -> list[Effect]:
        """A dial came to nothing: what waited for it fails."""
        peer = self._peers.get(address)
        if peer is None or not peer.dialling:
            return []
        peer.dialling = False
        peer.backoff_ms = min(self._max_backoff_ms, max(MIN_BACKOFF_MS, 2 * peer.backoff_ms))
        peer.not_before = now + peer.backoff_ms
        failed = list(peer.waiting)
        peer.waiting.clear()
        return self._fail(failed, f"no connection to {address}: {reason}", now)

    def closed(self, conn: ConnId, now: Millis, reason: str = "closed") -> list[Effect]:
        """A connection, dialled or accepted, is gone: what was asked on it fails."""
        peer = self._by_conn.pop(conn, None)
        if peer is not None:
            del self._peers[peer.address]
        lost = [opaque for opaque, call in self._calls.items() if call.conn == conn]
        return self._fail(lost, f"the connection was lost: {reason}", now)

    def tick(self, now: Millis) -> list[Effect]:
        """Time has passed: fail what is overdue, dial what is due."""
        effects: list[Effect] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, opaque = heappop(self._deadlines)
            effects += self._fail([opaque], NO_ANSWER, now)
        for peer in list(self._redials.values()):
            if peer.dial_at is not None and peer.dial_at <= now:
                peer.dial_at = None
                del self._redials[peer.address]
                peer.waiting = deque(opaque for opaque in peer.waiting if opaque in self._calls)
                if peer.waiting:
                    effects += self._dial(peer, now)
        return effects

    def _fail(self, opaques: list[int], reason: str, now: Millis) -> list[Effect]:
        effects: list[Effect] = []
        for opaque in opaques:
            call = self._calls.pop(opaque, None)
            if call is not None and call.on_reply is not None:
                effects += call.on_reply(Failure(reason), now)
        return effects
