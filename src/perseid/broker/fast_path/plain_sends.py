"""Plain sends, the quick way: one pass from the received bytes to the bytes of the answer.

The ordinary handlers are the reference: what this stores and answers is byte for byte what they would, which a
differential test holds it to. Whatever is unusual (a first send to a queue, delays, retries, transactions,
properties that change what is stored, ids that JSON would have to escape) is left to them; without the core
binary headers too. With SYNC_FLUSH the answers of a read wait together (`acks.wait_frames`); a send that says
WAIT=false is left to the handler.

Two ways lead to the same end: `CoreSends` with the compiled core, `PlainSends` in plain Python where there is none.
`sends_of` chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from perseid import core
from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Buffer, Millis
from perseid.broker.fast_path.core_turns import MAX_TARGETS, CorePorts, CoreTurn, count_sends
from perseid.broker.fast_path.quick_pulls import QuickPulls
from perseid.broker.metadata.system_topics import NOT_SENDABLE, PERM_WRITE
from perseid.core.layout import INDEXED_TAG, PLAIN_SYS_FLAGS
from perseid.store.dispatch import key_hash
from perseid.store.plain import PlainAppends, PlainQueue, packed_host
from perseid.wire import batch
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import VERSION, RequestCode, Serializer
from perseid.wire.command import Command, decode_at, decode_each, response_head
from perseid.wire.hashing import tag_code
from perseid.wire.headers.base import quote, to_ext
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from perseid.wire.names import HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC
from perseid.wire.record import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from perseid.broker.config import BrokerConfig
    from perseid.broker.consume.pull import PullRequests
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.kernel.generation import Generation
    from perseid.broker.kernel.request import Connection
    from perseid.broker.kernel.roles import Roles
    from perseid.broker.scheduled.timers import TimerService
    from perseid.broker.static_topics.mappings import TopicMappings
    from perseid.broker.transactions.service import TransactionService
    from perseid.core import Core
    from perseid.core.batch import Target as CoreTarget
    from perseid.core.redirects import Sends as RedirectingBatch

HEADERS: dict[int, type[SendMessageRequest]] = {
    10: SendMessageRequest,
    310: SendMessageRequestV2,
    320: SendMessageRequestV2,
}

NOT_PLAIN = frozenset((*props.CHANGING_NAMES, ""))

SEND_HINTS = (b"310", b"10,", b"320")
"""What stands behind `{"code":` in plain sends, at byte 16 of a frame."""
BINARY_SEND_HINTS = tuple(code.to_bytes(2, "big") for code in HEADERS)
"""What a binary header begins with, at byte 8 of a frame."""

_pack_prefix = Struct(">II").pack

SINGLE_TAG = "SINGLE_TAG"
MAX_FACTS = 10_000
MAX_FACTS_CHARS = 1_000
"""Longer properties are read each time."""
MAX_TOPICS_OF_FACTS = 100
ONEWAY = 2
HALF = "TRAN_MSG\x01"
REDIRECTED = re.compile(f"TIMER_DE|{HALF}")
"""Stands in the properties of sends that go to a topic of the broker's own."""
MAX_BROKER_NAME_BYTES = 500
UNLIMITED = 2_147_483_647
"""The number of messages in one slot that is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPorts(CorePorts):
    """What plain sends stand on."""

    answers: Answers
    roles: Roles
    mappings: TopicMappings
    transactions: TransactionService
    timers: TimerService
    pulls: PullRequests
    generation: Generation


class QuickSends:
    """The quick way of one broker as its settings are now."""

    def __init__(self, ports: SendPorts) -> None:
        self._ports = ports
        self.current: CoreSends | PlainSends | None = sends_of(ports)

    def renew(self) -> None:
        """Settings have changed that it was made of."""
        self.count()
        self.current = sends_of(self._ports)

    def count(self) -> None:
        """Tell the statistics what was sent."""
        if self.current is not None:
            self.current.count()


def sends_of(ports: SendPorts) -> CoreSends | PlainSends | None:
    """The quickest way that there is; None when no send can be plain."""
    region = ports.answers.own_properties["MSG_REGION"]
    if len(ports.settings.store_host.ip) != 4 or quote(region) != f'"{region}"' or ports.store.lmq:
        return None
    compiled = core.compiled
    return PlainSends(ports) if compiled is None else CoreSends(ports, compiled)


def answer_texts(ports: SendPorts) -> tuple[bytes, ...]:
    """What stands around the five numbers of an answer: physical offset, queue id, queue offset, unique key, opaque."""
    region, trace_on = (ports.answers.own_properties[name] for name in ("MSG_REGION", "TRACE_ON"))
    texts = (
        f'{{"code":0,"extFields":{{"msgId":"{packed_host(ports.settings.store_host).hex().upper()}',
        '","queueId":"',
        '","queueOffset":"',
        '","transactionId":"',
        f'","MSG_REGION":"{region}","TRACE_ON":"{trace_on}"}},"flag":1,"language":"PYTHON","opaque":',
        f',"version":{VERSION}}}',
    )
    return tuple(text.encode() for text in texts)


def binary_answer_texts(ports: SendPorts) -> tuple[bytes, ...]:
    """The same of a binary header, around the four values of its ext fields: each text ends with the place of a value's
    length. The first one has that of the opaque too, and ends with the host that begins the message's id."""
    values = ("ID", "QUEUE", "OFFSET", "KEY")
    sent = ports.answers.sent(values[0], 0, 0, values[3])
    ext = to_ext(sent) | {"queueId": values[1], "queueOffset": values[2]}
    rest = response_head(0, 0, ext, serializer=Serializer.ROCKETMQ)[8:]
    texts = []
    for value in values:
        before, _, rest = rest.partition(len(value).to_bytes(4, "big") + value.encode())
        texts.append(before + bytes(4))
    texts[0] += packed_host(ports.settings.store_host).hex().upper().encode()
    return (*texts, rest)


def plain_topic(ports: SendPorts, header: SendMessageRequest) -> TopicConfig | None:
    """The topic of a send to a queue that takes plain ones; None when it takes none."""
    topic = header.topic
    row = ports.topics.rows.get(topic)
    if row is None or topic in NOT_SENDABLE or topic.startswith(RETRY_PREFIX):
        return None
    if ports.topics.is_special(topic) or topic in ports.mappings.rows:
        return None
    if not 0 <= header.queue_id < max(row.write_queue_nums, row.read_queue_nums):
        return None
    return row if row.topic_filter_type == SINGLE_TAG else None


def _header_of(command: Command) -> SendMessageRequest | None:
    """What a send says; None when it is none, or can't be read."""
    kind = HEADERS.get(command.code)
    if kind is None or command.is_response:
        return None
    try:
        return command.header(kind)
    except (RequestRefused, RemoteProtocolError):
        return None


def takes_sends(ports: SendPorts) -> bool:
    """May plain sends be stored now? If not, the ordinary handler says why."""
    if ports.roles.is_slave or ports.durability.full or ports.durability.too_few:
        return False
    return ports.settings.current.start_accept_send_request_time_stamp <= ports.turn.now


def most_delay_ms(ports: SendPorts) -> Millis:
    """How far ahead a plain send's time may be; 0 when the ordinary handler has to look at each."""
    config = ports.settings.current
    short = len(config.broker_name.encode()) <= MAX_BROKER_NAME_BYTES
    counted = config.timer_congest_num_each_slot < UNLIMITED
    return config.timer_max_delay_sec * 1000 if ports.timers.enabled and short and not counted else 0


class CoreSends(CoreTurn):
    """The plain sends of one broker by the compiled core: those of a read by `unusual`, then `settle`."""

    _ports: SendPorts

    def __init__(self, ports: SendPorts, compiled: Core) -> None:
        texts, most = answer_texts(ports), ports.store.config.max_message_size
        batch: RedirectingBatch = compiled.redirects.Sends(
            packed_host(ports.settings.store_host), ports.answers.encoded_properties, most, texts,
            binary_answer_texts(ports),
            ports.durability.waits, ports.settings.current.broker_name.encode(),
        )  # fmt: skip
        super().__init__(ports, compiled, batch)
        self._batch: RedirectingBatch = batch
        self._pulls = QuickPulls(ports.pulls, ports.generation, ports.mappings, compiled)
        self._names: dict[tuple[str, int], CoreTarget] = {}
        """Of the sends that are redirected: their targets are but names."""
        self._timer_target: CoreTarget | None = None
        self._half_target: CoreTarget | None = None
        self._config: BrokerConfig | None = None

    def unusual(self, conn: Connection, data: Buffer) -> Iterable[Command]:
        """Take the plain sends of a read; the other commands come out, all before them written.
        RemoteProtocolError at a frame that can't be read."""
        at = self._take(conn, data, 0)
        return () if at == len(data) else self._others(conn, data, at)

    def _take(self, conn: Connection, data: Buffer, at: int) -> int:
        """Let the core take what it can from `at` on; where it stopped."""
        known = data[at + 16 : at + 19] in SEND_HINTS or data[at + 8 : at + 10] in BINARY_SEND_HINTS
        if known and (self._begun or self._begin()):
            return self._batch.take(data, at, conn.packed_host)
        return at

    def _others(self, conn: Connection, data: Buffer, at: int) -> Iterator[Command]:
        """The commands from `at` on that the core does not take; it takes those between them."""
        view = memoryview(data)
        while at < len(view):
            may_be_pull = self._pulls.may_be(data, at)
            if may_be_pull:
                self.settle()
                begin, at = at, self._pulls.take(conn, data, at)
                if at != begin:
                    at = self._take(conn, data, at)
                    continue
            command, end = decode_at(view, at)
            if command.code == RequestCode.END_TRANSACTION and command.is_oneway:  # it is done at the turn's end
                yield command
                at = end
            elif not self._learn(command):
                self.settle()
                self.count()
                key = self._pulls.key if may_be_pull else b""
                yield command
                if key:
                    self._pulls.learn(key, conn, command)
                at = end
            at = self._take(conn, data, at)

    @property
    def taken(self) -> int:
        """The messages that `answers` will answer."""
        return self._batch.taken

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""
        return self._batch.answers()

    def settle(self) -> None:
        super().settle()
        if self._batch.halves:
            self._ports.transactions.opened(self._batch.halves)
            self._batch.halves.clear()

    def _seen(self, targets: list[CoreTarget]) -> None:
        super()._seen(targets)
        if self._timer_target is not None and self._timer_target.count:
            self._ports.timers.arrived()

    def _begin(self) -> bool:
        ports = self._ports
        if ports.settings.current is not self._config:
            self._config = ports.settings.current
            self._batch.set_times(ports.timers.timers.wheel.precision_ms, most_delay_ms(ports))
        if self._half_target is not None:
            rejected = ports.settings.current.reject_transaction_message
            self._batch.halves_left = 0 if rejected else ports.transactions.room
        return takes_sends(ports) and super()._begin()

    def _learn(self, command: Command) -> bool:
        """Make a plain send's queue known to the core; False when it is, or the send is not plain."""
        header = _header_of(command)
        if header is None:
            return False
        row = plain_topic(self._ports, header)
        if row is None or len(header.topic) > MAX_TOPIC_BYTES:
            return False
        if REDIRECTED.search(header.properties):
            return self._learn_name(header, row)
        return self._learn_queue(header.topic, header.queue_id, row)

    def _learn_name(self, header: SendMessageRequest, row: TopicConfig) -> bool:
        """The same for a send that goes to a topic of the broker's own."""
        timer, half = self._own_target(self._timer_target, TIMER_TOPIC), self._own_target(self._half_target, HALF_TOPIC)
        changed = timer is not self._timer_target or half is not self._half_target
        if changed:
            self.settle()  # nothing of this turn may be in a target that is no more
            self._timer_target, self._half_target = timer, half
            self._batch.redirect(timer, half)
        own = half if HALF in header.properties else timer
        known = self._names.get((header.topic, header.queue_id))
        if own is None or (known is not None and known.row is row):
            return changed
        if len(self._names) >= MAX_TARGETS:
            self._names.clear()
        target = self._make(header.topic, header.queue_id, own.queue, row)
        self._names[target.key] = target
        self._batch.learn_name(target, MAX_TARGETS)
        return True

    def _own_target(self, known: CoreTarget | None, topic: str) -> CoreTarget | None:
        """The target of a topic of the broker's own as it is now; None when there is none yet."""
        row, queue = self._ports.topics.rows.get(topic), self._ports.store.plain_queues.get((topic, 0))
        if row is None or queue is None:
            return None
        if known is not None and known.row is row and known.queue is queue:
            return known
        target: CoreTarget = self._make(topic, 0, queue, row)
        return target


class Target:
    """One queue of one topic: what stays the same from send to send, and what this turn stored there."""

    __slots__ = ("arrivals", "count", "queue", "requests", "row", "uncounted")

    def __init__(self, queue: PlainQueue, row: TopicConfig) -> None:
        self.queue = queue
        self.row = row
        self.count = self.uncounted = self.requests = 0
        """Messages of this turn; of earlier ones that the statistics don't know yet; requests that they came in."""
        self.arrivals: list[tuple[int, int]] = []
        """(queue offset, tag code) of this turn's messages, if anyone waits for some."""


class Facts:
    """What the properties of a message say of it, but for its unique key."""

    __slots__ = ("hashes", "keys", "tag_code")

    def __init__(self, tag: str, keys: list[str]) -> None:
        self.tag_code = tag_code(tag or None)
        self.keys = [*keys, INDEXED_TAG + tag] if tag else keys
        self.hashes: dict[str, list[int]] = {}
        """By topic: those of `keys`."""

    def hashes_in(self, topic: str) -> list[int]:
        """The index hashes of all keys but the unique one."""
        found = self.hashes.get(topic)
        if found is None:
            if len(self.hashes) >= MAX_TOPICS_OF_FACTS:
                self.hashes.clear()
            found = self.hashes[topic] = [key_hash(topic, key) for key in self.keys]
        return found


Item = tuple[int, Buffer, bytes, str, Facts]
"""A message: flag, body, properties as they are stored, unique key, and what else its properties say."""


class PlainSends:
    """The plain sends of one broker in plain Python: those of a read by `unusual`, then `settle`."""

    def __init__(self, ports: SendPorts) -> None:
        self._ports = ports
        self._answers: list[bytes] = []
        self.taken = 0
        """The messages that `answers` will answer."""
        self._appends = PlainAppends(ports.store)
        self._targets: dict[tuple[str, int], Target] = {}
        self._touched: list[Target] = []
        self._uncounted: list[Target] = []
        self._facts: dict[str, Facts] = {}
        self._own = ports.answers.encoded_properties
        self._waits = ports.durability.waits
        self._most_bytes = ports.store.config.max_message_size
        self._next_id = b"," + packed_host(ports.settings.store_host).hex().upper().encode()
        """What stands between the offsets of a batch's messages."""
        self._holds = ports.holds
        self._seen = ports.store.gate is None
        """Do readers see at once what is written?"""
        begin, *middle, end = (text.replace(b"%", b"%%") for text in answer_texts(ports))
        numbers = (b"%b", b"%d", b"%d", b"%b", b"%d")
        self._answer = begin + b"".join(n + text for n, text in zip(numbers, (*middle, end), strict=True))

    def unusual(self, conn: Connection, data: Buffer) -> Iterator[Command]:
        """Take the plain sends of a read; the other commands come out, all before them written.
        RemoteProtocolError at a frame that can't be read."""
        for command in decode_each(data):
            answer = self.send(conn, command)
            if answer is None:
                self.settle()
                self.count()
                yield command
            else:
                self.taken += 1
                self._answers.append(answer)

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""
        found = b"".join(self._answers)
        self._answers.clear()
        self.taken = 0
        return found

    def send(self, conn: Connection, command: Command) -> bytes | None:
        """Take a plain message, or batch, and give the frame that answers it, `b""` for a one-way send; None: it is not
        plain, and nothing has happened."""
        header = command.quick_header
        if header is None or type(header) is not HEADERS.get(command.code) or command.is_response:
            return None
        target = self._targets.get((header.topic, header.queue_id))
        if target is None or not target.count:
            target = self._begin(header, target)
            if target is None:
                return None
        text, body = header.properties, command.body
        if header.sys_flag & ~PLAIN_SYS_FLAGS or not body or len(conn.packed_host) != 8:
            return None
        read = self._read(text)
        if read is None:
            return None
        unique, facts = read
        if header.batch:
            items = self._items(command, target)
        else:
            items = [(header.flag, body, text.encode() + self._own, unique, facts)]
        queue_offset, placed = target.queue.next, self._add(target, header, conn.packed_host, items)
        if not placed:
            return None
        target.requests += 1
        if command.flag & ONEWAY:
            return b""
        ids = self._next_id.join([b"%016X" % offset for offset in placed])
        head = self._answer % (ids, target.queue.queue_id, queue_offset, unique.encode(), command.opaque)
        return _pack_prefix(len(head) + 4, len(head)) + head

    def _read(self, text: str) -> tuple[str, Facts] | None:
        """The unique key that properties say, and all else; None when they are not plain."""
        at = text.find("UNIQ_KEY\x01") + 9
        end = text.find("\x02", at)
        if at < 9 or end < 0 or not text.isascii() or (at > 9 and text[at - 10] != "\x02"):
            return None
        unique = text[at:end]
        rest = text[:at] + text[end:]
        facts = self._facts.get(rest) or self._read_facts(rest)
        return (unique, facts) if facts is not None and unique.isalnum() else None

    def _items(self, command: Command, target: Target) -> list[Item]:
        """The messages of a batch, as they are to be stored; none when one is not plain, or there's no room for all."""
        if command.code != RequestCode.SEND_BATCH_MESSAGE or len(command.body) > self._most_bytes:
            return []
        items: list[Item] = []
        try:
            for flag, body, properties in batch.decode(command.body):
                text = str(properties, "ascii")
                if text[-1:] != "\x02":
                    text += "\x02"  # as the store would (store.md §3.7)
                read = self._read(text)
                if read is None or not body:
                    return []
                items.append((flag, body, text.encode(), *read))
        except (RemoteProtocolError, UnicodeDecodeError):
            return []
        return items if self._appends.fits(target.queue, [(len(i[1]), len(i[2])) for i in items]) else []

    def _add(self, target: Target, header: SendMessageRequest, born_host: bytes, items: list[Item]) -> list[int]:
        """Gather messages for a queue; where they will stand in the log, nowhere when there is no room."""
        queue, placed = target.queue, []
        for flag, body, properties, unique, facts in items:
            number = queue.next
            offset = self._appends.add(
                queue, body, properties, facts.tag_code, [queue.unique_hash(unique), *facts.hashes_in(queue.topic)],
                flag, header.sys_flag, header.born_timestamp, born_host, header.reconsume_times,
            )  # fmt: skip
            if offset < 0:
                break
            placed.append(offset)
            target.count += 1
            if self._holds.count and self._seen:
                target.arrivals.append((number, facts.tag_code))
        assert len(placed) in (0, len(items)), "a batch that fits has room"
        return placed

    def settle(self) -> None:
        """Before another kind of request, and at the end of a turn: write, wake who waits, trust no target further."""
        if not self._touched:
            return
        self._appends.commit()
        for target in self._touched:
            if target.count:
                if target.arrivals:
                    for queue_offset, code in target.arrivals:
                        self._holds.arrived(target.queue.topic, target.queue.queue_id, queue_offset, code)
                    target.arrivals.clear()
                if not target.uncounted:
                    self._uncounted.append(target)
                target.uncounted += target.count
                target.count = 0
        self._touched.clear()

    def count(self) -> None:
        """Tell the statistics what was sent: before anyone looks at them, and now and then."""
        for target in self._uncounted:
            count_sends(self._ports, target.queue.topic, target.uncounted, target.queue.taken_bytes, target.requests)
            target.uncounted = target.queue.taken_bytes = target.requests = 0
        self._uncounted.clear()

    def _read_facts(self, text: str) -> Facts | None:
        """What properties without the value of their unique key say; None: they are not plain."""
        pieces = text.split("\x02")
        if pieces.pop():
            return None  # the last separator is missing: the ordinary handler sets it
        tag = words = ""
        unique_keys = 0
        for piece in pieces:
            name, _, value = piece.partition("\x01")
            if name == "UNIQ_KEY":
                if value:
                    return None  # a second one
                unique_keys += 1
            elif name in NOT_PLAIN or not value or (name == "WAIT" and value == "false" and self._waits):
                return None
            elif name == "TAGS":
                tag = value
            elif name == "KEYS":
                words = value
        if unique_keys != 1:
            return None
        facts = Facts(tag, [word for word in words.split(" ") if word])
        if not words and len(text) <= MAX_FACTS_CHARS:  # the keys of a message are its own; all else is that of many
            if len(self._facts) >= MAX_FACTS:
                self._facts.clear()
            self._facts[text] = facts
        return facts

    def _begin(self, header: SendMessageRequest, target: Target | None) -> Target | None:
        """Let a target take part in this turn: its queue is still that of its topic, the topic as it was, and one may
        send. None: leave it to the ordinary handler."""
        ports = self._ports
        if target is None or target.row is not ports.topics.rows.get(header.topic) or not target.queue.usable:
            target = self._target(header)
            if target is None:
                return None
        if not takes_sends(ports):
            return None
        if target.row.order and not ports.settings.current.broker_permission & PERM_WRITE:
            return None
        if not self._appends.begin(target.queue, ports.turn.now):
            return None
        self._touched.append(target)
        return target

    def _target(self, header: SendMessageRequest) -> Target | None:
        """The target of a queue that the ordinary handler has stored to already, anew when its topic changed."""
        topic, queue_id = header.topic, header.queue_id
        self._targets.pop((topic, queue_id), None)
        row = plain_topic(self._ports, header)
        queue = self._ports.store.plain_queue(topic, queue_id)
        if row is None or queue is None:
            return None
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        target = self._targets[topic, queue_id] = Target(queue, row)
        return target
