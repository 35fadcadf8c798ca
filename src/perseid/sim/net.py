"""Simulated connections: ordered bytes that are delayed, cut anywhere, stalled, half-open or reset.

Connections, not packets: RocketMQ rides on TCP, so bytes come in order or not at all. Frames are put together
by `wire.frame.complete`, as in the driver of the real world, so a frame may come in pieces of one byte and
several frames may come at once. Streams without frames (`len`) come as they are. Where a run has TLS (`tls`), it stands
between an end's bytes and those on their way, and owners hear of a connection when it is ready; what has to hold of it
then is looked at with each piece (`secured.py`).

A connection is two `End`s. What one end writes arrives at the other after a latency, in order. It waits when
the direction is blocked (a partition) or its reader does not read (`reading`), and comes in one piece
afterwards. An end that is closed takes in nothing any more; its owner hears of it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.net.limits import Limits
from perseid.security.tls import State, Tls
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S, Scheduler, Stream
from perseid.sim.secured import Dress, Link, Secured, is_of_tls
from perseid.wire.frame import complete

SHORTEST_US, LATENCIES_US = 50, 751
"""The latency is the former at least, and one of so many."""
SPIKE_US = (20 * US_PER_MS, 1500 * US_PER_MS)
SPIKE_RATE = 0.002
CUT_RATE = 0.1
"""Of writes that arrive in several pieces on an ordinary connection."""
CONNECT_TIMEOUT_US = 3 * US_PER_S
HANDSHAKE_US = Limits().handshake_ms * US_PER_MS
CUT_HANDSHAKES = 0.5
"""Of handshakes that come so far while they are cut."""
CUT_HEARD_US = (0, 0, 1 * US_PER_S, 15 * US_PER_S)
"""When the other side hears that; the last is after it has given up."""
RECORD_HEAD = 5
"""Bytes of a TLS record before its body; with another length its reader would wait for more, as for a silent peer."""
SECRET_BYTES = 16
"""So many bytes of a write are not in what leaves by chance."""
CHOPPED_BYTES = 48
"""Of a write on a chopped connection, this many bytes arrive one by one."""


Complete = Callable[[Buffer], int]
"""How many of some bytes are whole frames."""


class Peer(Protocol):
    """Who owns an end: a node's driver or a client."""

    name: str
    """The machine; partitions are between machines."""

    def opened(self, end: End, listener: str, dialled: str) -> None: ...

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None:
        """Whole frames; the bytes are spoilt after the call."""

    def closed(self, end: End, reason: str) -> None:
        """The end is closed, by whomever, but not by this peer itself."""


class End:
    """One side of a connection."""

    __slots__ = (
        "address",
        "arrives_us",
        "chopped",
        "complete",
        "dialling",
        "expects",
        "id",
        "incoming",
        "link",
        "listener",
        "open",
        "other",
        "owner",
        "reading",
        "spoil",
        "tls",
        "unready",
        "waiting",
    )

    def __init__(self, number: int, owner: Peer, address: str) -> None:
        self.id = number
        self.owner = owner
        self.address = address
        self.other: End = self
        self.open = True
        self.dialling = ""
        """The address, as long as the connection is not established."""
        self.listener = ""
        self.complete: Complete = complete
        self.reading = True
        self.chopped = False
        self.arrives_us = 0
        """When the last bytes on their way to this end arrive."""
        self.incoming = bytearray()
        self.waiting: list[bytes | Fin] = []
        self.tls: Tls | None = None
        """None: its bytes are plain."""
        self.unready: Callable[[], None] | None = None
        """Tells its owner that it is ready, as long as TLS has not decided."""
        self.link: Link | None = None
        self.expects = bytearray()
        """With TLS: what the other end was given to send, and has not come out yet."""
        self.spoil = False
        """A bit of the next record for this end flips."""

    def __repr__(self) -> str:
        return f"{self.owner.name}#{self.id}"


class Fin:
    """The end of the stream, on its way behind the last bytes."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Network:
    """All connections of a run, and what stands between the machines."""

    def __init__(self, scheduler: Scheduler, count: Callable[[str], None]) -> None:
        self.scheduler = scheduler
        self.random: Stream = scheduler.stream("net")
        self.count = count
        self.listeners: dict[str, tuple[Peer, str]] = {}
        self.streams: dict[str, Complete] = {}
        """Addresses whose connections have other frames than the usual ones."""
        self.ends: dict[int, End] = {}
        self.machines: dict[str, str] = {}
        """IP address → machine."""
        self.names: dict[str, str] = {}
        """Host name → IP address."""
        self.nameless: set[str] = set()
        """Machines that can't resolve names now."""
        self.blocked: set[tuple[str, str]] = set()
        self.silent: set[str] = set()
        """Machines without power: they don't even refuse."""
        self.refusing: set[str] = set()
        """Machines that refuse new connections though they listen (their backlog is full)."""
        self.shut: set[str] = set()
        """Addresses that nobody reaches, whose machines can be reached otherwise: what is cut off is a port."""
        self.delays_us: dict[str, int] = {}
        """Machine → so much longer takes what it sends and gets."""
        self.tls: Secured | None = None
        self.tap: Callable[[End, bytes], None] | None = None
        """Sees all bytes as they are written, before they are on their way."""
        self._numbers = 0
        self._ports = 40_000

    # ---- what drivers and clients ask for ----

    def listen(self, address: str, owner: Peer, listener: str) -> None:
        self.listeners[address] = (owner, listener)

    def dial(
        self, owner: Peer, own_ip: str, address: str, listener: str = "", frames: Complete | None = None, *,
        stranger: Dress | None = None,
    ) -> None:  # fmt: skip
        """Connect: `owner` hears `opened` or `connect_failed`. `stranger`: what it shows where there is TLS, if it is
        none of the run's own."""
        out, back = self._latency(), self._latency()
        dialled, address = address, self._numbered(address)
        target = self.listeners.get(address)
        scheduler = self.scheduler
        name = self._machine(address)
        cut = (owner.name, name) in self.blocked or (name, owner.name) in self.blocked or address in self.shut
        if name in self.silent or cut:
            self.count("connect timeout")
            scheduler.after(CONNECT_TIMEOUT_US, owner.connect_failed, dialled, "timed out")
        elif target is None or name in self.refusing:
            self.count("connect refused")
            scheduler.after(out + back, owner.connect_failed, dialled, "connection refused")
        else:
            self._ports += 1
            near = self._end(owner, f"{own_ip}:{self._ports}")
            far = self._end(target[0], address)
            near.other, far.other = far, near
            near.dialling, near.listener = dialled, listener
            near.complete = frames or complete
            far.complete = self.streams.get(address, complete)
            if self.tls is not None:
                near.tls, far.tls, near.link = self.tls.ends(listener, target[1], name, stranger)
                far.link = near.link
            far.arrives_us = scheduler.now_us + out
            near.arrives_us = far.arrives_us + back
            scheduler.at(far.arrives_us, self._accept, far, target)
            scheduler.at(near.arrives_us, self._established, near, dialled)

    def write(self, end: End, data: bytes) -> None:
        """Send bytes; dropped in silence when the end is closed."""
        if not end.open or not data:
            return
        if self.tap is not None:
            self.tap(end, data)
        if end.tls is None:
            self._put_on_its_way(end, data)
        else:
            self._put_sealed_on_its_way(end, end.tls, data)

    def _put_sealed_on_its_way(self, end: End, tls: Tls, data: bytes) -> None:
        is_open = tls.state is State.OPEN
        try:
            sealed = tls.seal(data)
        except RemoteProtocolError as error:
            self._refuse(end, error)
            return
        if len(data) >= SECRET_BYTES and data in sealed:
            raise Violation("nothing leaves in the clear", f"{len(data)} bytes of {end}")
        if is_open and end.other.open:
            if end.other.spoil:
                sealed = self._spoilt(end.other, sealed)
            elif end.link is not None and end.link.spoilt != end.other.id:
                end.other.expects += data
        self._put_on_its_way(end, sealed)

    def _spoilt(self, end: End, sealed: bytes) -> bytes:
        """What was to come to an end, with a bit that flipped on its way; it has to end the connection there."""
        assert end.link is not None
        end.spoil, end.link.spoilt = False, end.id
        self.count("a bit flipped on its way")
        at = RECORD_HEAD + self.random.below(len(sealed) - RECORD_HEAD)
        length = RECORD_HEAD + int.from_bytes(sealed[3:RECORD_HEAD], "big")
        at = min(at, length - 1)  # of the first record
        arrived_us = max(end.arrives_us, self.scheduler.now_us) + 2 * SPIKE_US[1]
        self.scheduler.after(US_PER_S, self._has_ended, end, arrived_us)
        return sealed[:at] + bytes((sealed[at] ^ 1 << self.random.below(8),)) + sealed[at + 1 :]

    def _has_ended(self, end: End, arrived_us: int) -> None:
        """Violation, if a connection goes on over bytes that were spoilt."""
        if not end.open or end.other is _NOBODY:
            return
        if self.scheduler.now_us >= arrived_us and not end.waiting and end.reading and not self._held(end.other, end):
            raise Violation("a flipped bit ends the connection", f"{end} goes on")
        self.scheduler.after(US_PER_S, self._has_ended, end, max(arrived_us, end.arrives_us + US_PER_S))

    def _put_on_its_way(self, end: End, data: bytes) -> None:
        if not data:
            return
        other = end.other
        random = self.random
        if other.chopped:
            self._send_chopped(other, data)
        elif len(data) > 1 and random.random() < CUT_RATE:
            cuts = sorted(random.randrange(1, len(data)) for _ in range(random.randrange(1, 4)))
            for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
                if stop > start:
                    self._send(other, data[start:stop])
        else:
            self._send(other, data)

    def close(self, end: End, reason: str) -> None:
        """Close from one side: the other hears it after the bytes that are on their way."""
        if end.open:
            if end.tls is not None:
                self._put_on_its_way(end, end.tls.end())
            self._forget(end)
            self._send(end.other, Fin(reason))

    # ---- faults ----

    def reset(self, end: End, reason: str, hears_us: int, other_hears_us: int) -> None:
        """Break a connection: bytes on their way are lost, each side hears it in its own time."""
        for side, delay in ((end, hears_us), (end.other, other_hears_us)):
            if side.open:
                side.incoming.clear()
                side.waiting.clear()
                side.other = _NOBODY
                self.scheduler.after(delay, self._break, side, reason)

    def kill(self, owner: Peer, hears_us: Callable[[], int]) -> None:
        """A process is gone: its ends close unheard, the others hear it after `hears_us()`."""
        for end in list(self.ends.values()):
            if end.owner is owner:
                other = end.other
                self._forget(end)
                if other.open:
                    other.other = _NOBODY
                    other.waiting.clear()
                    self.scheduler.after(hears_us(), self._break, other, "connection reset by peer")
        for address in [a for a, (who, _) in self.listeners.items() if who is owner]:
            del self.listeners[address]

    def block(self, source: str, target: str) -> None:
        """Nothing passes from machine `source` to machine `target` until `heal`."""
        self.blocked.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self.blocked.discard((source, target))
        for end in list(self.ends.values()):
            self._catch_up(end)

    def shut_port(self, address: str) -> None:
        """Nothing passes to or from a listener until `open_port`."""
        self.shut.add(address)

    def open_port(self, address: str) -> None:
        self.shut.discard(address)
        for end in list(self.ends.values()):
            self._catch_up(end)

    def read_again(self, end: End) -> None:
        """A slow reader reads: all that waited comes at once."""
        end.reading = True
        self._catch_up(end)

    # ---- inside ----

    def resolve(self, machine: str, name: str) -> list[str]:
        """What a machine finds out about a host name."""
        return [self.names[name]] if name in self.names and machine not in self.nameless else []

    def _numbered(self, address: str) -> str:
        """`host:port` with the host's IP address."""
        host, _, port = address.rpartition(":")
        return f"{self.names[host]}:{port}" if host in self.names else address

    def _machine(self, address: str) -> str:
        return self.machines.get(address.rpartition(":")[0], address)

    def _latency(self) -> int:
        random = self.random
        if random.random() < SPIKE_RATE:
            self.count("latency spike")
            return random.randint(*SPIKE_US)
        return SHORTEST_US + random.below(LATENCIES_US)

    def _end(self, owner: Peer, address: str) -> End:
        self._numbers += 1
        end = self.ends[self._numbers] = End(self._numbers, owner, address)
        return end

    def _forget(self, end: End) -> None:
        end.open = False
        end.incoming = bytearray()
        end.waiting.clear()
        self.ends.pop(end.id, None)

    def _accept(self, end: End, target: tuple[Peer, str]) -> None:
        if self.listeners.get(end.address) != target:
            self._forget(end)
            other, end.other = end.other, _NOBODY
            other.other = _NOBODY
        elif end.open:
            self._open(end, target[1], "")

    def _established(self, end: End, address: str) -> None:
        if end.other is _NOBODY:
            self._break(end, "connection reset")
        elif end.open:
            self._open(end, end.listener, address)

    def _open(self, end: End, listener: str, dialled: str) -> None:
        """Tell the owner; where there is TLS, once it has decided."""

        def opened() -> None:
            end.dialling = ""
            end.owner.opened(end, listener, dialled)

        if end.tls is None:
            opened()
        else:
            end.unready = opened
            self._put_on_its_way(end, end.tls.outgoing())
            if end.tls.state is State.HANDSHAKE:
                self.scheduler.after(HANDSHAKE_US, self._handshake_late, end)

    def _handshake_late(self, end: End) -> None:
        if end.open and end.unready is not None:
            self._refuse(end, RemoteProtocolError(f"TLS: no end of the handshake after {HANDSHAKE_US} us"))

    def _unseal(self, end: End, tls: Tls, piece: bytes) -> bytes:
        """The plain bytes of what arrived; the owner may hear that the connection is ready."""
        was = tls.state
        try:
            plain = tls.received(piece)
        finally:
            self._put_on_its_way(end, tls.outgoing())
        if tls.state is State.HANDSHAKE:
            if was is State.FIRST:
                self.scheduler.after(HANDSHAKE_US, self._handshake_late, end)
            self._perhaps_cut(end)
        elif end.unready is not None:
            self._is_ready(end, tls)
        if plain and tls.state is not State.CLEAR:
            if end.expects[: len(plain)] != plain:
                raise Violation("what comes out of TLS is what went in", f"{len(plain)} bytes at {end}")
            del end.expects[: len(plain)]
        return plain

    def _is_ready(self, end: End, tls: Tls) -> None:
        assert end.link is not None and end.unready is not None
        self.count("TLS handshake" if tls.state is State.OPEN else "plain bytes where TLS is taken")
        if end.dialling:
            end.link.dialled(end.other.tls)
        else:
            end.link.accepted(tls, end.other.tls)
        if tls.state is State.CLEAR:
            end.tls = None
        opened, end.unready = end.unready, None
        opened()

    def _perhaps_cut(self, end: End) -> None:
        if self.tls is not None and self.tls.cuts and self.random.random() < CUT_HANDSHAKES:
            self.count("TLS handshake cut")
            self.reset(end, "the handshake was cut", 0, self.random.choice(CUT_HEARD_US))

    def _send_chopped(self, other: End, data: bytes) -> None:
        self.count("chopped write")
        start = self.random.randrange(max(1, len(data) - CHOPPED_BYTES))
        stop = min(len(data), start + CHOPPED_BYTES)
        if start:
            self._send(other, data[:start])
        for at in range(start, stop):
            self._send(other, data[at : at + 1])
        if stop < len(data):
            self._send(other, data[stop:])

    def _send(self, other: End, piece: bytes | Fin) -> None:
        if other.open:
            arrives_us = self.scheduler.now_us + self._latency()
            if self.delays_us:
                arrives_us += sum(self.delays_us.get(end.owner.name, 0) for end in (other, other.other))
            if arrives_us > other.arrives_us:
                other.arrives_us = arrives_us
            self.scheduler.at(other.arrives_us, self._arrive, other, other.other, piece)

    def _arrive(self, end: End, source: End, piece: bytes | Fin) -> None:
        if not end.open or end.other is not source:
            return
        if end.waiting or not end.reading or ((self.blocked or self.shut) and self._held(source, end)):
            end.waiting.append(piece)
        else:
            self._take(end, piece)

    def _held(self, source: End, end: End) -> bool:
        """Does a partition stand between the two?"""
        if self.shut and (source.address in self.shut or end.address in self.shut):
            return True
        return (source.owner.name, end.owner.name) in self.blocked

    def _catch_up(self, end: End) -> None:
        if not end.waiting or not end.reading or self._held(end.other, end):
            return
        waiting, end.waiting = end.waiting, []
        data = b"".join(piece for piece in waiting if not isinstance(piece, Fin))
        if data:
            self._take(end, data)
        if isinstance(waiting[-1], Fin):
            self._take(end, waiting[-1])

    def _take(self, end: End, piece: bytes | Fin) -> None:
        if not end.open:
            return
        if isinstance(piece, Fin):
            self._break(end, piece.reason)
            return
        try:
            plain = piece if end.tls is None else self._unseal(end, end.tls, piece)
            if not plain or not end.open:
                return
            self.scheduler.trace.data(plain)
            incoming = end.incoming
            incoming += plain
            stop = end.complete(incoming)
        except RemoteProtocolError as error:
            self._refuse(end, error)
            return
        if not stop:
            return
        if stop == len(incoming):
            frames, end.incoming = incoming, bytearray()
        else:
            frames = incoming[:stop]
            del incoming[:stop]
        end.owner.received(end, frames)

    def _refuse(self, end: End, error: RemoteProtocolError) -> None:
        """What came is none that a connection goes on with."""
        why = str(error)
        if end.link is not None and self.tls is not None and is_of_tls(error):
            end.link.ended(why)
            self.tls.met(why)
            if end.link.spoilt:
                self.count("spoilt bytes refused")
            self.scheduler.note(end.owner.name, f"#{end.id} {why}")
        else:
            self.count("malformed frame refused")
            self.scheduler.note(end.owner.name, f"#{end.id} malformed frame: {why}")
        heard = end.unready is None
        self.close(end, why)
        if end.dialling:
            end.owner.connect_failed(end.dialling, why)
        elif heard:
            end.owner.closed(end, why)

    def _break(self, end: End, reason: str) -> None:
        if end.open:
            self._forget(end)
            if end.dialling:
                end.owner.connect_failed(end.dialling, reason)
            else:
                end.owner.closed(end, reason)


class _Nobody:
    """The owner of the far end of a broken connection."""

    name = "nobody"

    def opened(self, end: End, listener: str, dialled: str) -> None: ...

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None: ...

    def closed(self, end: End, reason: str) -> None: ...


_NOBODY = End(0, _Nobody(), "")
_NOBODY.open = False
