"""What POP writes into strings and into the revive log (remoting.md §8).

- A *handle* (extraInfo, POP_CK) names one delivery of one message: `start popTime invisibleTime reviveQueue retry
  brokerName queueId offset`, separated by spaces. The client builds it of the answer to its pop.
- `startOffsetInfo`, `msgOffsetInfo` and `orderCountInfo` are what it builds it of: `retry queueId …` joined by `;`.
- A *checkpoint* says which messages a pop handed out, and until when; an *ack* which of them are consumed. Both are
  JSON bodies in the revive topic, tags `ck`, `ack` and `bAck`.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.wire import fastjson
from perseid.wire.fastjson import JsonError
from perseid.wire.headers.base import INT_MAX, LONG_MAX, LONG_MIN, SYSTEM_ERROR, quote
from perseid.wire.headers.pop import PopMessageResponse
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.record import Record

CK_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
ORDER_QUEUE = 999
"""Stands as the revive queue of messages that are popped in order: they have no checkpoint."""
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
RETRIES = (NORMAL, RETRY_V1, RETRY_V2)

StartInfo: TypeAlias = Mapping[tuple[str, str], str]
"""Where the messages of each queue begin, by retry and queue id, as `parse_info` reads it."""

MAX_MESSAGES = 32
"""Of one pop, and of one checkpoint: its acks are bits of one word."""
MAX_BITS = 1 << 16
"""Bits of one batch acknowledgement that are looked at."""
MAX_HANDLE_CHARS = 4096

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_USUAL = re.compile(
    r"(\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,9}) ([^ ]+) ([^ ]+) (\d{1,9}) (\d{1,18})", re.ASCII
).fullmatch
"""A handle as clients build it; others are taken apart more slowly."""


class Handle(NamedTuple):
    """One delivery of one message. `queue_id` and `offset` are −1 where the text does not tell them."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int = -1
    offset: int = -1

    def __str__(self) -> str:
        return " ".join(map(str, self))


def parse_handle(text: str) -> Handle:
    """The handle that a text is; RequestRefused(1) when it is none."""
    usual = _USUAL(text[:MAX_HANDLE_CHARS])
    if usual is not None:
        start, popped, invisible, queue, retry, name, queue_id, offset = usual.groups()
        return Handle(int(start), int(popped), int(invisible), int(queue), retry, name, int(queue_id), int(offset))
    parts = text[:MAX_HANDLE_CHARS].split(" ")
    if len(parts) < 6:
        raise _no_handle(text, "it has fewer than 6 parts")
    numbers = [_long(part) for part in (*parts[:4], *parts[6:8])]
    if None in numbers:
        raise _no_handle(text, "a part that should be a number is none")
    start, popped, invisible, queue, *rest = (number for number in numbers if number is not None)
    return Handle(start, popped, invisible, queue, parts[4], parts[5], *rest[:2])


def _long(text: str) -> int | None:
    number = int(text) if _NUMBER(text) else None
    return number if number is not None and LONG_MIN <= number <= LONG_MAX else None


def _no_handle(text: str, why: str) -> RequestRefused:
    return RequestRefused(SYSTEM_ERROR, f"extraInfo {text[:200]!r}: {why}")


# ---- topics ----


def retry_topic_v1(topic: str, group: str) -> str:
    """Where messages of `topic` go that `group` popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """The same with enableRetryTopicV2: a name that can be taken apart."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def retry_of(topic: str) -> str:
    """How a topic stands in a handle."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def handle_of(record: Record, header: PopMessageResponse, starts: StartInfo, broker_name: str) -> Handle:
    """The handle of a message that a pop brought: its own, or what the answer's header tells. `starts`: of the header's
    `start_offset_info`. RequestRefused, KeyError, ValueError: it tells none."""
    given = record.props.get("POP_CK")
    if given is not None:
        return parse_handle(given)
    retry = retry_of(record.topic)
    return Handle(
        int(starts[retry, str(record.queue_id)]), header.pop_time, header.invisible_time, header.revive_qid, retry,
        broker_name, record.queue_id, record.queue_offset,
    )  # fmt: skip


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic that a handle means. RequestRefused(1) when `retry` is unknown."""
    if retry == NORMAL:
        return topic
    if retry == RETRY_V1:
        return retry_topic_v1(topic, group)
    if retry == RETRY_V2:
        return retry_topic_v2(topic, group)
    raise RequestRefused(SYSTEM_ERROR, f"retry {retry[:80]!r} is neither 0, 1 nor 2")


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic of POP belongs to; any other one is its own."""
    for start in (f"{RETRY_PREFIX}{group}+", f"{RETRY_PREFIX}{group}_"):
        if topic.startswith(start):
            return topic[len(start) :]
    return topic


# ---- the strings of an answer ----


def start_info(topic: str, queue_id: int, start: int) -> str:
    """One part of startOffsetInfo."""
    return f"{retry_of(topic)} {queue_id} {start}"


def offsets_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One part of msgOffsetInfo."""
    return f"{retry_of(topic)} {queue_id} {','.join(map(str, offsets))}"


def count_info(topic: str, queue_id: int, count: int, offset: int | None = None) -> str:
    """One part of orderCountInfo: of a queue, or of one message."""
    where = str(queue_id) if offset is None else f"qo{queue_id}%{offset}"
    return f"{retry_of(topic)} {where} {count}"


def parse_info(text: str | None) -> dict[tuple[str, str], str]:
    """What startOffsetInfo, msgOffsetInfo or orderCountInfo says, by retry and queue. RequestRefused(1) when the text
    has another form."""
    found: dict[tuple[str, str], str] = {}
    for part in (text or "").split(";"):
        if not part:
            continue
        pieces = part.split(" ")
        if len(pieces) != 3 or (pieces[0], pieces[1]) in found:
            raise RequestRefused(SYSTEM_ERROR, f"{text!r:.200} is no list of `retry queue value`")
        found[pieces[0], pieces[1]] = pieces[2]
    return found


# ---- the revive log ----

Key = tuple[str, str, int, int, int]
"""Topic, group, queue, start offset and pop time: what acks name a checkpoint by."""


class Checkpoint(NamedTuple):
    """What one pop handed out of one queue."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    broker_name: str
    offsets: tuple[int, ...]
    """Of the messages, in their queue."""
    again: int | None = None
    """It was written for a message that was popped before: how often it was put off."""
    suspend: bool = False
    """Its messages come again as if they had not been consumed: their reconsumeTimes stay."""

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time

    @property
    def revive_time(self) -> int:
        """From then on what is not acknowledged is to be seen again."""
        return self.pop_time + self.invisible_time

    def to_json(self) -> bytes:
        """The body of its record, as fastjson writes it."""
        start = self.start_offset
        diffs = ",".join([str(offset - start) for offset in self.offsets])
        again = "" if self.again is None else f'"rp":"{self.again}",'
        return (
            f'{{"bm":0,"bn":{quote(self.broker_name)},"c":{quote(self.group)},"d":[{diffs}],"it":{self.invisible_time},'
            f'"n":{len(self.offsets)},"pt":{self.pop_time},"q":{self.queue_id},"reviveTime":{self.revive_time},"ro":0,'
            f'{again}"so":{start},"sp":{"true" if self.suspend else "false"},"t":{quote(self.topic)}}}'
        ).encode()


class Ack(NamedTuple):
    """Messages of a checkpoint that are consumed, or shown again."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str
    offsets: tuple[int, ...]
    batch: bool = False
    """Of the form that names several."""
    revive_time: int = 0
    """Where the checkpoint is not known (yet): its revive time. A member of ours, that the original leaves unread."""

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time

    @property
    def tag(self) -> str:
        return BATCH_ACK_TAG if self.batch else ACK_TAG

    def to_json(self) -> bytes:
        """The body of its record, as fastjson writes it."""
        listed = f'"aol":[{",".join(map(str, self.offsets))}],' if self.batch else ""
        until = f'"reviveTime":{self.revive_time},' if self.revive_time else ""
        return (
            f'{{"ao":{-1 if self.batch else self.offsets[0]},{listed}"bn":{quote(self.broker_name)},'
            f'"c":{quote(self.group)},"pt":{self.pop_time},"q":{self.queue_id},{until}"so":{self.start_offset},'
            f'"t":{quote(self.topic)}}}'
        ).encode()


def read_checkpoint(body: Buffer) -> Checkpoint | None:
    """The checkpoint that a record's body is; None: it is none."""
    found = _object(body)
    if found is None:
        return None
    members = _Members(found)
    start, count = members.number("so"), members.number("n")
    diffs = found.get("d") or list(range(count))
    if not isinstance(diffs, list) or len(diffs) != count or not 0 <= count <= MAX_MESSAGES:
        return None
    if not all(type(diff) is int and 0 <= diff <= INT_MAX for diff in diffs):
        return None
    again = found.get("rp")
    if again is not None and not (isinstance(again, str) and again.isascii() and again.isdecimal() and len(again) < 4):
        return None
    made = Checkpoint(
        members.text("t"), members.text("c"), members.number("q"), start, members.number("pt"), members.number("it"),
        str(found.get("bn") or ""), tuple(start + diff for diff in diffs), None if again is None else int(again),
        found.get("sp") is True,
    )  # fmt: skip
    return made if members.sound else None


def read_ack(body: Buffer) -> Ack | None:
    """The ack that a record's body is, of either form; None: it is none."""
    found = _object(body)
    if found is None:
        return None
    members = _Members(found)
    listed = found.get("aol", found.get("ackOffsetList"))
    batch = isinstance(listed, list)
    offsets = tuple(listed) if batch else (members.number("ao", "ackOffset"),)  # type: ignore[arg-type]
    if len(offsets) > MAX_BITS or not all(type(offset) is int and 0 <= offset <= LONG_MAX for offset in offsets):
        return None
    until = found.get("reviveTime", 0)
    made = Ack(
        members.text("t", "topic"), members.text("c", "consumerGroup"), members.number("q", "queueId"),
        members.number("so", "startOffset"), members.number("pt", "popTime"),
        str(found.get("bn") or found.get("brokerName") or ""), offsets, batch,
        until if type(until) is int and 0 <= until <= LONG_MAX else 0,
    )  # fmt: skip
    return made if members.sound else None


def _object(body: Buffer) -> dict[str, Any] | None:
    try:
        found = fastjson.loads(body)
    except JsonError:
        return None
    return found if isinstance(found, dict) else None


class _Members:
    """Reads members of the types that they have to have; `sound` says whether all were."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found
        self.sound = True

    def _get(self, name: str, other: str) -> Any:
        value = self._found.get(name)
        return self._found.get(other) if value is None and other else value

    def number(self, name: str, other: str = "") -> int:
        """One that is not negative."""
        value = self._get(name, other)
        if type(value) is not int or not 0 <= value <= LONG_MAX:
            self.sound = False
            return 0
        return value

    def text(self, name: str, other: str = "") -> str:
        """One that is not empty."""
        value = self._get(name, other)
        if not isinstance(value, str) or not value:
            self.sound = False
            return ""
        return value


# ---- batch acknowledgements ----


class BatchAck(NamedTuple):
    """What a client acknowledges of one checkpoint, by code 200151."""

    group: str
    topic: str
    retry: str
    start_offset: int
    queue_id: int
    revive_queue: int
    pop_time: int
    invisible_time: int
    offsets: tuple[int, ...]

    def to_map(self) -> dict[str, Any]:
        """As fastjson writes it: the bits are base64 of their bytes, the lowest first."""
        bits = 0
        for offset in self.offsets:
            bits |= 1 << offset - self.start_offset
        return {
            "b": b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            "c": self.group,
            "it": self.invisible_time,
            "pt": self.pop_time,
            "q": self.queue_id,
            "r": self.retry,
            "rq": self.revive_queue,
            "so": self.start_offset,
            "t": self.topic,
        }


def batch_ack_body(broker_name: str, acks: Sequence[BatchAck]) -> bytes:
    """The body of code 200151."""
    return fastjson.dumps({"acks": [ack.to_map() for ack in acks], "brokerName": broker_name})


def read_batch_acks(body: Buffer) -> tuple[str, list[BatchAck]]:
    """A broker's name and the acknowledgements. RequestRefused(1) when the body has another form."""
    found = _object(body)
    if found is None:
        raise RequestRefused(SYSTEM_ERROR, "the body is no JSON object")
    rows = found.get("acks") or []
    if not isinstance(rows, list):
        raise RequestRefused(SYSTEM_ERROR, "acks is no list")
    return str(found.get("brokerName") or ""), [_batch_ack(row) for row in rows]


def _batch_ack(row: Any) -> BatchAck:
    if not isinstance(row, dict):
        raise RequestRefused(SYSTEM_ERROR, "an acknowledgement is no JSON object")
    members = _Members(row)
    start, text = members.number("so", "startOffset"), row.get("b", row.get("bitSet"))
    if not isinstance(text, str) or len(text) * 6 > MAX_BITS:
        raise RequestRefused(SYSTEM_ERROR, f"an acknowledgement has no bits, or more than {MAX_BITS}")
    try:
        bits = int.from_bytes(b64decode(text, validate=True), "little")
    except ValueError:
        raise RequestRefused(SYSTEM_ERROR, "an acknowledgement's bits are not base64") from None
    made = BatchAck(
        members.text("c", "consumerGroup"), members.text("t", "topic"), members.text("r", "retry"), start,
        members.number("q", "queueId"), members.number("rq", "reviveQueueId"), members.number("pt", "popTime"),
        members.number("it", "invisibleTime"),
        tuple(start + bit for bit in range(bits.bit_length()) if bits >> bit & 1),
    )  # fmt: skip
    if not members.sound:
        raise RequestRefused(SYSTEM_ERROR, "an acknowledgement lacks a member, or one is of the wrong type")
    return made
