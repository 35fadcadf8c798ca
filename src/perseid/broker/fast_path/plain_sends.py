"""Plain sends, the quick way: one pass from the received bytes to the bytes of the answer.

The ordinary handlers are the reference: what this stores and answers is byte for byte what they would, which a
differential test holds it to. Whatever is unusual (a first send to a queue, retries,
properties that change what is stored) is left to them; without the core binary headers too. With SYNC_FLUSH the answers
of a read wait together (`acks.wait_frames`); a send that says WAIT=false is left to the handler.

Two ways lead to the same end: `CoreSends` with the compiled core, `PlainSends` in plain Python where there is none.
`sends_of` chooses. Why a send is left to the handlers is decided in one place for both (`why_not`). Where requests have
to be signed, the core checks that, too (`signers`); plain Python leaves all to the handlers then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from perseid import core
from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer, Millis
from perseid.broker.fast_path.core_turns import MAX_TARGETS, CorePorts, CoreTurn, count_sends
from perseid.broker.fast_path.own_topics import REDIRECTED, OwnTopics
from perseid.broker.fast_path.quick_pops import QuickPops
from perseid.broker.fast_path.quick_pulls import QuickPulls
from perseid.broker.fast_path.signers import CODES, NOBODY, Signers
from perseid.broker.fast_path.why_not import (
    HEADERS,
    Facts,
    Properties,
    WhyNot,
    header_of,
    may_write,
    not_now,
    not_such,
    not_there,
    why_not,
)
from perseid.store.plain import PlainAppends, PlainQueue, packed_host
from perseid.wire import batch
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.command import JSON_END, Command, decode_at, decode_each, response_head
from perseid.wire.headers.base import quote, to_ext
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.record import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from perseid.broker.access.gate import Gate
    from perseid.broker.clients.locks import QueueLocks
    from perseid.broker.config import BrokerConfig
    from perseid.broker.consume.pull import PullRequests
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.kernel.dispatch import Dispatch
    from perseid.broker.kernel.generation import Generation
    from perseid.broker.kernel.request import Connection
    from perseid.broker.kernel.roads import Roads
    from perseid.broker.kernel.roles import Roles
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.pop.requests import PopRequests
    from perseid.broker.scheduled.delay import DelayService
    from perseid.broker.scheduled.timers import TimerService
    from perseid.broker.static_topics.mappings import TopicMappings
    from perseid.broker.transactions.service import TransactionService
    from perseid.core import Core
    from perseid.core.batch import Target as CoreTarget
    from perseid.core.retries import RetrySends as SendBatch
    from perseid.wire.ids import UniqueIds

CODE_FIRST = b'{"code":'
"""What headers in JSON begin with, most of them."""
SEND_HINTS = (b"310", b"10,", b"320")
"""What stands behind it in plain sends, at byte 16 of a frame."""
BINARY_SEND_HINTS = tuple(code.to_bytes(2, "big") for code in HEADERS)
"""What a binary header begins with, at byte 8 of a frame."""

_pack_prefix = Struct(">II").pack

ONEWAY = 2
MAX_BROKER_NAME_BYTES = 500
UNLIMITED = 2_147_483_647
"""The number of messages in one slot that is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPorts(CorePorts):
    """The parts of a broker that plain sends need."""

    answers: Answers
    roles: Roles
    mappings: TopicMappings
    transactions: TransactionService
    timers: TimerService
    delays: DelayService
    groups: SubscriptionGroupTable
    locks: QueueLocks
    pulls: PullRequests
    pops: PopRequests
    generation: Generation
    dispatch: Dispatch
    roads: Roads
    saves: Saves
    unique_ids: UniqueIds
    gate: Gate | None
    """None: requests need no signature."""


class QuickSends:
    """The quick way of one broker as its settings are now."""

    def __init__(self, ports: SendPorts) -> None:
        self._ports = ports
        self.current: CoreSends | PlainSends | None = sends_of(ports)
        ports.roads.told_by.append(self.count)

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
    if len(ports.settings.store_host.ip) != 4 or quote(region) != f'"{region}"' or ports.store.appends.lmq:
        return None
    compiled = core.compiled
    if ports.gate is not None and (compiled is None or not ports.gate.all_sign(CODES)):
        return None
    return PlainSends(ports) if compiled is None else CoreSends(ports, compiled)


def may_be_send(data: Buffer, at: int) -> bool:
    """Could the frame at `at` be a plain send? Of headers that are not written in the usual way, the core finds out."""
    hint = data[at + 16 : at + 19]
    if hint in SEND_HINTS or data[at + 8 : at + 10] in BINARY_SEND_HINTS:
        return True
    return data[at + 4 : at + 5] == b"\0" and (hint[:1] == b" " or data[at + 8 : at + 16] != CODE_FIRST)


def answer_texts(ports: SendPorts) -> tuple[bytes, ...]:
    """What stands around the five numbers of an answer: physical offset, queue id, queue offset, unique key, opaque."""
    region, trace_on = (ports.answers.own_properties[name] for name in ("MSG_REGION", "TRACE_ON"))
    texts = (
        f'{{"code":0,"extFields":{{"msgId":"{packed_host(ports.settings.store_host).hex().upper()}',
        '","queueId":"',
        '","queueOffset":"',
        '","transactionId":"',
        f'","MSG_REGION":"{region}","TRACE_ON":"{trace_on}"}},"flag":1,"language":"PYTHON","opaque":',
        f",{JSON_END}",
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
        batch: SendBatch = compiled.retries.RetrySends(
            packed_host(ports.settings.store_host), ports.answers.encoded_properties, most, texts,
            binary_answer_texts(ports),
            ports.durability.waits, ports.gate is not None, ports.settings.current.broker_name.encode(),
        )  # fmt: skip
        batch.set_waits(ports.store.appends.levels)
        super().__init__(ports, compiled, batch)
        self._batch: SendBatch = batch
        batch.give_ids(ports.unique_ids)
        self._signers = None if ports.gate is None else Signers(ports.gate, ports.dispatch, compiled)
        self._pulls = QuickPulls(ports.pulls, ports.generation, ports.mappings, compiled, self._signers, ports.roads)
        self._pops: QuickPops | None = None
        if ports.gate is None:
            self._pops = QuickPops(
                ports.pops, ports.store.queues, ports.generation, ports.mappings, compiled, ports.roads,
                ports.saves,
            )  # fmt: skip
        self._own = OwnTopics(ports, compiled, batch, self.settle)
        batch.set_limits(self._own.limit_of)
        self._config: BrokerConfig | None = None
        self._reasons = Properties(waits=ports.durability.waits)

    def unusual(self, conn: Connection, data: Buffer) -> Iterable[Command]:
        """Take the plain sends of a read; the other commands come out, all before them written.
        RemoteProtocolError at a frame that can't be read."""
        at = self._take_pulls(conn, data, self._take(conn, data, 0))
        return () if at == len(data) else self._others(conn, data, at)

    def _take(self, conn: Connection, data: Buffer, at: int) -> int:
        """Let the core take what it can from `at` on; where it stopped."""
        if may_be_send(data, at) and (self._begun or self._begin()):
            signers = NOBODY if self._signers is None else self._signers.at(conn)
            return self._batch.take(data, at, conn.packed_host, signers)
        return at

    def _take_pulls(self, conn: Connection, data: Buffer, at: int) -> int:
        """Let the core answer what it can of the pulls from `at` on, and take the sends behind them: where it
        stopped."""
        while at < len(data) and self._pulls.may_be(data, at):
            if self._batch.touched:
                self.settle()
            begin, at = at, self._pulls.take(conn, data, at)
            if at == begin:
                break
            at = self._take(conn, data, at)
        return at

    def _others(self, conn: Connection, data: Buffer, at: int) -> Iterator[Command]:
        """The commands from `at` on that the core does not take; it takes those between them."""
        view = memoryview(data)
        while at < len(view):
            may_be_pull = self._pulls.may_be(data, at)
            keys = self._pulls.keys if may_be_pull else ()
            pops = self._pops if not may_be_pull and QuickPops.may_be(data, at) else None
            if pops is not None:
                self.settle()
                begin, at = at, pops.take(conn, data, at)
                if at != begin:
                    self._ports.dispatch.only_plain = False  # something may be due sooner than before
                    at = self._take_pulls(conn, data, self._take(conn, data, at))
                    continue
            command, end = decode_at(view, at)
            if command.code == RequestCode.END_TRANSACTION and command.is_oneway:  # it is done at the turn's end
                yield command
                at = end
            elif not self._learn(conn, command):
                self._note_why(conn, command)
                self.settle()
                self.count()
                yield command
                if keys:
                    self._pulls.learn(keys, conn, command)
                if pops is not None and pops.key:
                    pops.learn(conn, command)
                at = end
            at = self._take_pulls(conn, data, self._take(conn, data, at))

    def _note_why(self, conn: Connection, command: Command) -> None:
        """Count why the core left a send to its handler, if this one's reason is looked for."""
        roads = self._ports.roads
        if command.code in HEADERS and roads.looks():
            found = why_not(self._ports, conn, command, self._reasons) or WhyNot.OTHER
            roads.add_why(command.code, found.name)

    @property
    def taken(self) -> int:
        """The messages that `answers` will answer."""
        return self._batch.taken

    def count(self) -> None:
        super().count()
        self._pulls.count()
        batch, fast = self._batch, self._ports.roads.fast
        if batch.took_310 or batch.took_10 or batch.took_320:
            for code, count in ((310, batch.took_310), (10, batch.took_10), (320, batch.took_320)):
                if count:
                    fast[code] += count
            batch.took_310 = batch.took_10 = batch.took_320 = 0

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""
        return self._batch.answers()

    def settle(self) -> None:
        if self._batch.ids_given:
            self._ports.unique_ids.pass_over(self._batch.ids_given)
        super().settle()
        self._pulls.settle()
        if self._batch.halves:
            self._ports.transactions.opened(self._batch.halves)
            self._batch.halves.clear()

    def _seen(self, targets: list[CoreTarget]) -> None:
        super()._seen(targets)
        self._own.arrived()

    def _begin(self) -> bool:
        ports = self._ports
        if ports.settings.current is not self._config:
            self._config = ports.settings.current
            self._batch.set_times(ports.timers.timers.wheel.precision_ms, most_delay_ms(ports))
        if self._own.takes_halves:
            rejected = ports.settings.current.reject_transaction_message
            self._batch.halves_left = 0 if rejected else ports.transactions.room
        return not_now(ports) is None and super()._begin()

    def _learn(self, conn: Connection, command: Command) -> bool:
        """Make a plain send's queue known to the core, and who may send there; False when it is, or the send is not
        plain."""
        header = header_of(command)
        if header is None or len(header.topic) > MAX_TOPIC_BYTES:
            return False
        found = not_there(self._ports, header)
        if found is not None and (found is not WhyNot.RETRY_TOPIC or self._signers is not None):
            return False  # who may send to a retry topic is told by the group that the request names
        row = self._ports.topics.rows[header.topic]
        learnt = self._signers is not None and self._signers.learn(conn, command, header, header.topic.encode())
        queue_id = header.queue_id
        if found is not None or REDIRECTED.search(header.properties):
            learnt = self._own.learn(header, row) or learnt
            queue_id = self._own.queue_of(header, row)
        return self._learn_queue(header.topic, queue_id, row) or learnt


def ended(properties: str) -> str:
    """Properties with the last separator, as the store would have them (store.md §3.7)."""
    return properties if properties[-1:] in ("", "\x02") else properties + "\x02"


def hashes_of(queue: PlainQueue, unique: str, facts: Facts) -> list[int]:
    """Those of all keys by which a message is found; `unique` may be none."""
    others = facts.hashes_in(queue.topic)
    return [queue.unique_hash(unique), *others] if unique else others


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


Item = tuple[int, Buffer, bytes, str, Facts]
"""A message: flag, body, properties as they are stored, unique key, and what else its properties say."""


class PlainSends:
    """The plain sends of one broker in plain Python: those of a read by `unusual`, then `settle`."""

    def __init__(self, ports: SendPorts) -> None:
        self._ports = ports
        self._answers: list[bytes] = []
        self.taken = 0
        """The messages that `answers` will answer."""
        self._appends = PlainAppends(ports.store.appends)
        self._targets: dict[tuple[str, int], Target] = {}
        self._touched: list[Target] = []
        self._uncounted: list[Target] = []
        self._properties = Properties(waits=ports.durability.waits)
        self._own = ports.answers.encoded_properties
        self._most_bytes = ports.store.config.max_message_size
        self._next_id = b"," + packed_host(ports.settings.store_host).hex().upper().encode()
        """What stands between the offsets of a batch's messages."""
        self._holds = ports.holds
        self._seen = ports.store.gate is None
        """Do readers see at once what is written?"""
        begin, *middle, end = (text.replace(b"%", b"%%") for text in answer_texts(ports))
        numbers = (b"%b", b"%d", b"%d", b"%b", b"%d")
        self._answer = begin + b"".join(n + text for n, text in zip(numbers, (*middle, end), strict=True))
        self._answer_without_key = self._answer.replace(middle[2] + b"%b", b"")
        """Of a batch that has no unique key itself."""

    def unusual(self, conn: Connection, data: Buffer) -> Iterator[Command]:
        """Take the plain sends of a read; the other commands come out, all before them written.
        RemoteProtocolError at a frame that can't be read."""
        roads = self._ports.roads
        for command in decode_each(data):
            answer = self.send(conn, command)
            if type(answer) is WhyNot:
                if command.code in HEADERS:
                    roads.add_why(command.code, answer.name, sampled=False)
                self.settle()
                self.count()
                yield command
            else:
                self.taken += 1
                roads.fast[command.code] += 1
                self._answers.append(answer)

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""
        found = b"".join(self._answers)
        self._answers.clear()
        self.taken = 0
        return found

    def send(self, conn: Connection, command: Command) -> bytes | WhyNot:
        """Take a plain message, or batch, and give the frame that answers it, `b""` for a one-way send; or why it is
        not plain: nothing has happened."""
        header = command.quick_header
        if header is None or type(header) is not HEADERS.get(command.code) or command.is_response:
            return WhyNot.NO_SEND
        body, born_host = command.body, conn.packed_host
        target = self._targets.get((header.topic, header.queue_id))
        if target is None or not target.count:
            begun = self._begin(header, target)
            if type(begun) is WhyNot:
                return begun
            target = begun
        unlike = not_such(header, body, born_host)
        if unlike is not None:
            return unlike
        text = header.properties
        read = self._properties.read(text)
        if type(read) is WhyNot:
            return read
        unique, facts = read
        if header.batch:
            items = self._items(command, target)
            if not items:
                return WhyNot.BATCH
        else:
            given = not unique
            if given:
                unique, text = self._given(text)
            items = [(header.flag, body, ended(text).encode() + self._own, unique, facts)]
        queue_offset, placed = target.queue.next, self._add(target, header, born_host, items)
        if not placed:
            return WhyNot.NO_ROOM
        if not header.batch and given:
            self._ports.unique_ids.pass_over(1)
        target.requests += 1
        return b"" if command.flag & ONEWAY else self._answered(command, target, queue_offset, placed, unique)

    def _given(self, text: str) -> tuple[str, str]:
        """The unique key of a message that has none, and its properties with it."""
        stem, counter = self._ports.unique_ids.ahead(self._ports.turn.now)
        unique = f"{stem}{counter:04X}"
        return unique, props.encode({**props.decode(text), props.UNIQ_KEY: unique}).decode()

    def _answered(self, command: Command, target: Target, queue_offset: int, placed: list[int], unique: str) -> bytes:
        """The frame that answers a send."""
        ids = self._next_id.join([b"%016X" % offset for offset in placed])
        if unique:
            key = unique if unique.isalnum() else quote(unique)[1:-1]
            head = self._answer % (ids, target.queue.queue_id, queue_offset, key.encode(), command.opaque)
        else:
            head = self._answer_without_key % (ids, target.queue.queue_id, queue_offset, command.opaque)
        return _pack_prefix(len(head) + 4, len(head)) + head

    def _items(self, command: Command, target: Target) -> list[Item]:
        """The messages of a batch, as they are to be stored; none when one is not plain, or there's no room for all."""
        if command.code != RequestCode.SEND_BATCH_MESSAGE or len(command.body) > self._most_bytes:
            return []
        items: list[Item] = []
        try:
            for flag, body, properties in batch.decode(command.body):
                text = ended(str(properties, "utf-8"))
                read = self._properties.read(text)
                if type(read) is WhyNot or not body:
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
                queue, body, properties, facts.tag_code, hashes_of(queue, unique, facts),
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

    def _begin(self, header: SendMessageRequest, target: Target | None) -> Target | WhyNot:
        """Let a target take part in this turn: its queue is still that of its topic, the topic as it was, and one may
        send. Else why not: the ordinary handler is to see to it."""
        ports = self._ports
        found = not_now(ports)
        if found is not None:
            return found
        if target is None or target.row is not ports.topics.rows.get(header.topic) or not target.queue.usable:
            found = not_there(ports, header)
            if found is not None:
                return found
            target = self._target(header)
            if target is None:
                return WhyNot.FIRST_SEND
        elif not may_write(ports, target.row):
            return WhyNot.FORBIDDEN
        if not self._appends.begin(target.queue, ports.turn.now):
            return WhyNot.NO_ROOM
        self._touched.append(target)
        return target

    def _target(self, header: SendMessageRequest) -> Target | None:
        """That of a queue that the ordinary handler has stored to already, anew when its topic changed."""
        topic, queue_id = header.topic, header.queue_id
        self._targets.pop((topic, queue_id), None)
        queue = self._ports.store.appends.plain_queue(topic, queue_id)
        if queue is None:
            return None
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        target = self._targets[topic, queue_id] = Target(queue, self._ports.topics.rows[topic])
        return target
