"""Both ends of a TLS connection, and somebody between them who does what the bytes say."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import islice

from perseid.base.errors import RemoteProtocolError
from perseid.disk.lent import lent
from perseid.security.certificates import Wanted, client_context, context_of, self_made
from perseid.security.tls import ClientSide, Mode, ServerSide, State, Tls

SINCE = datetime(2020, 1, 1, tzinfo=UTC)
DAYS = 36_500
CARRY, LOSE, CHANGE, INJECT, SAY, END, SWAP = range(7)
MODES = tuple(Mode)


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    pair = self_made(Wanted("fuzz", SINCE, ("localhost",), DAYS, stable=True))
    with lent(pair.certificate) as path:
        return context_of(pair), client_context(trust=path)


class Wire:
    """One direction: bytes on their way, what was said at its beginning and what has come out at its end."""

    def __init__(self, near: Tls, far: Tls) -> None:
        self.near, self.far = near, far
        self.on_its_way = bytearray(near.outgoing())
        self.said = bytearray()
        self.heard = bytearray()

    def deliver(self, count: int) -> None:
        data = bytes(self.on_its_way[:count])
        del self.on_its_way[:count]
        if data:
            before = self.far.state
            try:
                self.heard += self.far.received(data)
            except RemoteProtocolError as error:
                assert self.far.state is State.ENDED and str(error) and "\n" not in str(error)
            assert before is not State.ENDED or self.far.state is State.ENDED, "what has ended begins again"

    def say(self, data: bytes) -> None:
        if self.near.state is State.OPEN:
            self.said += data
            self.on_its_way += self.near.seal(data)


def play(data: bytes) -> None:
    """What comes out is what was said, and no more, whatever happens on the way; only declared errors are raised."""
    steps = iter(data)
    server, client = _contexts()
    mode = MODES[next(steps, 0) % len(MODES)]
    theirs = Tls.accepted(ServerSide(mode, lambda: server))
    forth = Wire(Tls.dialled(ClientSide(lambda: client), "localhost:1"), theirs)
    back = Wire(theirs, forth.near)
    wire, other = forth, back
    for step in steps:
        kind, size = step % 7, next(steps, 0)
        if kind == CARRY:
            wire.deliver(1 << min(size, 20))
            other.on_its_way += wire.far.outgoing()
        elif kind == LOSE:
            del wire.on_its_way[:size]
        elif kind == CHANGE and wire.on_its_way:
            wire.on_its_way[size % len(wire.on_its_way)] ^= 1 + next(steps, 0) % 255
        elif kind == INJECT:
            wire.on_its_way[:0] = bytes(_taken(steps, size))
        elif kind == SAY:
            wire.say(bytes(_taken(steps, size)))
        elif kind == END:
            wire.on_its_way += wire.near.end()
        else:
            wire, other = other, wire
        for one in (forth, back):
            if one.far.state is not State.CLEAR:
                assert one.said.startswith(one.heard), "bytes came out that nobody had said"


def _taken(steps: Iterator[int], count: int) -> list[int]:
    return list(islice(steps, count))


HANDSHAKE = bytes([CARRY, 20, SWAP, 0] * 4)
SEEDS = [
    bytes([MODES.index(mode)]) + HANDSHAKE + bytes([SAY, 3]) + b"abc" + bytes([CARRY, 20, SWAP, 0, SAY, 2]) + b"de" +
    bytes([CARRY, 20, *end, CARRY, 20, SWAP, 0, CARRY, 20])
    for mode in MODES
    for end in ([END, 0], [CHANGE, 9, 1], [LOSE, 4])
] + [bytes([1, INJECT, 8]) + b"\0\0\0\4frame"[:8] + bytes([CARRY, 20, CARRY, 3, SWAP, 0, CARRY, 20])]  # fmt: skip
