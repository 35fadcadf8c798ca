"""The turn under way: what a part may do in it, and what leaves at its end.

A part holds the turn, not the broker: it reads the time, adds effects, writes to connections, answers requests and asks
other nodes. Effects leave in the order in which they were added; bytes for connections leave last, one write each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perseid.base.machine import Buffer, ConnId, Effect, Millis, Note, Write
from perseid.broker.kernel.answers import Answers
from perseid.broker.kernel.request import Reply, Request
from perseid.wire.command import Command
from perseid.wire.rpc import Caller, Failure, Fields


class Turn:
    """Those of one broker, one after the other: `begin`, then whatever parts do, then `end`."""

    def __init__(self, answers: Answers, caller: Caller) -> None:
        self.now: Millis = 0
        self._answers = answers
        self._caller = caller
        self._effects: list[Effect] = []
        self._writes: dict[ConnId, Buffer | list[Buffer]] = {}
        """What this turn sends: bytes, or a list of them."""

    def begin(self, now: Millis) -> list[Effect]:
        """A turn begins; the list that will have its effects."""
        self.now = now
        self._effects = []
        return self._effects

    def end(self) -> None:
        """Nothing more is to be answered in this turn: write."""
        for conn, pieces in self._writes.items():
            self._effects.append(Write(conn, pieces))
        self._writes.clear()

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def emit_all(self, effects: Iterable[Effect]) -> None:
        """Add effects in their order."""
        self._effects.extend(effects)

    def note(self, level: str, text: str) -> None:
        """Add a line for people. `level`: info, warning or error."""
        self._effects.append(Note(level, text))

    def write(self, conn: ConnId, data: Buffer) -> None:
        """Send bytes with this turn's answers on a connection."""
        before = self._writes.get(conn)
        if before is None:
            self._writes[conn] = data
        elif isinstance(before, list):
            before.append(data)
        else:
            self._writes[conn] = [before, data]

    def write_each(self, answers: Iterable[tuple[ConnId, Buffer]]) -> None:
        """The same on many connections."""
        writes = self._writes
        for conn, data in answers:
            if conn in writes:
                self.write(conn, data)
            else:
                writes[conn] = data

    def reply(self, request: Request, reply: Reply) -> None:
        """Answer a request now; a one-way request has no answer."""
        if not request.command.is_oneway:
            if request.finish is not None:
                reply = request.finish(reply)
            for piece in self._answers.encode(request, reply):
                self.write(request.conn.id, piece)

    def call(
        self, address: str, code: int, header: Fields, body: Buffer, timeout_ms: Millis,
        ended: Callable[[Command | Failure, Millis], None],
    ) -> None:  # fmt: skip
        """Ask another node; `ended` is told once how it ended, perhaps at once, and emits what follows from it."""

        def answered(answer: Command | Failure, now: Millis) -> list[Effect]:
            ended(answer, now)
            return []

        self._effects.extend(self._caller.call(address, code, header, body, self.now, timeout_ms, answered))

    def tell(self, address: str, code: int, header: Fields, body: Buffer, timeout_ms: Millis) -> None:
        """Tell another node, without an answer."""
        self._effects.extend(self._caller.oneway(address, code, header, body, self.now, timeout_ms))

    def validate(self) -> None:
        """Between two turns."""
        assert not self._writes, "an answer was not written"
