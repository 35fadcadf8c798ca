"""Messages to send, received messages, queues, results of sends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from perseid.client.errors import InvalidBody, InvalidMessage
from perseid.core import messages
from perseid.wire import compression, hashing
from perseid.wire.names import DLQ_PREFIX, RETRY_PREFIX
from perseid.wire.properties import KEYS, LITE_TOPIC, RETRY_TOPIC, TAGS, UNIQ_KEY
from perseid.wire.record import SYS_COMPRESSED, SYS_FLAG_AT, Record, decode

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The original's default limit for a body, in the client and in the broker."""
MAX_PROPERTIES_BYTES = 32767
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
"""A received body is not inflated beyond this."""
CONTENT_TYPE = "contentType"
"""The property that names the format of a body."""
MAX_DELAY_LEVEL = 18
"""Levels that brokers have by default."""
MAX_PRIORITY = 2**31 - 1
MAX_CHECKED_TOPICS = 4096
"""Names that were found good, and are not looked at again."""
_TOPIC_OK = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_SEPARATORS = re.compile("[\x01\x02]").search

_OWN_NAMES = {
    "TAGS": "tag=", "KEYS": "keys=", "DELAY": "delay_level=", "WAIT": "wait_stored=", LITE_TOPIC: "lite_topic=",
}  # fmt: skip


class MessageQueue(NamedTuple):
    """One queue of a topic. `queue_id` counts from 0 on each broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(slots=True)
class Message:
    """A message to send: `Message("orders", b"…", tag="paid", keys="order-17")`."""

    topic: str
    """The topic to send it to."""
    body: bytes
    """The content: at least one byte, by default at most 4 MiB."""
    tag: str | None = None
    """At most one word that consumers can filter by."""
    keys: str | Sequence[str] = ()
    """One or several words to find the message by later, such as an order's number. A key has no spaces."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Names and values of your own, strings that are not empty."""
    delay_level: int = 0
    """1 to 18: deliver it after the delay of this level (by default 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min,
    1 h, 2 h)."""
    flag: int = 0
    """A number that brokers pass on unchanged."""
    wait_stored: bool = True
    """Whether the acknowledgement waits for flush and replication, if the broker is configured to wait."""
    delay_ms: int = 0
    """Deliver it this time after the broker got it, or up to a second later. By default at most three days."""
    deliver_at_ms: int = 0
    """Deliver it at this time of the broker's clock, in milliseconds since 1970. Set only one of `delay_level`,
    `delay_ms` and `deliver_at_ms`."""
    priority: int | None = None
    """The queue that the broker puts it into: 0 or more, limited to the highest queue. In a topic with
    message.type=PRIORITY, pops look at the highest queue first. Not for messages in order, in batches, in transactions
    or with a delay."""
    lite_topic: str = ""
    """The lite topic to send it to; `topic` is its parent, with message.type=LITE (`LiteConsumer`)."""

    def __post_init__(self) -> None:
        """Raise `InvalidMessage` for an argument of a wrong type: here, and not only when the message is sent."""
        if not isinstance(self.topic, str):
            raise InvalidMessage(f"message for {self.topic!r}: the topic is {_a(self.topic)}; give a str")
        if not isinstance(self.body, bytes | bytearray | memoryview):
            raise InvalidMessage(f"message for {self.topic}: the body is {_a(self.body)}; {_to_bytes(self.body)}")
        if self.tag is not None and not isinstance(self.tag, str):
            raise InvalidMessage(f"message for {self.topic}: the tag is {_a(self.tag)}; give one str, or None")
        if self.keys and not isinstance(self.keys, str):
            self._check_keys()
        if self.properties:
            if not isinstance(self.properties, Mapping):
                raise InvalidMessage(f"message for {self.topic}: properties are {_a(self.properties)}; give a dict")
            for name, value in self.properties.items():
                if not isinstance(name, str) or not isinstance(value, str):
                    raise InvalidMessage(_no_texts(name, value))

    def _check_keys(self) -> None:
        if isinstance(self.keys, bytes) or not isinstance(self.keys, Iterable):
            raise InvalidMessage(f"message for {self.topic}: keys are {_a(self.keys)}; give a str, or several")
        for key in self.keys:
            if not isinstance(key, str):
                raise InvalidMessage(f"message for {self.topic}: the key {key!r} is {_a(key)}; give str({key!r})")
            if len(key.split()) > 1:
                raise InvalidMessage(
                    f"message for {self.topic}: the key {key!r} has a space, which separates keys: replace it, or give"
                    f" several: keys={key.split()}"
                )

    @property
    def delayed(self) -> bool:
        """Whether it has a delay of any kind."""
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms)

    def encode_properties(self, unique_key: str) -> str:
        """The properties as they are sent. Raises `InvalidMessage` for names or values that could not be read back."""
        first = f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01{'true' if self.wait_stored else 'false'}\x02"
        if not (self.tag or self.keys or self.properties or self.lite_topic) and not self.delayed:
            return first if self.priority is None else f"{first}_SYS_MSG_PRIORITY_\x01{self.priority}\x02"
        parts = [first]
        if self.tag:
            parts.append(f"TAGS\x01{_clean('tag', self.tag)}\x02")
        if self.keys:
            keys = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
            parts.append(f"KEYS\x01{_clean('keys', keys)}\x02")
        if self.delay_level:
            parts.append(f"DELAY\x01{self.delay_level}\x02")
        if self.delay_ms:
            parts.append(f"TIMER_DELAY_MS\x01{self.delay_ms}\x02")
        if self.deliver_at_ms:
            parts.append(f"TIMER_DELIVER_MS\x01{self.deliver_at_ms}\x02")
        if self.priority is not None:
            parts.append(f"_SYS_MSG_PRIORITY_\x01{self.priority}\x02")
        if self.lite_topic:
            parts.append(f"{LITE_TOPIC}\x01{_clean('lite_topic', self.lite_topic)}\x02")
        for name, value in self.properties.items():
            if name in _OWN_NAMES:
                raise InvalidMessage(f"property {name} has an argument of its own: use Message({_OWN_NAMES[name]}…)")
            if name == "UNIQ_KEY":
                continue
            check_property(name, value)
            parts.append(f"{name}\x01{value}\x02")
        return "".join(parts)

    def check(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """Raise `InvalidMessage` if every broker would refuse the message."""
        check_topic(self.topic)
        if not self.body:
            raise InvalidMessage(f"message for {self.topic}: the body is empty; a body has at least one byte")
        if len(self.body) > max_body_bytes:
            raise InvalidMessage(
                f"message for {self.topic}: the body has {len(self.body)} bytes, the limit is {max_body_bytes}"
                " (max_body_bytes here, maxMessageSize on the broker): split it, or store it elsewhere"
            )
        if self.delay_level or self.delay_ms or self.deliver_at_ms:
            self._check_delay()
        if self.priority is not None:
            if not 0 <= self.priority <= MAX_PRIORITY:
                raise InvalidMessage(f"message for {self.topic}: priority={self.priority}: give 0 to {MAX_PRIORITY}")
            if self.delayed:
                self.check_no_priority("a message for a time")

    def _check_delay(self) -> None:
        for name in ("delay_level", "delay_ms", "deliver_at_ms"):
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool):
                raise InvalidMessage(f"message for {self.topic}: {name}={given!r}: give a whole number")
        if (self.delay_level != 0) + (self.delay_ms != 0) + (self.deliver_at_ms != 0) > 1:
            raise InvalidMessage(
                f"message for {self.topic}: delay_level={self.delay_level}, delay_ms={self.delay_ms},"
                f" deliver_at_ms={self.deliver_at_ms}: give one of them"
            )
        if self.delay_ms < 0 or self.deliver_at_ms < 0:
            raise InvalidMessage(
                f"message for {self.topic}: delay_ms={self.delay_ms}, deliver_at_ms={self.deliver_at_ms}: below 0"
            )
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise InvalidMessage(
                f"message for {self.topic}: delay_level={self.delay_level}: levels are 1 (1 s) to {MAX_DELAY_LEVEL}"
                " (2 h); any other time: delay_ms=…"
            )

    def check_no_priority(self, what: str) -> None:
        """Raise `InvalidMessage` for a priority where brokers would drop or ignore it."""
        if self.priority is not None:
            raise InvalidMessage(f"message for {self.topic}: priority={self.priority}: {what} can't have one")


@lru_cache(maxsize=MAX_CHECKED_TOPICS)
def check_topic(topic: str) -> None:
    """Raise `InvalidMessage` unless `topic` is a name that brokers accept."""
    limit = MAX_RETRY_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else MAX_TOPIC_LENGTH
    if not topic or len(topic) > limit or not _TOPIC_OK(topic):
        raise InvalidMessage(
            f"topic {topic!r}: a topic has 1 to {limit} characters out of letters, digits, '_', '-', '%' and '|'"
        )


def check_property(name: str, value: object) -> None:
    """Raise `InvalidMessage` for a property that could not be read back."""
    if not name or not value or not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessage(_no_texts(name, value))
    if _SEPARATORS(name) or _SEPARATORS(value):
        raise InvalidMessage(f"property {name!r}={value!r} holds \\x01 or \\x02, which separate properties on the wire")


def _no_texts(name: object, value: object) -> str:
    return f"property {name!r}={value!r}: names and values are texts that are not empty"


def _a(given: object) -> str:
    """The type of an argument, for people."""
    return "None" if given is None else f"of type {type(given).__name__}"


def _to_bytes(body: object) -> str:
    """What makes bytes of a body."""
    if isinstance(body, str):
        return f"give bytes: {body[:20]!r}.encode()" if len(body) <= 20 else "give bytes: .encode() it"
    return "give bytes: json.dumps(…).encode(), or what a serializer makes of it (perseid.client.serializers)"


def _clean(what: str, text: str) -> str:
    if _SEPARATORS(text):
        raise InvalidMessage(f"{what} {text!r} holds \\x01 or \\x02, which separate properties on the wire")
    return text


class SendStatus(IntEnum):
    """How safely a message was stored. It is stored in each of these cases."""

    SEND_OK = 0
    """As safely as the broker's mode promises."""
    FLUSH_DISK_TIMEOUT = 10
    """Not flushed to the disk in time."""
    SLAVE_NOT_AVAILABLE = 11
    """No slave, or too few of them, could take it."""
    FLUSH_SLAVE_TIMEOUT = 12
    """Not replicated in time."""


class SendResult(msgspec.Struct, frozen=True):
    """Where a message was stored, and under which ids."""

    status: SendStatus
    """How safely it was stored."""
    msg_id: str
    """The id that the client gave it. It stays the same when the message is delivered again."""
    offset_msg_id: str
    """The broker's id, which contains its address and the position in its log."""
    queue: MessageQueue
    """The queue in which it is stored."""
    queue_offset: int
    """Its offset in this queue."""
    transaction_id: str = ""
    """The id of the transaction, if it is a half message."""
    recall_handle: str = ""
    """The argument of `Producer.recall`, for a message with `delay_ms` or `deliver_at_ms`. Empty: no recall."""


class Decoder(Protocol[T_co]):
    """Reads a value from a body: a `Serializer`, or any object with `loads`."""

    def loads(self, data: bytes, /) -> T_co: ...


class ReceivedMessage:
    """A message from a broker: what was sent, and where and when it was stored.

    `topic` is the topic to which it was sent, even if it was delivered again from a retry topic. `queue` and
    `queue_offset` say where it was read. `reconsume_times` is the number of earlier deliveries that failed. Times are
    milliseconds since 1970. The other parts are decoded when they are first asked for.
    """

    __slots__ = (
        "_body", "_properties", "_raw", "_record", "queue", "queue_offset", "reconsume_times", "record_bytes", "topic",
    )  # fmt: skip
    queue: MessageQueue
    queue_offset: int
    reconsume_times: int
    record_bytes: int
    """The size of its record in the broker's log."""
    topic: str
    _body: bytes | None
    _properties: dict[str, str] | None
    _raw: bytes
    """The record as it came, where it is not decoded yet."""
    _record: Record | None

    def __init__(self, record: Record, broker_name: str) -> None:
        # `core.messages` makes them without this, and sets the same slots.
        self._raw = b""
        self._record = record
        self._body = None
        self._properties = None
        self.record_bytes = record.size
        self.queue = MessageQueue(record.topic, broker_name, record.queue_id)
        self.queue_offset = record.queue_offset
        self.reconsume_times = record.reconsume_times
        self.topic = record.topic
        if record.topic.startswith(RETRY_PREFIX):
            self.topic = record.props.get(RETRY_TOPIC, record.topic)

    def put_into(self, queue: MessageQueue, delta: int) -> None:
        """It was read from a logical queue, `delta` behind its place in the broker's own."""
        self.queue = queue
        self.queue_offset += delta

    @property
    def record(self) -> Record:
        """All that is stored of it."""
        record = self._record
        if record is None:
            record = self._record = decode(self._raw, check_crc=False)
            record._props = self._properties  # noqa: SLF001 - decoded once
        return record

    @property
    def body(self) -> bytes:
        """The body as it was sent; decompressed if the client compressed it."""
        body = self._body
        if body is None:
            raw = self._raw
            if raw and not raw[SYS_FLAG_AT + 3] & SYS_COMPRESSED:
                body = self._body = messages.body_of(raw)
            else:
                record = self.record
                body = self._body = compression.decompress(record.body, record.sys_flag, MAX_UNPACKED_BYTES)
        return body

    def decode(self, serializer: Decoder[T]) -> T:
        """The value in the body, read by a serializer (`perseid.client.serializers`). `InvalidBody` if that fails."""
        try:
            return serializer.loads(self.body)
        except Exception as error:  # each format has its own
            told = self.properties.get(CONTENT_TYPE)
            said = f"its sender says {CONTENT_TYPE}={told}" if told else f"its sender gave it no {CONTENT_TYPE}"
            raise InvalidBody(f"{self!r}: {type(serializer).__name__} can't read it ({said}): {error}") from error

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of the sender and those of the brokers."""
        found = self._properties
        if found is None:
            found = self._properties = messages.properties_of(self._raw) if self._raw else self.record.props
        return found

    @property
    def tag(self) -> str | None:
        """The tag that the sender gave it, if any."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that the sender gave it."""
        return self.properties.get(KEYS, "").split()

    @property
    def msg_id(self) -> str:
        """The id that the sender's client gave it. It stays the same when the message is delivered again."""
        return self.properties.get(UNIQ_KEY) or self.record.msg_id

    @property
    def offset_msg_id(self) -> str:
        """The broker's id, which contains its address and the position in its log."""
        return self.record.msg_id

    @property
    def physical_offset(self) -> int:
        """Its position in the broker's commit log, in bytes."""
        return self.record.physical_offset

    @property
    def born_timestamp(self) -> int:
        """When it was sent, by the sender's clock."""
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When it was stored, by the broker's clock."""
        return self.record.store_timestamp

    @property
    def flag(self) -> int:
        """The number that the sender gave it (`Message.flag`)."""
        return self.record.flag

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.queue}@{self.queue_offset}, msg_id={self.msg_id}, {len(self.record.body)} bytes)"


@lru_cache(maxsize=65536)
def key_hash(key: str) -> int:
    """A key's number, the same in every process: modulo the number of queues it is the queue to send to.

    So chooses the Java client's SelectMessageQueueByHash too: producers of both kinds agree.
    """
    return abs(hashing.java_hash(key))
