"""Requests that the broker makes of clients for somebody else: operators (220, 221, 307, 309), and whoever replies
to a request (326). Source: remoting.md §14.

A relay ends once: with the client's answer, or with a `Failure` (no answer in time, connection gone, too many under
way); who asked is told either way. Nothing is kept of it but what that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perseid.base.machine import Buffer, ConnId, Effect, Millis
from perseid.broker.kernel.turn import Turn
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.base import Header
from perseid.wire.rpc import Caller, Failure, Fields

TIMEOUT_MS = 10_000
"""How long a client has for its answer, as in the original."""
MAX_UNDER_WAY = 10_000
"""Relays without an answer; the next one fails at once."""

Ended: TypeAlias = Callable[[Command | Failure], None]
"""How a relay ended. The answer is valid only during the call."""


class Relays:
    """Those of one broker."""

    def __init__(self, turn: Turn, caller: Caller) -> None:
        self._turn = turn
        self._caller = caller

    def ask(
        self,
        conn: ConnId,
        code: int,
        header: Fields,
        body: Buffer,
        ended: Ended,
        timeout_ms: Millis = TIMEOUT_MS,
    ) -> None:
        """Ask a client; `ended` is called once, perhaps before this returns."""
        if self._caller.pending >= MAX_UNDER_WAY:
            ended(Failure(f"{MAX_UNDER_WAY} requests to clients wait for their answers already"))
            return

        def on_reply(answer: Command | Failure, now: Millis) -> list[Effect]:
            ended(answer)
            return []

        now = self._turn.now
        self._turn.emit_all(self._caller.call_on(conn, code, header, body, now, timeout_ms, on_reply))

    def tell(self, conn: ConnId, code: int, header: Header, body: bytes) -> None:
        """Tell a client something that it does not answer."""
        self._turn.write(conn, encode_request(code, 0, header, body, oneway=True))
