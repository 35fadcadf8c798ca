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

import re
from collections.abc import Sequence

import msgspec

from perseid.base.errors import RemoteProtocolError

FIELD_END, TRACE_END = "\x01", "\x02"
PUB, BEFORE, AFTER, END_TRANSACTION, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"
CODES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""How a listener's call ended, by its number."""
MESSAGE_TYPES = ("NORMAL", "HALF", "COMMIT", "DELAY", "ORDER")
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
_INT = re.compile(r"-?[0-9]{1,19}").fullmatch
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
    region: str | None = None
    offset_msg_id: str | None = None
    transaction_id: str | None = None
    from_check: bool | None = None
    """A transaction ended because the broker asked."""


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
            kind, _time(fields[1]), group=_text(fields[3]), request_id=_text(fields[4]), msg_id=_text(fields[5]),
            retries=_number(fields[6]), keys=_text(fields[7]), region=_text(fields[2]),
        )  # fmt: skip
    if kind == AFTER:
        return Trace(
            kind, _time(fields[7]) if len(fields) > 7 else None, request_id=_text(fields[1]), msg_id=_text(fields[2]),
            cost_ms=_number(fields[3]), ok=_truth(fields[4]), keys=_text(fields[5]),
            code=_name(CODES, fields[6]) if len(fields) > 6 else None,
            group=_text(fields[8]) if len(fields) > 8 else None,
        )  # fmt: skip
    if kind == END_TRANSACTION:
        return Trace(
            kind, _time(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
            tags=_text(fields[6]), keys=_text(fields[7]), store_host=_text(fields[8]),
            message_type=_name(MESSAGE_TYPES, fields[9]), state=_text(fields[11]), region=_text(fields[2]),
            transaction_id=_text(fields[10]), from_check=_truth(fields[12]),
        )  # fmt: skip
    return Trace(
        kind, _time(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
        ok=_truth(fields[6]), region=_text(fields[2]),
    )  # fmt: skip


def encode(trace: Trace) -> str:
    """One trace as a Java 5.5.0 client writes it; a body is several of them, in UTF-8."""
    one = trace
    if one.kind == PUB:
        fields: tuple[object, ...] = (
            one.time_ms, one.region, one.group, one.topic, one.msg_id, one.tags, one.keys, one.store_host,
            one.body_bytes, one.cost_ms, _index(MESSAGE_TYPES, one.message_type), one.offset_msg_id, one.ok,
        )  # fmt: skip
    elif one.kind == BEFORE:
        fields = (one.time_ms, one.region, one.group, one.request_id, one.msg_id, one.retries, one.keys)
    elif one.kind == AFTER:
        code = _index(CODES, one.code)
        fields = (one.request_id, one.msg_id, one.cost_ms, one.ok, one.keys, code, one.time_ms, one.group)
    elif one.kind == END_TRANSACTION:
        fields = (
            one.time_ms, one.region, one.group, one.topic, one.msg_id, one.tags, one.keys, one.store_host,
            _index(MESSAGE_TYPES, one.message_type), one.transaction_id, one.state, one.from_check,
        )  # fmt: skip
    else:
        fields = (one.time_ms, one.region, one.group, one.topic, one.msg_id, one.ok)
    return FIELD_END.join([one.kind, *map(_field, fields)]) + TRACE_END


def _field(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace(FIELD_END, " ").replace(TRACE_END, " ")


def _index(names: Sequence[str], name: str | None) -> int:
    """A name's number; 0 for none."""
    if name is None:
        return 0
    return names.index(name) if name in names else int(name)


def _pub(fields: Sequence[str]) -> Trace:
    """The offset's id came between the type and the outcome with later clients."""
    return Trace(
        PUB, _time(fields[1]), group=_text(fields[3]), topic=_text(fields[4]), msg_id=_text(fields[5]),
        tags=_text(fields[6]), keys=_text(fields[7]), store_host=_text(fields[8]), body_bytes=_number(fields[9]),
        cost_ms=_number(fields[10]), message_type=_name(MESSAGE_TYPES, fields[11]),
        ok=_truth(fields[12] if len(fields) == 13 else fields[13]), region=_text(fields[2]),
        offset_msg_id=None if len(fields) == 13 else _text(fields[12]),
    )  # fmt: skip


def _text(field: str) -> str | None:
    return None if field in ("", "null") else field


def _number(field: str) -> int:
    """What Java writes as an int."""
    if not _INT(field) or not -(1 << 31) <= int(field) < 1 << 31:
        raise RemoteProtocolError(f"no number of 32 bits: {field[:40]!r}")
    return int(field)


def _time(field: str) -> int:
    """Milliseconds since 1970."""
    if not _INT(field) or not 0 <= int(field) <= LAST_MS:
        raise RemoteProtocolError(f"no time from 1970 to 9999: {field[:40]!r}")
    return int(field)


def _truth(field: str) -> bool:
    if field not in ("true", "false"):
        raise RemoteProtocolError(f"neither true nor false: {field[:40]!r}")
    return field == "true"


def _name(names: Sequence[str], field: str) -> str:
    """A number's name, or the number where it is none of ours."""
    number = _number(field)
    return names[number] if 0 <= number < len(names) else str(number)
