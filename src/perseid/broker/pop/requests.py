"""POP: POP_MESSAGE (200050), PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055): broker.md §9.

`pop/ack_requests.py` has what follows a pop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from struct import Struct
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer, Millis
from perseid.broker.consume import filter as subscription_filter
from perseid.broker.consume.filter import Filter, Work
from perseid.broker.consume.held_pops import ALL_QUEUES
from perseid.broker.consume.pull import COMPENSATE_MS, FOREVER, MAX_BYTES, MAX_SUSPEND_MS
from perseid.broker.consume.sql92 import SqlError
from perseid.broker.kernel.asks import GET, SUB, each, of_group, of_topic
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.groups import priority_factor
from perseid.broker.metadata.topics import BY_PRIORITY, FAQ, MESSAGE_TYPE
from perseid.store import lmq
from perseid.store.reads import Reads
from perseid.store.results import AppendRefused, ReadResult, ReadStatus
from perseid.store.segments import Part
from perseid.wire import pop, record
from perseid.wire import properties as props
from perseid.wire.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code
from perseid.wire.headers import pop as headers
from perseid.wire.headers.pop import PopMessageRequest, PopMessageResponse
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.pop import Checkpoint, Handle
from perseid.wire.record import Message, RecordError
from perseid.wire.topic_flags import PERM_READ

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.consume.fetches import Fetches
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.service import PopService
    from perseid.broker.produce.appender import Appender

MAX_INVISIBLE_MS = 259_200_000
"""Three days, `timerMaxDelaySec`: the original's timer wheel takes no later checkpoint."""
LATE_MS = 500
"""A pop whose time is up by so much is not looked at: nobody waits for its answer."""
FROM_FIRST = 0
"""initMode: a new group begins at the first message; otherwise at the last one."""
_SIZE = Struct(">i")
_QUEUE_OFFSET = Struct(">q")
CORRECTED = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)
_SKIPPED = (ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING)

AnyRequest = PopMessageRequest | headers.PeekMessageRequest | headers.NotificationRequest | headers.PollingInfoRequest


@dataclass(frozen=True, slots=True)
class Admitted:
    """What the checks of a pop came to: `until` then, at the latest, they have to be made again."""

    topic: TopicConfig
    group: SubscriptionGroupConfig | None
    wanted: Filter
    until: Millis


class Popped:
    """What one pop gathers, of all the queues that it looks at."""

    def __init__(self, most: int, work: Work) -> None:
        self.room = most
        self.work, self.floor = work, work.floor()
        self.size = 0
        self.rest = 0
        """Messages that are there and were not taken."""
        self.buffers: list[Buffer] = []
        self.starts: list[str] = []
        self.offsets: list[str] = []
        self.counts: list[str] = []
        self.end = -1
        """Where the last checkpoint ends in the log."""

    def is_cut(self, wanted: Filter) -> bool:
        """Has the expression cost what it may, so that nothing more is looked at?"""
        return wanted.expression is not None and self.work.left <= self.floor


@dataclass(slots=True, kw_only=True)
class PopRequests:
    """Pops, and what belongs to them."""

    turn: Turn
    settings: Settings
    reads: Reads
    topics: TopicTable
    groups: SubscriptionGroupTable
    appender: Appender
    consumers: ConsumerTable
    holds: Holds
    fetches: Fetches
    stats: Counts
    random: Random
    generation: Generation
    pop: PopService

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.POP_MESSAGE,
                headers.PopMessageRequest,
                self.pop_message,
                on_slave=OnSlave.REFUSED,
                on_vip=False,
                keeps_checks=True,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
            Route(
                Code.PEEK_MESSAGE,
                headers.PeekMessageRequest,
                self.peek_message,
                on_slave=OnSlave.REFUSED,
                on_vip=False,
                asks=each(of_topic(SUB), of_group(SUB)),
            ),
            Route(
                Code.NOTIFICATION,
                headers.NotificationRequest,
                self.notification,
                on_slave=OnSlave.REFUSED,
                on_vip=False,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
            Route(
                Code.POLLING_INFO,
                headers.PollingInfoRequest,
                self.polling_info,
                on_vip=False,
                asks=each(of_group(GET), of_topic(GET)),
            ),
        )

    def pop_message(self, request: Request) -> Reply | None:
        """Messages that nobody else gets before `invisibleTime` is over; None while a pop waits for one to arrive.

        209: too many wait; 210: nothing came in time.
        """
        header: PopMessageRequest = request.header
        if header.born_time <= 0:
            header.born_time = self.turn.now
        if self.turn.now - header.born_time - header.poll_time > LATE_MS:
            raise RequestRefused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self.settings.current.broker_ip1}] pop message is timeout too much",
            )
        admitted = self.admit(request)
        self.appender.check_load()
        found = Popped(header.max_msg_nums, self.holds.work)
        if self.pop.loaded and not self.pop.full:
            places = self.places(header, admitted.topic)
            parts = self.cold(header, admitted.wanted, places) if request.may_fetch else []
            if parts:
                self.fetches.wait(request, parts)
                return None
            self.take(header, places, admitted.wanted, found)
        return self.answer(request, header, admitted.wanted, found)

    def admit(self, request: Request) -> Admitted:
        """May this pop be answered, and with what? RequestRefused where it may not."""
        header: PopMessageRequest = request.header
        row = self._check(request, header)
        _check_numbers(header)
        wanted, until = self._wanted(header)
        return Admitted(row, self.groups.rows.get(header.consumer_group), wanted, until)

    def answer(self, request: Request, header: PopMessageRequest, wanted: Filter, found: Popped) -> Reply | None:
        """The answer to a pop that found this; None while it waits for more, or for its checkpoint to be durable."""
        service, code = self.pop, ResponseCode.SUCCESS
        if not found.buffers:
            until = self._may_hold(request, header) if not found.is_cut(wanted) else None  # there may be more at once
            if until is not None and self._hold(request, header, wanted, until):
                return None
            code = ResponseCode.POLLING_TIMEOUT if until is None else ResponseCode.POLLING_FULL
            self.stats.missed()
        elif found.rest > 0:
            self.holds.pops.more(header.topic, header.consumer_group, header.queue_id)
        reply = Reply(
            code,
            PopMessageResponse(
                pop_time=self.turn.now,
                invisible_time=header.invisible_time,
                revive_qid=pop.ORDER_QUEUE if header.order else service.revive_queue(header.invisible_time),
                rest_num=found.rest,
                start_offset_info=";".join(found.starts),
                msg_offset_info=";".join(found.offsets),
                order_count_info=";".join(found.counts) if header.order else None,
            ),
            remark="FOUND" if found.buffers else "NO_MESSAGE_IN_QUEUE",
            buffers=found.buffers,
        )
        return reply if found.end < 0 else self.appender.acknowledge(request, reply, found.end, wait=True)

    # ---- checks ----

    def _check(self, request: Request, header: AnyRequest) -> TopicConfig:
        """The topic. RequestRefused in the order of broker.md §9 where the group may not pop it."""
        config = self.settings.current
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pop message is forbidden"
            )
        row = self.topics.get(header.topic)
        if row is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if self.topics.is_special(header.topic):
            why = f"the topic[{header.topic}] has BatchCQ, or is compacted: it can only be pulled"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
        if not row.perm & PERM_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] peeking message is forbidden")
        if header.queue_id >= row.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{row.read_queue_nums}] consumer:[{request.conn.peer}]",
            )
        group = self.groups.find(header.consumer_group, config, self.turn.now)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
            )
        return row

    def _wanted(self, header: PopMessageRequest | headers.NotificationRequest) -> tuple[Filter, Millis]:
        """The filter that a request names, without one everything; and when its group has to be told of it again."""
        try:
            sql = self.settings.current.enable_property_filter
            wanted = subscription_filter.of(header.exp_type, header.exp, self.holds.work, sql=sql)
        except SqlError as error:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from error
        return wanted, self._compensate(header)

    def _compensate(self, header: PopMessageRequest | headers.NotificationRequest) -> Millis:
        """Remember what a group pops that sends no heartbeats, for those who ask; when that has to be done again."""
        consumers, name, topic = self.consumers, header.consumer_group, header.topic
        group, known = consumers.group(name), consumers.subscription(name, topic)
        expression, kind = header.exp or subscription_filter.ALL, header.exp_type
        if group is not None and topic in group.subscriptions:
            return FOREVER
        if known is not None and known.sub_string == expression and self.turn.now - known.sub_version < COMPENSATE_MS:
            return known.sub_version + COMPENSATE_MS
        plain = expression == subscription_filter.ALL or not subscription_filter.is_tag_type(kind)
        tags = [] if plain else subscription_filter.tags(expression)
        subscription = SubscriptionData(
            topic=topic, sub_string=expression, tags_set=tags, code_set=sorted({tag_code(tag) for tag in tags}),
            sub_version=self.turn.now, expression_type=kind or subscription_filter.TAG,
        )  # fmt: skip
        consumers.compensate(name, subscription)
        self.generation.rise()  # pulls without a subscription of their own look at it
        return self.turn.now + COMPENSATE_MS

    # ---- popping ----

    def places(self, header: AnyRequest, row: TopicConfig) -> list[tuple[str, int]]:
        """The queues that a request looks at, in their order: of the topic, and of its retry topic, before or behind.
        In order only the topic's own are popped."""
        config, chance = self.settings.current, self.random.randrange(100)
        by_priority = self._is_by_priority(header, row, chance)
        in_turn = self._in_order_of_priority() if by_priority else _from(chance)
        queues = in_turn(row.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        own = [(header.topic, queue_id) for queue_id in queues]
        if getattr(header, "order", None):
            return own
        names = [self.pop.retry_topic(header.topic, header.consumer_group)]
        if config.enable_retry_topic_v2 and config.retrieve_message_from_pop_retry_topic_v1 and chance % 2 == 0:
            names = [
                pop.retry_topic_v1(header.topic, header.consumer_group)
            ]  # one of both: a handle tells only `retry`
        retries: list[tuple[str, int]] = []
        for name in names:
            retry = self.topics.get(name) if not header.topic.startswith(RETRY_PREFIX) else None
            if retry is not None:
                retries += [(name, queue_id) for queue_id in in_turn(retry.read_queue_nums)]
        sooner = config.pop_from_retry_probability_for_priority if by_priority else config.pop_from_retry_probability
        return retries + own if chance < sooner else own + retries

    def _in_order_of_priority(self) -> Callable[[int], list[int]]:
        """So many queues, in the order of their priorities."""
        ascending = self.settings.current.priority_order_asc
        return lambda count: list(range(count - 1, -1, -1) if ascending else range(count))

    def _is_by_priority(self, header: AnyRequest, row: TopicConfig, chance: int) -> bool:
        """Does a pop look at the queues by their priority, which is their number? Most of a group's pops do."""
        if row.attributes.get(MESSAGE_TYPE) != BY_PRIORITY or not isinstance(header, PopMessageRequest) or header.order:
            return False
        group = self.groups.get(header.consumer_group)
        return group is None or chance < priority_factor(group)

    def cold(
        self, header: PopMessageRequest, wanted: Filter, places: Iterable[tuple[str, int]]
    ) -> list[Part]:
        """What has to be fetched from the disk first, before a pop of these queues does not wait for it in its turn."""
        reads, service = self.reads, self.pop
        if reads.all_hot:
            return []
        for topic, queue_id in places:
            at = service.position(topic, header.consumer_group, queue_id)
            each = wanted.expression is not None
            parts = reads.cold(topic, queue_id, at or 0, header.max_msg_nums, wanted.codes, each)
            if parts:
                return parts
        return []

    def take(
        self, header: PopMessageRequest, places: Iterable[tuple[str, int]], wanted: Filter, found: Popped
    ) -> None:
        """Take messages of each queue in turn, until there are enough."""
        for topic, queue_id in places:
            self._pop_queue(header, topic, queue_id, wanted, found)

    def _pop_queue(self, header: PopMessageRequest, topic: str, queue_id: int, wanted: Filter, found: Popped) -> None:
        service, reads, group = self.pop, self.reads, header.consumer_group
        service.take_reset(topic, group, queue_id)
        if header.order and service.order.blocked(topic, group, queue_id, header.attempt_id, self.turn.now):
            return
        start = service.position(topic, group, queue_id)
        if start is None:
            start = self.first_position(header.init_mode, topic, queue_id)
            service.skip(topic, group, queue_id, start)
        if found.room <= 0 or found.size >= MAX_BYTES or service.full or found.is_cut(wanted):
            found.rest += max(0, reads.max_offset(topic, queue_id) - start)
            return
        if start == reads.max_offset(topic, queue_id):
            return
        read = self._read(topic, queue_id, start, wanted, found)
        if read.status in CORRECTED:
            start = read.next_offset
            service.skip(topic, group, queue_id, start)
            read = self._read(topic, queue_id, start, wanted, found)
        found.rest += max(0, read.max_offset - read.next_offset)
        if read.count:
            self._hand_out(header, topic, queue_id, start, read, found)
        elif read.status in _SKIPPED:
            service.skip(topic, group, queue_id, read.next_offset)

    def _read(self, topic: str, queue_id: int, start: int, wanted: Filter, found: Popped) -> ReadResult:
        size = MAX_BYTES - found.size
        wants_record = wanted.wants_record(found.work, found.floor)
        return self.reads.read(topic, queue_id, start, found.room, size, wanted.wants_tag, wants_record)

    def first_position(self, init_mode: int, topic: str, queue_id: int) -> int:
        """Where a group begins that is new in a queue."""
        reads = self.reads
        low, high = reads.min_offset(topic, queue_id), reads.max_offset(topic, queue_id)
        if init_mode == FROM_FIRST or topic.startswith(RETRY_PREFIX):
            return low
        if self.settings.current.init_pop_offset_by_check_msg_in_mem and low <= 0:
            unit = reads.unit(topic, queue_id, 0)
            if unit is not None and reads.in_memory(unit.physical_offset):
                return 0
        return max(0, high - 1)

    def _hand_out(
        self, header: PopMessageRequest, topic: str, queue_id: int, start: int, read: ReadResult,
        found: Popped,
    ) -> None:  # fmt: skip
        """Messages of one queue go out: behind a checkpoint, or in order."""
        service, group, now = self.pop, header.consumer_group, self.turn.now
        offsets = offsets_of(read, start, topic)
        if header.order:
            counts = service.order.popped(
                topic, group, queue_id, offsets, header.attempt_id, now, header.invisible_time
            )
            if counts is None:
                found.rest += read.count
                return
            found.counts += counts
        else:
            checkpoint = Checkpoint(
                topic,
                group,
                queue_id,
                start,
                now,
                header.invisible_time,
                self.settings.current.broker_name,
                tuple(offsets),
            )
            if service.has(checkpoint.key):  # popped, set back and popped again in one moment
                found.rest += read.count
                return
            try:
                stored = service.open(checkpoint, read.next_offset)
            except AppendRefused as refused:
                if not found.buffers:
                    raise self.appender.refusal(refused) from None
                found.rest += read.count
                return
            found.end = stored.physical_offset + stored.size
        found.starts.append(pop.start_info(topic, queue_id, start))
        found.offsets.append(pop.offsets_info(topic, queue_id, offsets))
        found.room -= read.count
        found.size += read.total_bytes
        self.stats.got(group, header.topic, read.count)
        if topic == header.topic or self.settings.current.pop_response_return_actual_retry_topic:
            found.buffers += read.buffers
        else:
            handle = Handle(
                start, now, header.invisible_time, service.revive_queue(header.invisible_time), pop.retry_of(topic),
                self.settings.current.broker_name, queue_id,
            )  # fmt: skip
            found.buffers += _renamed(read.buffers, header.topic, handle)

    # ---- waiting ----

    def _may_hold(self, request: Request, header: PopMessageRequest | headers.NotificationRequest) -> Millis | None:
        """Until when a request may wait; None: it may not."""
        if not request.may_hold or header.poll_time <= 0:
            return None
        until = min(header.born_time + header.poll_time, self.turn.now + MAX_SUSPEND_MS)
        return until if until > self.turn.now else None

    def _hold(
        self, request: Request, header: PopMessageRequest | headers.NotificationRequest, wanted: Filter,
        until: Millis,
    ) -> bool:  # fmt: skip
        """Let a request wait for something to pop; False: too many do."""
        wants = wanted.wants_tag
        arrival = None if wants is None else lambda code, _: wants(code)
        request.command.keep()
        return self.holds.pops.hold(
            request, header.topic, header.consumer_group, max(header.queue_id, ALL_QUEUES), arrival, until,
            takes=isinstance(header, PopMessageRequest),
        )  # fmt: skip

    def notification(self, request: Request) -> Reply | None:
        """Is there something to pop? Answered when there is, or when the time is up."""
        header: headers.NotificationRequest = request.header
        if header.born_time <= 0:
            header.born_time = self.turn.now
        row = self._check(request, header)
        wanted, _ = self._wanted(header)
        has = self.pop.loaded and any(
            self._has_message(header, topic, queue_id) for topic, queue_id in self.places(header, row)
        )
        until = None if has else self._may_hold(request, header)
        if until is not None and self._hold(request, header, wanted, until):
            return None
        return Reply(header=headers.NotificationResponse(has_msg=has, polling_full=until is not None))

    def _has_message(self, header: headers.NotificationRequest, topic: str, queue_id: int) -> bool:
        service, group = self.pop, header.consumer_group
        if header.order and service.order.blocked(topic, group, queue_id, header.attempt_id, self.turn.now):
            return False
        start = service.position(topic, group, queue_id)
        low, high = self.reads.min_offset(topic, queue_id), self.reads.max_offset(topic, queue_id)
        return high > (low if start is None else start)

    def polling_info(self, request: Request) -> Reply:
        """How many members of a group wait for a queue."""
        header: headers.PollingInfoRequest = request.header
        self._check(request, header)
        number = self.holds.pops.polling(header.topic, header.consumer_group, header.queue_id)
        return Reply(header=headers.PollingInfoResponse(polling_num=number))

    def peek_message(self, request: Request) -> Reply:
        """The messages that a pop would get now; nothing changes."""
        header: headers.PeekMessageRequest = request.header
        row = self._check(request, header)
        found = Popped(min(max(header.max_msg_nums, 0), pop.MAX_MESSAGES), self.holds.work)
        for topic, queue_id in self.places(header, row):
            start = self.pop.position(topic, header.consumer_group, queue_id)
            start = max(0 if start is None else start, self.reads.min_offset(topic, queue_id))
            found.rest += max(0, self.reads.max_offset(topic, queue_id) - start)
            if found.room <= 0 or found.size >= MAX_BYTES:
                continue
            read = self._read(topic, queue_id, start, Filter(), found)
            if read.status in CORRECTED:
                read = self._read(topic, queue_id, read.next_offset, Filter(), found)
            found.buffers += read.buffers
            found.room -= read.count
            found.size += read.total_bytes
        answer = PopMessageResponse(rest_num=found.rest)
        if not found.buffers:
            return Reply(ResponseCode.PULL_NOT_FOUND, answer, remark="NO_MESSAGE_IN_QUEUE")
        return Reply(header=answer, remark="FOUND", buffers=found.buffers)


def _check_numbers(header: PopMessageRequest) -> None:
    if not 1 <= header.max_msg_nums <= pop.MAX_MESSAGES:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"a pop takes 1 to {pop.MAX_MESSAGES} messages, not {header.max_msg_nums}",
        )
    if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}",
        )


def _from(chance: int) -> Callable[[int], list[int]]:
    """So many queues, beginning with any."""
    return lambda count: [(chance + number) % count for number in range(count)]


def offsets_of(read: ReadResult, start: int, topic: str) -> list[int]:
    """Of the messages that were read, in their queue."""
    if read.next_offset - start == read.count:
        return list(range(start, read.next_offset))
    if lmq.is_lmq(topic):
        records = record.decode_all(b"".join(read.buffers), check_crc=False)
        light = (dict(lmq.units(one.topic, one.properties, one.physical_offset)) for one in records)
        return [of.get(topic, one.queue_offset) for of, one in zip(light, records, strict=True)]
    return [
        _QUEUE_OFFSET.unpack_from(buffer, at + record.QUEUE_OFFSET_AT)[0]
        for buffer in read.buffers
        for at in _places_in(buffer)
    ]


def _places_in(buffer: Buffer) -> Iterable[int]:
    """Where the records of a buffer begin."""
    at = 0
    while at < len(buffer):
        yield at
        at += _SIZE.unpack_from(buffer, at)[0]


def _renamed(buffers: Iterable[Buffer], topic: str, handle: Handle) -> Iterable[bytes]:
    """Messages of a retry topic as messages of their own topic, with the handle that only we can make then."""
    for buffer in buffers:
        try:
            records = record.decode_all(buffer, check_crc=False)
        except RecordError as error:
            raise AssertionError(f"the store gave what is no record: {error}") from error
        for one in records:
            properties = dict(one.props)
            properties.setdefault(props.POP_CK, str(handle._replace(offset=one.queue_offset)))
            message = Message(
                topic=topic, body=one.body, queue_id=one.queue_id, flag=one.flag, sys_flag=one.sys_flag,
                born_timestamp=one.born_timestamp, born_host=one.born_host, store_host=one.store_host,
                reconsume_times=one.reconsume_times, prepared_transaction_offset=one.prepared_transaction_offset,
                properties=props.encode(properties),
            )  # fmt: skip
            made = record.encode(message)
            record.patch(made, one.queue_offset, one.physical_offset, one.store_timestamp)
            yield bytes(made)
