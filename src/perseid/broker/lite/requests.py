"""Lite topics: POP_LITE_MESSAGE (200070), LITE_SUBSCRIPTION_CTL (200071), and what operators ask (200074 to 200079).

Acks and other times of what was popped so are 200051 and 200053 with a `liteTopic` (`ack`, `change`, called by
`pop/ack_requests.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer, ConnId
from perseid.broker.consume.pull import MAX_BYTES, MAX_SUSPEND_MS
from perseid.broker.kernel.asks import GET, SUB, UPDATE, a_group, a_topic, each, in_body, of_cluster, of_group, of_topic
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Connection, Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite import registry
from perseid.broker.lite.registry import Reader
from perseid.broker.lite.service import minutes_of, room
from perseid.broker.metadata.lite_attributes import bound_to, is_parent
from perseid.broker.metadata.topics import FAQ
from perseid.broker.pop.requests import LATE_MS, MAX_INVISIBLE_MS, offsets_of
from perseid.store.lmq import LMQ_QUEUE_ID
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.store.results import ReadResult, ReadStatus
from perseid.wire import lite, pop
from perseid.wire.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers import lite as headers
from perseid.wire.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from perseid.wire.pop import Handle
from perseid.wire.topic_flags import PERM_READ

if TYPE_CHECKING:
    from perseid.broker.consume.fetches import Fetches
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.lite.service import LiteService
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.service import PopService

MAX_CHANGES = 1_000
"""Of one request that says what clients read."""
MAX_NAMES = 10_000
"""Lite topics that an answer about one client names, and lite topics of one change."""
MAX_TOP = 1_000
"""Lite topics that an answer about a group names."""
_CORRECTED = frozenset(
    {
        ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL,
        ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)  # fmt: skip


LITE_SUBSCRIPTIONS = in_body(
    lite.LiteSubscriptionCtlBody,
    lambda body: (
        asked for wanted in body.subscription_set for asked in (a_group(wanted.group, SUB), a_topic(wanted.topic, SUB))
    ),
)
"""Asked for by code 200071."""


@dataclass(slots=True, kw_only=True)
class LiteRequests:
    """Requests about lite topics."""

    turn: Turn
    settings: Settings
    reads: Reads
    queues: Queues
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    holds: Holds
    fetches: Fetches
    stats: Counts
    pop: PopService
    service: LiteService
    connections: Mapping[ConnId, Connection]

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.POP_LITE_MESSAGE,
                headers.PopLiteMessageRequest,
                self.pop_lite_message,
                on_slave=OnSlave.REFUSED,
                on_vip=False,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
            Route(
                Code.LITE_SUBSCRIPTION_CTL,
                None,
                self.lite_subscription_ctl,
                on_slave=OnSlave.REFUSED,
                asks=LITE_SUBSCRIPTIONS,
            ),
            Route(Code.GET_BROKER_LITE_INFO, None, self.get_broker_lite_info, asks=of_cluster(GET)),
            Route(
                Code.GET_PARENT_TOPIC_INFO,
                headers.GetParentTopicInfoRequest,
                self.get_parent_topic_info,
                asks=of_topic(GET),
            ),
            Route(
                Code.GET_LITE_TOPIC_INFO,
                headers.GetLiteTopicInfoRequest,
                self.get_lite_topic_info,
                asks=of_topic(GET, of="parent_topic"),
            ),
            Route(
                Code.GET_LITE_CLIENT_INFO,
                headers.GetLiteClientInfoRequest,
                self.get_lite_client_info,
                asks=of_group(GET, of="group"),
            ),
            Route(
                Code.GET_LITE_GROUP_INFO,
                headers.GetLiteGroupInfoRequest,
                self.get_lite_group_info,
                asks=of_group(GET, of="group"),
            ),
            Route(
                Code.TRIGGER_LITE_DISPATCH,
                headers.TriggerLiteDispatchRequest,
                self.trigger_lite_dispatch,
                on_slave=OnSlave.REFUSED,
                asks=of_group(UPDATE, of="group"),
            ),
        )

    # ---- popping ----

    def pop_lite_message(self, request: Request) -> Reply | None:
        """Messages of the lite topics that a client reads, each of them in order: nobody of the group gets more of it
        before these are acknowledged, or `invisibleTime` is over. None while a pop waits for one to arrive.

        209: too many wait; 210: nothing came in time.
        """
        header: headers.PopLiteMessageRequest = request.header
        if header.born_time <= 0:
            header.born_time = self.turn.now
        if self.turn.now - header.born_time - header.poll_time > LATE_MS:
            raise RequestRefused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self.settings.current.broker_ip1}] pop message is timeout too much",
            )
        self._check_pop(header)
        if self._fetches(request, header):
            return None
        buffers, counts = self._pop(header)
        code = ResponseCode.SUCCESS
        if not buffers:
            until = min(header.born_time + header.poll_time, self.turn.now + MAX_SUSPEND_MS)
            if request.may_hold and until > self.turn.now:
                request.command.keep()
                where = room(header.client_id), header.consumer_group
                if self.holds.pops.hold(request, *where, LMQ_QUEUE_ID, None, until, takes=True):
                    return None
                code = ResponseCode.POLLING_FULL
            else:
                code = ResponseCode.POLLING_TIMEOUT
            self.stats.missed()
        answer = headers.PopLiteMessageResponse(
            pop_time=self.turn.now,
            invisible_time=header.invisible_time,
            revive_qid=pop.ORDER_QUEUE,
            order_count_info=";".join(counts),
        )
        remark = ReadStatus.FOUND.name if buffers else ReadStatus.NO_MESSAGE_IN_QUEUE.name
        return Reply(code, answer, remark=remark, buffers=buffers)

    def _check_pop(self, header: headers.PopLiteMessageRequest) -> None:
        config = self.settings.current
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pop message is forbidden"
            )
        if not 1 <= header.max_msg_num <= pop.MAX_MESSAGES:
            raise _invalid(f"a pop takes 1 to {pop.MAX_MESSAGES} messages, not {header.max_msg_num}")
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}")
        row = self.topics.get(header.topic)
        if row is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic [{header.topic}] not exist, apply first please! {FAQ}"
            )
        if not row.perm & PERM_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic [{header.topic}] peeking message is forbidden")
        if not is_parent(row):
            raise _invalid(f"the topic [{header.topic}] message type not match")
        group = self.groups.find(header.consumer_group, config, self.turn.now)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission,{header.consumer_group}"
            )
        if bound_to(group) != header.topic:
            raise _invalid(f"subscription bind topic not match,{header.consumer_group}")

    def _fetches(self, request: Request, header: headers.PopLiteMessageRequest) -> bool:
        """Does the pop wait for the disk? What it would look at first may not be in memory."""
        reads, events = self.reads, self.service.events.get(header.client_id)
        if not request.may_fetch or events is None or reads.all_hot:
            return False
        name = next(iter(events.names), "")
        start = self.offsets.query(name, header.consumer_group, LMQ_QUEUE_ID) or 0
        parts = reads.cold(name, LMQ_QUEUE_ID, start, header.max_msg_num, None)
        if parts:
            self.fetches.wait(request, parts)
        return bool(parts)

    def _pop(self, header: headers.PopLiteMessageRequest) -> tuple[list[Buffer], list[str]]:
        """Messages of one queue after the other for which the client has an event, and how often each was popped
        before."""
        service = self.service
        buffers: list[Buffer] = []
        counts: list[str] = []
        space, size = header.max_msg_num, 0
        while space > 0 and size < MAX_BYTES:
            name = service.next_event(header.client_id, header.consumer_group)
            if name is None:
                break
            read = self._pop_queue(header, name, space, MAX_BYTES - size, counts)
            if read is not None:
                buffers += read.buffers
                space -= read.count
                size += read.total_bytes
        return buffers, counts

    def _pop_queue(
        self, header: headers.PopLiteMessageRequest, name: str, most: int, size: int, counts: list[str]
    ) -> ReadResult | None:
        service, group, now = self.service, header.consumer_group, self.turn.now
        if service.order.blocked(name, group, LMQ_QUEUE_ID, header.attempt_id, now):
            return None
        start = self._position(name, group)
        read = self.reads.read(name, LMQ_QUEUE_ID, start, most, size)
        if read.status in _CORRECTED and read.next_offset != start:
            start = read.next_offset
            self._commit(name, group, start)
            read = self.reads.read(name, LMQ_QUEUE_ID, start, most, size)
        if not read.count:
            return None
        offsets = offsets_of(read, start, name)
        told = service.order.popped(name, group, LMQ_QUEUE_ID, offsets, header.attempt_id, now, header.invisible_time)
        if told is None:  # the same moment: acks name a batch by its time
            service.look_soon(header.client_id, group)
            return None
        counts += _counts_of(told, offsets)
        self.stats.got(group, header.topic, read.count)
        return read

    def _position(self, name: str, group: str) -> int:
        """Where a group goes on in a queue."""
        offsets = self.offsets
        reset = offsets.take_reset(name, group, LMQ_QUEUE_ID)
        if reset is not None:
            self.service.order.clear(name, group, LMQ_QUEUE_ID)
            self._commit(name, group, reset)
            return reset
        start = offsets.query(name, group, LMQ_QUEUE_ID)
        if start is None:
            start = self.reads.min_offset(name, LMQ_QUEUE_ID)  # it may have had one, which a crash took
            self._commit(name, group, start)
        return start

    def _commit(self, name: str, group: str, offset: int) -> None:
        step = self.settings.current.consumer_offset_update_version_step
        self.offsets.commit(name, group, LMQ_QUEUE_ID, offset, self.turn.now, step)

    # ---- after a pop ----

    def ack(self, header: AckMessageRequest) -> Reply:
        """A message of a lite topic is consumed. 208: there is no such message; 13: it is not of the batch that is
        out."""
        name, handle = self._delivery(header)
        group, service = header.consumer_group, self.service
        position = self.offsets.query(name, group, LMQ_QUEUE_ID) or 0
        if header.offset < position:
            return Reply()
        following = service.order.acknowledged(name, group, LMQ_QUEUE_ID, header.offset, handle.pop_time, position)
        if following is None:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if not self.offsets.has_reset(name, group, LMQ_QUEUE_ID):
            self._commit(name, group, following)
        service.goes_on(name, group)
        return Reply()

    def change(self, header: ChangeInvisibleTimeRequest) -> Reply:
        """Another time for a message of a lite topic that is out, or (`suspend`) for the whole batch."""
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}")
        name, handle = self._delivery(header)
        until, order, where = self.turn.now + header.invisible_time, self.service.order, (name, header.consumer_group)
        if header.suspend:
            found = order.put_off_all(*where, LMQ_QUEUE_ID, handle.pop_time, until)
        else:
            found = order.put_off(*where, LMQ_QUEUE_ID, header.offset, handle.pop_time, until)
        if not found:
            raise RequestRefused(ResponseCode.NO_MESSAGE, f"{name} {header.offset} is not popped any more")
        answer = ChangeInvisibleTimeResponse(
            pop_time=handle.pop_time, invisible_time=until - handle.pop_time, revive_qid=pop.ORDER_QUEUE
        )
        return Reply(header=answer)

    def _delivery(self, header: AckMessageRequest | ChangeInvisibleTimeRequest) -> tuple[str, Handle]:
        """The queue of a lite topic, and the delivery that a request names."""
        if bound_to(self.groups.get(header.consumer_group)) != header.topic:
            raise _invalid("group type or bind topic not match.")
        name = lite.queue_name(header.topic, header.lite_topic or "")
        if not 0 <= header.offset < self.service.end(name):
            raise RequestRefused(ResponseCode.NO_MESSAGE, f"offset {header.offset} of {name:.200} is illegal")
        handle = pop.parse_handle(header.extra_info)
        if header.queue_id != LMQ_QUEUE_ID or handle.revive_queue != pop.ORDER_QUEUE:
            raise _invalid("ack queue illegal.")
        return name, handle

    # ---- what clients read ----

    def lite_subscription_ctl(self, request: Request) -> Reply | None:
        """Clients say what they read: more of it, less of it, all of it, nothing. Each change is done or refused for
        itself, and the first refusal is the answer: 604 for what can't be, 2018 beyond `maxLiteSubscriptionCount`."""
        body = lite.LiteSubscriptionCtlBody.from_json(request.body) if request.body else lite.LiteSubscriptionCtlBody()
        changes = body.subscription_set
        if not 0 < len(changes) <= MAX_CHANGES:
            raise _illegal(f"LiteSubscriptionCtlRequestBody has {len(changes)} changes: it can have 1 to {MAX_CHANGES}")
        for wanted in changes:
            _check_change(wanted)
        request.command.keep()
        self._with_routes(request, changes, sorted({wanted.topic for wanted in changes if wanted.action in _ADDS}))
        return None

    def _with_routes(self, request: Request, changes: list[lite.LiteSubscriptionChange], parents: list[str]) -> None:
        """Learn whose the lite topics are, then change what clients read, and answer."""

        def found(queues: list[MessageQueue]) -> None:
            self._with_routes(request, changes, parents[1:])

        if parents:
            self.pop.routes.find(parents[0], found)
            return
        if self.connections.get(request.conn.id) is not request.conn:
            return
        reply = Reply()
        for wanted in changes:
            try:
                self._change(request, wanted)
            except RequestRefused as refused:
                if reply.code == ResponseCode.SUCCESS:
                    reply = Reply(refused.code, remark=refused.remark)
        self.turn.reply(request, reply)

    def _change(self, request: Request, wanted: lite.LiteSubscriptionChange) -> None:
        service, group = self.service, wanted.group
        if not service.leads:
            raise _illegal(
                f"{self.settings.current.broker_name} has no lite topics: it is a slave, or enableLmq is false"
            )
        if wanted.action == lite.COMPLETE_REMOVE:
            service.forget_client(wanted.client_id)
            return
        names = [lite.queue_name(wanted.topic, name) for name in dict.fromkeys(wanted.lite_topic_set)]
        if wanted.action == lite.PARTIAL_REMOVE:
            reader = service.registry.readers.get(wanted.client_id)
            for name in names if reader is not None else ():
                assert reader is not None
                service.unsubscribe(reader, name)
            return
        row = self.groups.find(group, self.settings.current, self.turn.now)
        if row is None or not row.consume_enable:
            raise _illegal("Consumer group is not allowed to consume.")
        wildcard = service.is_wildcard(group)
        if wildcard and wanted.action == lite.PARTIAL_ADD:
            raise _illegal("subscribe lite operation is not supported for this group")
        names = [] if wildcard else [name for name in names if service.is_read_here(name)]
        reader = self._reader(request, wanted, names)
        if wildcard:
            service.subscribe_wildcard(reader)
        elif wanted.action == lite.COMPLETE_ADD:
            service.subscribe_all(reader, names)
        else:
            for name in names:
                service.subscribe(reader, name, wanted.offset_option)

    def _reader(self, request: Request, wanted: lite.LiteSubscriptionChange, names: list[str]) -> Reader:
        """The client, if it may read so much."""
        table, most = self.service.registry, self.settings.current.max_lite_subscription_count
        known = table.readers.get(wanted.client_id)
        new = sum(known is None or name not in known.names for name in names)
        if table.count + new > most or (
            self.service.is_wildcard(wanted.group) and table.count >= most and known is None
        ):
            raise registry.quota(most, names[:1])
        reader = table.reader(wanted.client_id, wanted.group, wanted.topic, self.turn.now)
        reader.conn = request.conn.id
        return reader

    # ---- what operators ask ----

    def get_broker_lite_info(self, request: Request) -> Reply:
        """How much of everything there is."""
        service = self.service
        light = service.count_light()
        body = lite.BrokerLiteInfo(
            max_lmq_num=self.reads.config.max_lmq_consume_queue_num,
            current_lmq_num=light,
            lite_subscription_count=service.registry.count,
            order_info_count=len(service.order),
            cq_table_size=len({topic for topic, _ in self.queues.table}),
            offset_table_size=self.offsets.keys,
            event_map_size=len(service.events),
            topic_meta={name: minutes_of(row) for name, row in self.topics.rows.items() if is_parent(row)},
            group_meta=service.groups_by_parent(),
        )
        return Reply(body=body.to_json())

    def get_parent_topic_info(self, request: Request) -> Reply:
        """A parent's lite topics in numbers, and the groups that read them."""
        header: headers.GetParentTopicInfoRequest = request.header
        row, service = self._parent(header.topic), self.service
        body = lite.ParentTopicInfo(
            topic=header.topic,
            ttl=minutes_of(row),
            groups=service.groups_by_parent().get(header.topic),
            lmq_num=service.count_light(),
            lite_topic_count=len(service.names(header.topic)),
        )
        return Reply(body=body.to_json())

    def get_lite_topic_info(self, request: Request) -> Reply | None:
        """A lite topic's offsets, who reads it, and whether it belongs to this broker."""
        header: headers.GetLiteTopicInfoRequest = request.header
        self._parent(header.parent_topic)

        def found(queues: list[MessageQueue]) -> None:
            if self.connections.get(request.conn.id) is request.conn:
                self.turn.reply(request, Reply(body=self._lite_topic(header).to_json()))

        request.command.keep()
        self.pop.routes.find(header.parent_topic, found)
        return None

    def _lite_topic(self, header: headers.GetLiteTopicInfoRequest) -> lite.LiteTopicInfo:
        name, service, reads = lite.queue_name(header.parent_topic, header.lite_topic), self.service, self.reads
        end = service.end(name)
        readers: list[lite.ClientGroup] = []
        for group, members in service.registry.readers_of(name, header.parent_topic).items():
            if service.is_wildcard(group):
                readers.append(lite.ClientGroup(lite.EVERYBODY, group))
            else:
                readers += [lite.ClientGroup(reader.client_id, group) for reader in members[:MAX_NAMES]]
        return lite.LiteTopicInfo(
            parent_topic=header.parent_topic,
            lite_topic=header.lite_topic,
            subscriber=readers,
            topic_offset={
                "minOffset": max(0, reads.min_offset(name, LMQ_QUEUE_ID)) if end else 0,
                "maxOffset": end,
                "lastUpdateTimestamp": reads.store_time(name, LMQ_QUEUE_ID, end - 1) if end else 0,
            },
            sharding_to_broker=service.is_ours(name),
        )

    def get_lite_client_info(self, request: Request) -> Reply:
        """What a client reads, at most `maxCount` names of it."""
        header: headers.GetLiteClientInfoRequest = request.header
        self._parent(header.parent_topic)
        group = self._group(header.group)
        if bound_to(group) != header.parent_topic:
            raise _invalid(f"Subscription [{header.group}]-[{header.parent_topic}] not match.")
        reader, events = self.service.registry.readers.get(header.client_id), self.service.events.get(header.client_id)
        body = lite.LiteClientInfo(
            parent_topic=header.parent_topic,
            group=header.group,
            client_id=header.client_id,
            last_access_time=-1 if events is None else events.accessed,
            last_consume_time=0 if events is None else events.consumed,
        )
        if reader is not None:
            names = [f"{reader.parent}@{reader.group}"] if reader.wildcard else list(reader.names)
            body.lite_topic_count = len(names)
            body.lite_topic_set = names[: max(0, min(header.max_count, MAX_NAMES))]
        return Reply(body=body.to_json())

    def get_lite_group_info(self, request: Request) -> Reply:
        """How far a group is behind: in one lite topic, or in all, with those where it is furthest behind."""
        header: headers.GetLiteGroupInfoRequest = request.header
        parent = self._bound(header.group)
        body = lite.LiteGroupInfo(group=header.group, parent_topic=parent, lite_topic=header.lite_topic)
        if header.lite_topic:
            self._one_lag(body, lite.queue_name(parent, header.lite_topic))
        else:
            self._all_lags(body, max(0, min(header.top_k, MAX_TOP)))
        return Reply(body=body.to_json())

    def _one_lag(self, body: lite.LiteGroupInfo, name: str) -> None:
        reads, end = self.reads, self.service.end(name)
        if end <= 0:
            body.total_lag_count = body.earliest_unconsumed_timestamp = -1
            return
        offset = self.offsets.query(name, body.group, LMQ_QUEUE_ID)
        if offset is None:
            return
        body.total_lag_count = end - offset
        body.earliest_unconsumed_timestamp = reads.store_time(name, LMQ_QUEUE_ID, offset)
        body.lite_topic_offset_wrapper = {
            "brokerOffset": end,
            "consumerOffset": offset,
            "lastTimestamp": reads.store_time(name, LMQ_QUEUE_ID, offset - 1) if offset else 0,
            "pullOffset": 0,
        }

    def _all_lags(self, body: lite.LiteGroupInfo, most: int) -> None:
        """By count; by time nothing is gathered, as in the original without `liteLagLatencyCollectEnable`."""
        lags: list[tuple[int, str, int]] = []
        for name, queues in self.offsets.of_group(body.group):
            offset = queues.get(LMQ_QUEUE_ID)
            lag = 0 if offset is None or not lite.is_lite(name) else self.service.end(name) - offset
            if lag > 0 and offset is not None:
                lags.append((lag, name, offset))
        lags.sort(key=lambda row: (-row[0], row[1]))
        body.total_lag_count = sum(lag for lag, _, _ in lags)
        body.earliest_unconsumed_timestamp = -1
        body.lag_timestamp_top_k = []
        body.lag_count_top_k = [
            lite.LiteLagInfo(lite.lite_of(name) or "", lag, self.reads.store_time(name, LMQ_QUEUE_ID, offset))
            for lag, name, offset in lags[:most]
        ]

    def trigger_lite_dispatch(self, request: Request) -> Reply:
        """Look at all that a client reads, or that all clients of a group read, now."""
        header: headers.TriggerLiteDispatchRequest = request.header
        self._bound(header.group)
        self.service.dispatch_all(header.group, header.client_id or "")
        return Reply()

    def _parent(self, topic: str) -> TopicConfig:
        row = self.topics.get(topic)
        if row is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{topic}] not exist.")
        if not is_parent(row):
            raise _invalid(f"Topic [{topic}] type not match.")
        return row

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self.groups.find(name, self.settings.current, self.turn.now)
        if group is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist.")
        return group

    def _bound(self, name: str) -> str:
        """The parent topic of a group."""
        parent = bound_to(self._group(name))
        if not parent:
            raise _invalid(f"Group [{name}] is not a LITE group.")
        return parent


def _counts_of(told: list[str], offsets: list[int]) -> list[str]:
    """orderCountInfo of the messages of one queue: how often each was popped before. (The original names some of them
    only, when only some were: a client reads nothing out of that.)"""
    known = {}
    for part in told[:-1]:
        _, where, count = part.split(" ")
        known[int(where.partition("%")[2])] = count
    return [known.get(offset, "0") for offset in offsets]


_ADDS = (lite.PARTIAL_ADD, lite.COMPLETE_ADD)


def _check_change(wanted: lite.LiteSubscriptionChange) -> None:
    for what, text in (("clientId", wanted.client_id), ("group", wanted.group), ("topic", wanted.topic)):
        if not text or text.isspace() or len(text) > 255:
            raise _illegal(f"{what} {text!r:.80} is blank, or too long")
    if wanted.action not in lite.ACTIONS:
        raise _illegal(f"action {wanted.action!r:.80} is none of {', '.join(lite.ACTIONS)}")
    if len(wanted.lite_topic_set) > MAX_NAMES:
        raise registry.quota(MAX_NAMES)
    option = wanted.offset_option
    if option is not None and (option.type not in lite.OPTIONS or option.value < 0):
        raise _illegal(f"offsetOption {option.type:.80} {option.value} can't be")


def _invalid(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.INVALID_PARAMETER, why)


def _illegal(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.ILLEGAL_OPERATION, why)
