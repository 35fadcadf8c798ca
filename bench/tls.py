"""What TLS adds to a read and a write of a connection, and how much of that OpenSSL takes itself.

    .venv/bin/python bench/tls.py            # --cold: as on a machine whose caches others fill meanwhile

One process and no sockets, so that a tenth of a microsecond shows on a busy machine: a `Connection` as the driver has
it is given what a client sealed, hands it up, and writes an answer; the same without TLS; and a bare `ssl.SSLObject`
with its two memory buffers, below which no Python program gets. The lowest of many runs.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from perseid.base.machine import Frames
from perseid.core import complete
from perseid.net.connection import Connection
from perseid.net.driver import Driver
from perseid.net.limits import Limits
from perseid.security.certificates import Wanted, client_context, context_of, self_made
from perseid.security.tls import READ_BYTES, ClientSide, Mode, ServerSide, State, Tls

RUN = 50
"""Turns that are timed together."""
OTHERS_BYTES = 8 << 20
"""Copied before each turn, where caches are to be cold."""


class Shape(NamedTuple):
    """What one turn of a connection moves: requests of so many bytes, and answers."""

    name: str
    asked: int
    answered: int
    messages: int


SHAPES = (
    Shape("closed: a send of 128 B, its answer", 560, 190, 1),
    Shape("pipelined: 64 sends of 128 B, 64 answers", 64 * 560, 64 * 190, 64),
    Shape("pull: a request, 32 messages of 128 B", 480, 32 * 290, 32),
)


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Turns:
    """As much of a driver as a connection asks for."""

    def __init__(self) -> None:
        self.limits, self.handshakes, self.partial_bytes = Limits(), 0, 0
        self.read_last: Frames | None = None

    def admit(self, connection: Connection) -> bool:
        return True

    def now(self) -> int:
        return 1

    def shake_soon(self, connection: Connection) -> str:
        self.handshakes += 1
        return ""

    def take(self, event: object) -> None: ...

    def read(self, frames: Frames) -> None:
        self.read_last = frames

    def refuse(self, connection: Connection, why: str, *, gently: bool = False) -> None:
        raise AssertionError(why)


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a client."""
    pair = self_made(Wanted("bench", datetime.fromtimestamp(time.time(), UTC), ("localhost",)))
    return context_of(pair), client_context(verify=False)


class Pair:
    """A connection of ours, and who is at its other end."""

    def __init__(self, sides: tuple[ssl.SSLContext, ssl.SSLContext] | None) -> None:
        self.driver, self.transport = Turns(), Transport()
        tls = None if sides is None else Tls.accepted(ServerSide(Mode.PERMISSIVE, lambda: sides[0]))
        self.connection = Connection(cast(Driver, self.driver), 1, complete, "", "", tls)
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))
        self.far = None if sides is None else Tls.dialled(ClientSide(lambda: sides[1]), "localhost:1")
        while self.far is not None and not (self.connection.ready and self.far.state is State.OPEN):
            if leaving := self.far.outgoing():
                self.connection.data_received(leaving)
                self.connection.shake()
            self.hear()

    def hear(self) -> None:
        """The other end takes what was written."""
        if self.far is not None:
            for data in self.transport.written:
                self.far.received(data)
        self.transport.written.clear()

    def asked(self, request: bytes) -> bytes:
        """A request as it comes."""
        return request if self.far is None else self.far.seal(request)

    def turn(self, data: bytes, answer: bytes) -> None:
        self.connection.data_received(data)
        self.connection.write(answer)
        self.connection.flush()


class Bare:
    """OpenSSL as Python has it."""

    def __init__(self, sides: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = sides[0].wrap_bio(self.into, self.out, server_side=True)
        self.far = Tls.dialled(ClientSide(lambda: sides[1]), "localhost:1")
        self.left, self.written = 0, list[bytes]()
        while True:
            self.into.write(self.far.outgoing())
            try:
                self.engine.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.far.received(self.out.read())
        self.far.received(self.out.read())

    def asked(self, request: bytes) -> bytes:
        """A request as it comes."""
        self.left = len(request)
        return self.far.seal(request)

    def turn(self, data: bytes, answer: bytes) -> None:
        left, read = self.left, self.engine.read
        self.into.write(data)
        while left:
            left -= len(read(READ_BYTES))
        self.engine.write(answer)
        self.written.append(self.out.read())

    def hear(self) -> None:
        """The other end takes what was written."""
        for data in self.written:
            self.far.received(data)
        self.written.clear()


def lowest(one: Pair | Bare, shape: Shape, runs: int) -> float:
    """Microseconds of a turn, one right after the other."""
    request, answer = frame(shape.asked), bytes(shape.answered)

    def run() -> float:
        data = [one.asked(request) for _ in range(RUN)]
        began = time.perf_counter()
        for each in data:
            one.turn(each, answer)
        took = time.perf_counter() - began
        one.hear()
        return took / RUN

    return min(run() for _ in range(runs)) * 1e6


def cold(one: Pair | Bare, shape: Shape, runs: int) -> float:
    """Microseconds of a turn after something else had the caches; the first decile."""
    request, answer = frame(shape.asked), bytes(shape.answered)
    others, theirs = bytearray(OTHERS_BYTES), bytearray(OTHERS_BYTES)

    def run() -> float:
        data = one.asked(request)
        others[:] = theirs
        began = time.perf_counter()
        one.turn(data, answer)
        took = time.perf_counter() - began
        one.hear()
        return took

    return sorted(run() for _ in range(runs))[runs // 10] * 1e6


def frame(size: int) -> bytes:
    """One, whose bytes nobody reads."""
    return struct.pack(">II", size - 4, 0) + bytes(size - 8)


def handshake_us(sides: tuple[ssl.SSLContext, ssl.SSLContext], runs: int) -> float:
    """CPU of both ends of a connection's handshake, our layers included; the lowest."""

    def once() -> float:
        began = time.process_time()
        Pair(sides)
        return time.process_time() - began

    return min(once() for _ in range(runs)) * 1e6


def rows(runs: int, measure: Callable[[Pair | Bare, Shape, int], float]) -> list[Sequence[Any]]:
    sides = contexts()
    plain, sealed, bare = Pair(None), Pair(sides), Bare(sides)
    found: list[Sequence[Any]] = []
    for shape in SHAPES:
        without, with_tls, engine = (measure(each, shape, runs) for each in (plain, sealed, bare))
        cells = (without, with_tls, engine, with_tls - without - engine, (with_tls - without) / shape.messages)
        found.append([shape.name, *(f"{cell:.2f}" for cell in cells)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--cold", action="store_true", help="before each turn, something else has the caches")
    options = parser.parse_args()
    print(f"{ssl.OPENSSL_VERSION}, {Bare(contexts()).engine.cipher()}; µs of a turn")
    print("| turn | without TLS | with TLS | OpenSSL alone | our layer | more, a message |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in rows(options.runs, cold if options.cold else lowest):
        print("| " + " | ".join(row) + " |")
    print(f"a handshake, both ends: {handshake_us(contexts(), 20):.0f} µs")


if __name__ == "__main__":
    main()
