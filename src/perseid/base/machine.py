"""The one idea: nodes are plain objects; drivers bring them time, bytes and durability.

A *node* (name server, broker) is a `Machine`. It never sees a clock, a socket, a thread or an event
loop. A driver feeds it events and carries out the effects that it answers with; `perseid.net` is the
driver of the real world, `perseid.sim` the one of virtual time. Both run the very same objects.

The duties of a driver:

1. The first event is `Start`. Events of one node are handled one at a time; `now` never goes back while the
   node lives. It is milliseconds since the Unix epoch, anchored at the start, advanced by a monotonic clock.
2. When `now` reaches `next_deadline()`, the driver sends `Tick()`.
3. Effects are carried out in the order in which they were returned. Writes to one connection arrive in
   order or not at all.
4. `Flush` and `SaveState` become durable in the order in which they were returned, and what stands in
   their `then` is carried out only after they are durable. So a vote, an acknowledgement or a reply
   that must follow an fsync is put in `then`, and can't be misordered by anyone.
5. A `Flush` or `SaveState` that fails is never retried and its `then` is never carried out: the driver
   sends `DiskFailed`, and later flushes may fail too (an fsync that failed once has lost its pages).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

Millis: TypeAlias = int
"""Milliseconds since the Unix epoch."""

ConnId: TypeAlias = int
"""A connection of this node, never used twice while the node lives."""

Buffer: TypeAlias = bytes | bytearray | memoryview


# ---- events: what happened ----


@dataclass(slots=True)
class Start:
    """The first event of a node's life: load what is on disk, register, begin."""


@dataclass(slots=True)
class Shutdown:
    """End cleanly: make everything durable, say good-bye to peers, then answer `Stop("")`."""


@dataclass(slots=True)
class Opened:
    """A connection is ready, accepted on `listener` (its name, as the node's driver was told) or dialled.

    `dialled` is the address that a `Connect` asked for, `""` for an accepted connection. `peer` and
    `local` are `host:port` as the socket knows them. `certificate` is the subject of the peer's certificate, when TLS
    has verified one. Where a listener takes TLS, an accepted connection is ready when its first bytes, or its
    handshake, say what the peer speaks.
    """

    conn: ConnId
    peer: str
    local: str
    listener: str = ""
    dialled: str = ""
    certificate: str = ""


@dataclass(slots=True)
class ConnectFailed:
    """A `Connect` came to nothing."""

    address: str
    reason: str


class Frames(msgspec.Struct):
    """One or more complete frames (and nothing else) that one read of a connection brought. (Each read makes one: a
    struct takes a third of the time of a dataclass.)

    `data` is valid only during the call: who keeps some of it copies it.
    """

    conn: ConnId
    data: Buffer


@dataclass(slots=True)
class Reads:
    """What reads of several connections brought at the same time, in the order of their arrival: together they cost
    one turn. A node refuses the bad frames in it by itself."""

    frames: list[Frames]


@dataclass(slots=True)
class Closed:
    """A connection is gone, whoever ended it. The node hears it once for each connection that opened."""

    conn: ConnId
    reason: str


@dataclass(slots=True)
class Tick:
    """The deadline that `next_deadline` named has come."""


@dataclass(slots=True)
class DiskFailed:
    """A `Flush` or `SaveState` failed: what it held may be lost at a power cut."""

    path: str
    reason: str


@dataclass(slots=True)
class Resolved:
    """What a `Resolve` found: name → IP addresses, none for a name that nobody could resolve."""

    addresses: Mapping[str, Sequence[str]]


Event: TypeAlias = Any
"""One of the above, or an event of the node's own that came back from a `Feed`."""


# ---- effects: what to do ----


class Syncable(Protocol):
    """What a `Flush` can make durable: a `perseid.disk.port.File`."""

    @property
    def path(self) -> str: ...

    def sync(self) -> None: ...


class Write(msgspec.Struct):
    """Send `data` on a connection; dropped in silence when the connection is gone."""

    conn: ConnId
    data: Buffer | Sequence[Buffer]


@dataclass(slots=True)
class Close:
    """Close a connection after what was written to it has left."""

    conn: ConnId
    reason: str


@dataclass(slots=True)
class Connect:
    """Dial `address` (`host:port`): answered by `Opened(dialled=address)` or `ConnectFailed`.

    `listener` names the kind of connection in `Opened`. `complete` says how many of the bytes that came are whole
    frames (`len`: all, it is a stream); None: what the driver's listeners have.
    """

    address: str
    listener: str = ""
    complete: Callable[[Buffer], int] | None = None


@dataclass(slots=True)
class Flush:
    """Make all that was written to `files` so far durable, then carry out `then`."""

    files: Sequence[Syncable]
    then: list[Effect] = field(default_factory=list)


@dataclass(slots=True)
class SaveState:
    """Replace a small file whole: temporary file, fsync, rename, fsync of its folder; then `then`."""

    path: str
    data: bytes
    then: list[Effect] = field(default_factory=list)


class Readable(Protocol):
    """What a `Fetch` can bring into memory: a `perseid.disk.port.File`."""

    @property
    def path(self) -> str: ...

    def fetch(self, offset: int, length: int) -> None: ...


@dataclass(slots=True)
class Fetch:
    """Read parts of files (file, offset, length) from the disk into memory, so that who views them next need not wait;
    then `then`. When one can't be read: `failed`."""

    parts: Sequence[tuple[Readable, int, int]]
    then: list[Effect] = field(default_factory=list)
    failed: list[Effect] = field(default_factory=list)


@dataclass(slots=True)
class Feed:
    """Give `event` back to this node; most useful in a `then`."""

    event: Event


@dataclass(slots=True)
class Resolve:
    """Look up the IP addresses of host names: answered by one `Resolved`, perhaps after many seconds. What can't be
    looked up now has no addresses in it."""

    names: Sequence[str]


@dataclass(slots=True)
class Note:
    """A line for the log: `level` is debug, info, warning or error."""

    level: str
    text: str


@dataclass(slots=True)
class Stop:
    """The node has ended: cleanly after a `Shutdown` (`reason` is empty), or because an invariant broke or
    the disk failed; then the process ends with `reason` and a non-zero code."""

    reason: str = ""


Effect: TypeAlias = Write | Close | Connect | Flush | SaveState | Fetch | Feed | Resolve | Note | Stop


class Machine(Protocol):
    """A node, or a part of one."""

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """Take one event in and say what follows from it."""

    def next_deadline(self) -> Millis | None:
        """When to send the next `Tick`; None: no need."""

    def validate(self) -> None:
        """Check the invariants of the whole state; AssertionError when one is broken."""
