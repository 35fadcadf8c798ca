"""Message traces: what clients write into RMQ_SYS_TRACE_TOPIC about their sends and about what they consumed.

A body holds traces one after the other, of one client: fields end with \\x01, a trace with \\x02; all is text. What a
Java 5.5.0 client writes (client/trace/TraceDataEncoder), and what older ones leave out:

    Pub             time region group topic msgId tags keys storeHost bodyLength cost msgType [offsetMsgId] ok [client]
    SubBefore       time region group requestId msgId retries keys [client]
    SubAfter        requestId msgId cost ok keys [code [time group]]
    EndTransaction  time region group topic msgId tags keys storeHost msgType transactionId state fromCheck
    Recall          time region group topic msgId ok

The time of a Pub is that before the send, that of a SubBefore before the listener is called; `cost` is in
milliseconds: of a send until its answer, of a listener's call divided by the messages that it was given. SubAfter has
the requestId of its SubBefore. A field that was null in Java stands there as `null`. A send that failed by an exception
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perseid.base.errors import RemoteProtocolError

FIELD_END, TRACE_END = "\x01", "\x02"
PUB, BEFORE, AFTER, END_TRANSACTION, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"
CODES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""How a listener's call ended, by its number."""
MESSAGE_TYPES = ("NORMAL", "HALF", "COMMIT", "DELAY", "ORDER")
_LEAST = {PUB: 13, BEFORE: 8, AFTER: 6, END_TRANSACTION: 13, RECALL: 7}
"""Fields, the kind among them."""


class Trace(msgspec.Struct, frozen=True):
    """One trace; what its kind does not have is None."""

    kind: str
    time_ms: int | None = None
    """Since 1970, by the client's clock."""
    group: str | None = None
    topic: str | None = None
    msg_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_bytes: int | None = None
    cost_ms: int | None = None
    message_type: str | None = None
    ok: bool | None = None
    request_id: str | None = None
    retries: int | None = None
    code: str | None = None
    """How a listener's call ended."""
    state: str | None = None
    """Of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW (the original's spelling)."""


def decode(body: bytes) -> list[Trace]:
    """The traces of one message's body, in order. RemoteProtocolError: it holds something else; the text says what."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("traces are text in UTF-8, and this is not") from None
    return [_trace(piece.split(FIELD_END)) for piece in text.split(TRACE_END) if piece]


def _trace(fields: Sequence[str]) -> Trace:
    kind = fields[0]
    if kind not in _LEAST:
        raise RemoteProtocolError(f"no kind of trace: {kind[:40]!r}")
    if len(fields) < _LEAST[kind]:
        raise RemoteProtocolError(f"a {kind} of {len(fields)} fields: it has {_LEAST[kind]}")
    if kind == PUB:
        return _pub(fields)
    if kind == BEFORE:
        return Trace(
            kind, _number(fields[1]), group=_text(fields[3]), request_id=_text(fields[4]), msg_id=_text(fields[5]),
            retries=_number(fields[6]), keys=_text(fields[7]),
        )  # fmt: skip
    if kind == AFTER:
        return Trace(
            kind, _number(fields[7]) if len(fields) > 7 else None, request_id=_text(fields[1]), msg_id=_text(fields[2]),
            cost_ms=_number(fields[3]), ok=_truth(fields[4]), keys=_text(fields[5]),
            code=_name(CODES, fields[6]) if len(fields) > 6 else None,
            group=_text(fields[8]) if len(fields) > 8 else None,
        )  # fmt: skip
    if kind == END_TRANSACTION:
        return Trace(
            kind, _number(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
            tags=_text(fields[6]), keys=_text(fields[7]), store_host=_text(fields[8]),
            message_type=_name(MESSAGE_TYPES, fields[9]), state=_text(fields[11]),
        )  # fmt: skip
    return Trace(
        kind, _number(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
        ok=_truth(fields[6]),
    )  # fmt: skip


def _pub(fields: Sequence[str]) -> Trace:
    """The offset's id came between the type and the outcome with later clients."""
    return Trace(
        PUB, _number(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
        tags=_text(fields[6]), keys=_text(fields[7]), store_host=_text(fields[8]), body_bytes=_number(fields[9]),
        cost_ms=_number(fields[10]), message_type=_name(MESSAGE_TYPES, fields[11]),
        ok=_truth(fields[12] if len(fields) == 13 else fields[13]),
    )  # fmt: skip


def _text(field: str) -> str | None:
    return None if field in ("", "null") else field


def _number(field: str) -> int:
    try:
        found = int(field)
    except ValueError:
        raise RemoteProtocolError(f"no number: {field[:40]!r}") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise RemoteProtocolError(f"no number of 64 bits: {field[:40]}")
    return found


def _truth(field: str) -> bool:
    if field not in ("true", "false"):
        raise RemoteProtocolError(f"neither true nor false: {field[:40]!r}")
    return field == "true"


def _name(names: Sequence[str], field: str) -> str:
    """A number's name, or the number where it is none of ours."""
    number = _number(field)
    return names[number] if 0 <= number < len(names) else str(number)
