"""Why a send takes the ordinary way: one decision, which the core's way and that of plain Python share.

    not_now     of the broker: nobody may send at all, and the ordinary handler says so
    not_there   of the topic and the queue
    not_such    of the message itself, but for its properties
    Properties  of its properties

The core reads a frame by itself and stops where it is none of a plain send; whether its queue is to be known to it is
decided here. Sends with a time of their own, and halves, are TIMED and TRANSACTION here; the core takes them, too.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.metadata.system_topics import NOT_SENDABLE
from perseid.core.layout import INDEXED_TAG, MAX_ID_BYTES, MAX_NAMES, PLAIN_SYS_FLAGS
from perseid.store.dispatch import key_hash
from perseid.wire import properties as props
from perseid.wire.command import Command
from perseid.wire.hashing import tag_code
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.topic_flags import PERM_WRITE

if TYPE_CHECKING:
    from perseid.broker.fast_path.plain_sends import SendPorts
    from perseid.broker.kernel.request import Connection
    from perseid.wire.bodies import TopicConfig

HEADERS: dict[int, type[SendMessageRequest]] = {
    10: SendMessageRequest,
    310: SendMessageRequestV2,
    320: SendMessageRequestV2,
}
"""Of each kind of send."""
SINGLE_TAG = "SINGLE_TAG"
IPV4_HOST_BYTES = 8
MAX_KNOWN = 10_000
MAX_KNOWN_CHARS = 1_000
"""Longer properties are read each time."""
MAX_TOPICS_OF_ONE = 100


@final
class WhyNot(Enum):
    """A reason, in words for people."""

    NO_SEND = "it is no send that can be read"
    SLAVE = "the broker is a slave"
    MANY_WAIT = "too many answers wait for the disk or for other nodes"
    FEW_REPLICAS = "too few replicas are in sync"
    NOT_YET = "the broker takes no sends yet"
    NO_TOPIC = "the topic is not there"
    OWN_TOPIC = "the topic is one of the broker's own"
    RETRY_TOPIC = "the topic is a group's retry topic"
    SPECIAL_TOPIC = "the topic is compacted, or has batch queues"
    STATIC_TOPIC = "the topic is static"
    MULTI_TAG = "the topic's messages have several tags"
    NO_QUEUE = "the topic has no such queue, or none was named"
    FORBIDDEN = "the topic is ordered, and the broker's permission does not allow to write"
    FIRST_SEND = "it is the first one to this queue"
    NO_ROOM = "the queue's or the log's file has no room, or a part is too long"
    SYS_FLAG = "its sysFlag says something unusual"
    EMPTY = "it has no body"
    IPV6 = "its sender has an IPv6 address"
    BATCH = "it is a batch with a message that is not plain"
    LONG_UNIQUE_KEY = "its UNIQ_KEY is long"
    REPEATED = "it has no UNIQ_KEY, and properties that come twice, or very many"
    NO_WAIT = "it asks not to wait for what others wait for"
    DELAYED = "it has a delay level"
    TIMED = "it has a time of its own"
    TRANSACTION = "it begins a transaction"
    PRIORITY = "it has a priority"
    CHANGING = "another property changes what is stored"
    OTHER = "the core does not take a frame like this"


OF_NAMES = dict.fromkeys(props.CHANGING_NAMES, WhyNot.CHANGING) | {
    props.DELAY: WhyNot.DELAYED,
    props.TIMER_DELAY_SEC: WhyNot.TIMED,
    props.TIMER_DELAY_MS: WhyNot.TIMED,
    props.TIMER_DELIVER_MS: WhyNot.TIMED,
    props.TRAN_MSG: WhyNot.TRANSACTION,
    props.PRIORITY: WhyNot.PRIORITY,
}
"""What a property means by its name alone."""


def header_of(command: Command) -> SendMessageRequest | None:
    """What a send says; None when it is none, or can't be read."""
    kind = HEADERS.get(command.code)
    if kind is None or command.is_response:
        return None
    try:
        return command.header(kind)
    except (RequestRefused, RemoteProtocolError):
        return None


def why_not(ports: SendPorts, conn: Connection, command: Command, properties: Properties) -> WhyNot | None:
    """All that speaks against a send, but for what only its file can tell; None: it is plain."""
    header = header_of(command)
    if header is None:
        return WhyNot.NO_SEND
    found = not_now(ports) or not_there(ports, header) or not_such(header, command.body, conn.packed_host)
    if found is None and (header.topic, header.queue_id) not in ports.store.appends.plain_queues:
        found = WhyNot.FIRST_SEND
    if found is None:
        read = properties.read(header.properties)
        found = read if type(read) is WhyNot else None
    return found


def not_now(ports: SendPorts) -> WhyNot | None:
    """Why no send is plain now."""
    if ports.roles.is_slave:
        return WhyNot.SLAVE
    if ports.durability.full:
        return WhyNot.MANY_WAIT
    if ports.durability.too_few:
        return WhyNot.FEW_REPLICAS
    if ports.settings.current.start_accept_send_request_time_stamp > ports.turn.now:
        return WhyNot.NOT_YET
    return None


def not_there(ports: SendPorts, header: SendMessageRequest) -> WhyNot | None:
    """Why no send to this queue is plain. RETRY_TOPIC: nothing else speaks against it, and the core takes some."""
    topic = header.topic
    row = ports.topics.rows.get(topic)
    found: WhyNot | None = None
    if topic in NOT_SENDABLE:
        found = WhyNot.OWN_TOPIC
    elif row is None:
        found = WhyNot.NO_TOPIC
    elif ports.topics.is_special(topic):
        found = WhyNot.SPECIAL_TOPIC
    elif topic in ports.mappings.rows:
        found = WhyNot.STATIC_TOPIC
    elif not 0 <= header.queue_id < max(row.write_queue_nums, row.read_queue_nums):
        found = WhyNot.NO_QUEUE
    elif row.topic_filter_type != SINGLE_TAG:
        found = WhyNot.MULTI_TAG
    elif not may_write(ports, row):
        found = WhyNot.FORBIDDEN
    elif topic.startswith(RETRY_PREFIX):
        found = WhyNot.RETRY_TOPIC
    return found


def may_write(ports: SendPorts, row: TopicConfig) -> bool:
    """May one send to this topic, as far as the broker's permission goes?"""
    return not row.order or ports.settings.current.broker_permission & PERM_WRITE != 0


def not_such(header: SendMessageRequest, body: Buffer, born_host: bytes) -> WhyNot | None:
    """Why no message like this is plain, whatever its properties say."""
    if header.sys_flag & ~PLAIN_SYS_FLAGS:
        return WhyNot.SYS_FLAG
    if not body:
        return WhyNot.EMPTY
    return None if len(born_host) == IPV4_HOST_BYTES else WhyNot.IPV6


def repeats(properties: str) -> bool:
    """Does the core leave a message without a unique key to the handler, because names come twice, or many do?"""
    pairs = [piece.partition("\x01") for piece in properties.split("\x02")]
    names = [name for name, _, value in pairs if name and value]
    return len(names) > MAX_NAMES or len(set(names)) < len(names)


class Facts:
    """What the properties of a message say of it, but for its unique key."""

    __slots__ = ("hashes", "keys", "tag_code", "unique")

    def __init__(self, tag: str, keys: list[str], unique: str) -> None:
        self.unique = unique
        self.tag_code = tag_code(tag or None)
        self.keys = [*keys, INDEXED_TAG + tag] if tag else keys
        self.hashes: dict[str, list[int]] = {}
        """By topic: those of `keys`."""

    def hashes_in(self, topic: str) -> list[int]:
        """The index hashes of all keys but the unique one."""
        found = self.hashes.get(topic)
        if found is None:
            if len(self.hashes) >= MAX_TOPICS_OF_ONE:
                self.hashes.clear()
            found = self.hashes[topic] = [key_hash(topic, key) for key in self.keys]
        return found


class Properties:
    """Reads the properties of sends; those that differ in their unique keys alone are read once."""

    def __init__(self, *, waits: bool) -> None:
        """`waits`: answers wait, so that one may ask not to."""
        self._waits = waits
        self._known: dict[str, Facts] = {}

    def read(self, text: str) -> tuple[str, Facts] | WhyNot:
        """The unique key that properties say, "" for none, and all else; or why they are not plain."""
        at = text.find("UNIQ_KEY\x01") + 9
        end = text.find("\x02", at)
        unique, rest = "", text
        if at >= 9 and end > at and (at == 9 or text[at - 10] == "\x02"):
            unique, rest = text[at:end], text[:at] + text[end:]
        facts: Facts | WhyNot = self._known.get(rest) or self._facts(rest)
        if type(facts) is WhyNot:
            return facts
        unique = facts.unique or unique  # the last one counts
        if not unique and repeats(text):
            return WhyNot.REPEATED
        return (unique, facts) if len(unique.encode()) <= MAX_ID_BYTES else WhyNot.LONG_UNIQUE_KEY

    def _facts(self, text: str) -> Facts | WhyNot:
        """What properties without the value of their unique key say."""
        tag = words = unique = wait = ""
        for piece in text.split("\x02"):
            name, separator, value = piece.partition("\x01")
            if separator and name in OF_NAMES:
                return OF_NAMES[name]
            if not value:
                continue
            if name == props.UNIQ_KEY:
                unique = value
            elif name == props.WAIT:
                wait = value
            elif name == props.TAGS:
                tag = value
            elif name == props.KEYS:
                words = value
        if wait == "false" and self._waits:
            return WhyNot.NO_WAIT
        facts = Facts(tag, [word for word in words.split(" ") if word], unique)
        if not words and not unique and len(text) <= MAX_KNOWN_CHARS:  # keys are a message's own, all else is of many
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[text] = facts
        return facts
