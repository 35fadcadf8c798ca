"""Plain sends, the quick way: one pass from the decoded header to the bytes of the answer.

The ordinary handlers are the reference: what this stores and answers is byte for byte what they would, which a
differential test holds it to. Whatever is unusual (a first send to a queue, batches, delays, retries, transactions,
properties that change what is stored, ids that JSON would have to escape, SYNC_FLUSH) is left to them: `send` says
None, and nothing has happened.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from perseid.broker.system_topics import NOT_SENDABLE, PERM_WRITE, RETRY_PREFIX
from perseid.store.dispatch import INDEXED_TAG
from perseid.store.plain import PlainQueue, packed_host
from perseid.store.results import AppendRefused
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import VERSION
from perseid.wire.command import Command
from perseid.wire.hashing import tag_code
from perseid.wire.headers.base import quote
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2

if TYPE_CHECKING:
    from perseid.broker.node import Broker
    from perseid.broker.request import Connection

HEADERS: dict[int, type[SendMessageRequest]] = {10: SendMessageRequest, 310: SendMessageRequestV2}

ODD_NAMES = frozenset({
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG", "POP_CK", "INNER_NUM", "MSG_REGION",
    "TRACE_ON", "CLUSTER", "",
})  # fmt: skip
"""Properties that the ordinary handler has to look at."""

PLAIN_SYS_FLAGS = 0x701
"""Compressed, and how: what a plain message may say of itself."""

_pack_prefix = Struct(">II").pack

SINGLE_TAG = "SINGLE_TAG"
MAX_LANES = 100_000
MAX_TAGS = 10_000
ONEWAY = 2


class Lane:
    """One queue of one topic: what stays the same from send to send."""

    __slots__ = ("count", "queue", "row", "size")

    def __init__(self, queue: PlainQueue, row: TopicConfig) -> None:
        self.queue = queue
        self.row = row
        self.count = 0
        self.size = 0


class PlainSends:
    """The plain sends of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._touched: list[Lane] = []
        self._tags: dict[str, int] = {}
        self._own = broker.own_properties
        self._holds = broker.holds
        self._begin = f'{{"code":0,"extFields":{{"msgId":"{packed_host(broker.store_host).hex().upper()}'
        region = broker.answers.own_properties["MSG_REGION"]
        trace_on = broker.answers.own_properties["TRACE_ON"]
        self._tail = f'","MSG_REGION":"{region}","TRACE_ON":"{trace_on}"}},"flag":1,"language":"PYTHON","opaque":'
        self._end = f',"version":{VERSION}}}'
        self.enabled = not broker.sync_flush and len(broker.store_host.ip) == 4 and quote(region) == f'"{region}"'

    def send(self, conn: Connection, command: Command) -> bytes | None:
        """Store a plain message and give the frame that answers it, `b""` for a one-way send; None: not plain."""
        header = command.quick_header
        if header is None or type(header) is not HEADERS.get(command.code):
            return None
        queue_id = header.queue_id
        lane = self._lanes.get((header.topic, queue_id))
        if lane is None or (not lane.count and not self._usable(lane)):
            lane = self._lane(header)
            if lane is None:
                return None
        text, body = header.properties, command.body
        if header.batch or header.sys_flag & ~PLAIN_SYS_FLAGS or not body or len(conn.packed_host) != 8:
            return None
        facts = self._facts(text)
        if facts is None:
            return None
        unique, tag, keys = facts
        code = self._tags.get(tag)
        if code is None:
            code = self._tag_code(tag)
        queue = lane.queue
        queue_offset = queue.end
        try:
            offset, size = queue.append(
                body, text.encode() + self._own, code, keys, header.flag, header.sys_flag, header.born_timestamp,
                conn.packed_host, header.reconsume_times, self._broker.now,
            )  # fmt: skip
        except (AppendRefused, UnicodeEncodeError):
            return None
        if offset < 0:
            return None
        if not lane.count:
            self._touched.append(lane)
        lane.count += 1
        lane.size += size
        if len(self._holds):
            self._holds.arrived(header.topic, queue_id, queue_offset, code)
        if command.flag & ONEWAY:
            return b""
        head = (
            f'{self._begin}{offset:016X}","queueId":"{queue_id}","queueOffset":"{queue_offset}",'
            f'"transactionId":"{unique}{self._tail}{command.opaque}{self._end}'
        ).encode()
        return _pack_prefix(len(head) + 4, len(head)) + head

    def settle(self) -> None:
        """Before another kind of request, and at the end of a turn: count what was stored, trust no lane further."""
        if self._touched:
            for lane in self._touched:
                self._broker.stats.put(lane.queue.topic, lane.count, lane.size)
                self._broker.stats.put_took(0, lane.count)
                lane.count = lane.size = 0
            self._touched.clear()

    @staticmethod
    def _facts(text: str) -> tuple[str, str, list[str]] | None:
        """The unique key, the tag and all index keys of plain properties; None: they are not plain."""
        pieces = text.split("\x02")
        if pieces.pop():
            return None  # the last separator is missing: the ordinary handler sets it
        unique = tag = words = ""
        for piece in pieces:
            name, _, value = piece.partition("\x01")
            if name in ODD_NAMES or not value:
                return None
            if name == "UNIQ_KEY":
                unique = value
            elif name == "TAGS":
                tag = value
            elif name == "KEYS":
                words = value
        if not unique.isalnum() or not unique.isascii():
            return None
        keys = [unique]
        if words:
            keys += [word for word in words.split(" ") if word]
        if tag:
            keys.append(INDEXED_TAG + tag)
        return unique, tag, keys

    def _usable(self, lane: Lane) -> bool:
        """Asked once a turn: is the lane's queue still that of its topic, the topic as it was, and may one send?"""
        broker, row = self._broker, lane.row
        if row is not broker.topics.rows.get(lane.queue.topic) or not lane.queue.usable:
            return False
        config = broker.config
        if config.start_accept_send_request_time_stamp > broker.now:
            return False
        return not row.order or config.broker_permission & PERM_WRITE != 0

    def _tag_code(self, tag: str) -> int:
        if len(self._tags) >= MAX_TAGS:
            self._tags.clear()
        code = self._tags[tag] = tag_code(tag or None)
        return code

    def _lane(self, header: SendMessageRequest) -> Lane | None:
        """The lane of a queue that the ordinary handler has stored to already, anew when its topic changed."""
        topic, queue_id = header.topic, header.queue_id
        self._lanes.pop((topic, queue_id), None)
        row = self._broker.topics.rows.get(topic)
        if row is None or topic in NOT_SENDABLE or topic.startswith(RETRY_PREFIX):
            return None
        if not 0 <= queue_id < max(row.write_queue_nums, row.read_queue_nums) or row.topic_filter_type != SINGLE_TAG:
            return None
        queue = self._broker.store.plain_queue(topic, queue_id)
        if queue is None:
            return None
        if len(self._lanes) >= MAX_LANES:
            self._lanes.clear()
        lane = self._lanes[topic, queue_id] = Lane(queue, row)
        return lane if self._usable(lane) else None

