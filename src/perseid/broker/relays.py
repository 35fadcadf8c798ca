"""Requests that the broker makes of clients for somebody else: operators (220, 221, 307, 309), and whoever replies
to a request (326). Source: remoting.md §14.

A relay ends once: with the client's answer, or with a `Failure` (no answer in time, connection gone, too many under
way); who asked is told either way. Nothing is kept of it but what that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from perseid.base.machine import Buffer, ConnId, Effect, Millis
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.base import Header
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.node import Broker

TIMEOUT_MS = 10_000
"""How long a client has for its answer, as in the original."""
MAX_UNDER_WAY = 10_000
"""Relays without an answer; the next one fails at once."""

Ended: TypeAlias = Callable[[Command | Failure], None]
"""How a relay ended. The answer is valid only during the call."""


def ask(
    broker: Broker,
    conn: ConnId,
    code: int,
    header: Header | Mapping[str, str | None] | None,
    body: Buffer,
    ended: Ended,
    timeout_ms: Millis = TIMEOUT_MS,
) -> None:
    """Ask a client; `ended` is called once, perhaps before this returns."""
    if broker.caller.pending >= MAX_UNDER_WAY:
        ended(Failure(f"{MAX_UNDER_WAY} requests to clients wait for their answers already"))
        return

    def on_reply(answer: Command | Failure, now: Millis) -> list[Effect]:
        ended(answer)
        return []

    for effect in broker.caller.call_on(conn, code, header, body, broker.turn.now, timeout_ms, on_reply):
        broker.turn.emit(effect)


def tell(broker: Broker, conn: ConnId, code: int, header: Header, body: bytes) -> None:
    """Tell a client something that it does not answer."""
    broker.turn.write(conn, encode_request(code, 0, header, body, oneway=True))
