"""The operator's and the auditor's clients: topics, queries; and the reading of everything at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.sim.facts import Stored
from perseid.sim.models.broker.checkers import read_answer
from perseid.sim.models.broker.client import Client
from perseid.sim.promises import Violation
from perseid.sim.promises.timers import may_wait
from perseid.wire.bodies import TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    SearchOffsetByTimestampRequest,
)
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.query import QueryMessageRequest, ViewMessageByIdRequest
from perseid.wire.headers.topics import CreateTopicRequest
from perseid.wire.names import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC
from perseid.wire.record import Record

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

SUBSCRIPTION = 4
FAR_MS = 1 << 42
QUESTIONS: tuple[tuple[RequestCode, dict[str, str] | None], ...] = (
    (RequestCode.GET_BROKER_RUNTIME_INFO, None),
    (RequestCode.GET_BROKER_CONFIG, None),
    (RequestCode.GET_ALL_TOPIC_CONFIG, None),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None),
    (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers"}),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "readers"}),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "tagged"}),
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "events"}),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "events", "group": "readers"}),
    (RequestCode.QUERY_CORRECTION_OFFSET, {"compareGroup": "readers", "topic": "orders"}),
)
UNAVAILABLE = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)
"""Answers of a broker that can't serve now."""
READ_ATTEMPTS = 40


def create_topic(name: str, queues: int, attributes: str | None = None) -> CreateTopicRequest:
    """The request that makes a topic with so many queues."""
    return CreateTopicRequest(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=attributes,
    )


class Operator(Client):
    """Asks and changes things, one after the other."""

    def __init__(self, cluster: Cluster, name: str, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.pause_ms = pause_ms

    def work(self) -> None:
        actions = (self.bounds, self.by_time, self.by_id, self.by_key, self.info, self.refused, self.send_back)
        action = self.random.choice(actions)
        if self.scheduler.chosen.has(f"operator/{action.__name__}"):
            action()
        self.later(0, 2 * self.pause_ms, self.work)

    def prepare(self) -> None:
        """Create the topics of this run, straight at the broker."""
        for topic in self.cluster.topics:
            self._create(topic.name, topic.queues, "+queue.type=BatchCQ" if topic.batches else None)

    def _create(self, name: str, queues: int, attributes: str | None) -> None:
        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.cluster.created.add(name)
                return
            refused = reply is not None and reply.code == ResponseCode.SYSTEM_ERROR  # it may be there: kinds stay
            self.later(200, 500, lambda: self._create(name, queues, None if refused else attributes))

        header = create_topic(name, queues, attributes)
        self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header, answered, address=self.cluster.broker_address)

    # ---- actions ----

    def bounds(self) -> None:
        topic, queue_id = self._queue()
        floor, since_us = self.history.order.known_max(topic, queue_id), self.scheduler.now_us

        def maximum(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                end = reply.header(OffsetResponse).offset
                self.history.order.saw_max(topic, queue_id, end, floor)
                self.history.queues.ends(topic, queue_id, end, since_us, self.scheduler.now_us)

        self.call(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic, queue_id), maximum)
        self.call(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest(topic, queue_id), lambda reply: None)

    def by_time(self) -> None:
        topic, queue_id = self._queue()
        timestamp = self.cluster.broker.now - self.random.randrange(-5_000, 60_000)
        kind = self.random.choice((None, "LOWER", "UPPER"))
        header = SearchOffsetByTimestampRequest(topic, queue_id, timestamp, kind)

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                offset = reply.header(OffsetResponse).offset
                if offset < 0:
                    raise Violation("a time has an offset", f"{topic}/{queue_id}: {offset} at {timestamp}")

        self.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, answered)
        header2 = GetEarliestMsgStoretimeRequest(topic, queue_id)
        self.call(RequestCode.GET_EARLIEST_MSG_STORETIME, header2, lambda reply: None)

    def _any_acked(self) -> Stored | None:
        acked = self.history.order.acked
        if not acked:
            return None
        places = list(acked)
        return acked[places[self.random.randrange(len(places))]]

    def by_id(self) -> None:
        stored = self._any_acked()
        if stored is None:
            return
        life = self.cluster.broker.lives

        def answered(reply: Command | None) -> None:
            if reply is None or life != self.cluster.broker.lives:
                return
            if reply.code == ResponseCode.SUCCESS:
                records = read_answer(self.history, reply, self.scheduler.now_us)
                if [record.physical_offset for record in records] != [stored.physical]:
                    raise Violation("an id finds its message", f"{stored.sent} at {stored.physical}")
            elif reply.code == ResponseCode.SYSTEM_ERROR and stored.physical >= self.cluster.log_start():
                raise Violation("an id finds its message", f"{stored.sent} at {stored.physical}: {reply.remark}")

        self.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageByIdRequest(stored.physical), answered)

    def by_key(self) -> None:
        stored = self._any_acked()
        if stored is None:
            return
        key = stored.sent.key or "common"
        self._query(stored if stored.sent.key else None, stored.sent.topic, key)

    def _query(self, stored: Stored | None, topic: str, key: str) -> None:
        life = self.cluster.broker.lives

        def answered(reply: Command | None) -> None:
            if reply is None or life != self.cluster.broker.lives or reply.code not in (0, 22):
                return
            records = read_answer(self.history, reply, self.scheduler.now_us)
            if stored is None or stored.physical < self.cluster.log_start() or not self.cluster.index_whole:
                return
            if stored.physical not in [record.physical_offset for record in records]:
                raise Violation(
                    "a key finds its message", f"{stored.sent} ({key}) at {stored.physical}: {reply.remark}"
                )

        self.call(RequestCode.QUERY_MESSAGE, QueryMessageRequest(topic, key, 64, 0, FAR_MS), answered)

    def refused(self) -> None:
        """Ask for what has to be refused."""
        topic = self.cluster.topics[0].name
        header = {"a": "g", "b": topic, "c": AUTO_CREATE_TOPIC, "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
        choice = self.random.randrange(4)
        if choice == 0:
            body = bytes(self.cluster.log_file_bytes)
            self._refused(RequestCode.SEND_MESSAGE_V2, header, ResponseCode.MESSAGE_ILLEGAL, body)
        elif choice == 1:
            self._refused(RequestCode.SEND_MESSAGE_V2, {**header, "e": "99"}, ResponseCode.INVALID_PARAMETER)
        elif choice == 2:
            wrong = {**header, "b": SCHEDULE_TOPIC}
            self._refused(RequestCode.SEND_MESSAGE_V2, wrong, ResponseCode.NO_PERMISSION)
        else:
            self._refused(RequestCode.QUERY_BROKER_OFFSET, {}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def _refused(self, code: RequestCode, header: dict[str, str], expected: int, body: bytes = b"x") -> None:
        def answered(reply: Command | None) -> None:
            isolated = (ResponseCode.SYSTEM_BUSY,) if self.cluster.slaves.acting is not None else ()
            if reply is not None and reply.code not in (expected, *UNAVAILABLE, *isolated):
                raise Violation("what is wrong is refused", f"{code.name} {header}: {reply.code} {reply.remark}")

        self.call(code, header, answered, body)

    def info(self) -> None:
        """Ask for something that only has to be answered."""
        code, header = self.random.choice(QUESTIONS)
        self.call(code, header, lambda reply: None)

    def send_back(self) -> None:
        """Let a message come again later, in its group's retry topic."""
        stored = self._any_acked()
        if stored is not None:
            stored.sent.sent_back = True
            header = ConsumerSendMsgBackRequest(offset=stored.physical, group="readers", delay_level=1)
            self.call(RequestCode.CONSUMER_SEND_MSG_BACK, header, lambda reply: None)

    def _queue(self) -> tuple[str, int]:
        topic = self.random.choice(self.cluster.topics)
        return topic.name, self.random.randrange(topic.queues)


class Auditor(Client):
    """Reads all queues from their first message to their last, when all is well again."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.records: dict[tuple[str, int], list[Record]] = {}
        self.left = sum(topic.queues + 1 for topic in cluster.topics)

    def work(self) -> None:
        for topic in self.cluster.topics:
            self._route(topic.name, topic.queues)
            for queue_id in range(topic.queues):
                self.records[topic.name, queue_id] = []
                self._read(topic.name, queue_id, 0, READ_ATTEMPTS)

    def _route(self, topic: str, queues: int) -> None:
        """The name server tells clients where the topic is, as soon as the broker has told it."""

        def answered(reply: Command | None) -> None:
            rows = TopicRouteData.from_json(reply.body).queue_datas if reply is not None and not reply.code else []
            if [(row.broker_name, row.write_queue_nums) for row in rows] == [(self.cluster.broker_name, queues)]:
                self.left -= 1
            else:
                self.later(500, 1_500, lambda: self._route(topic, queues))

        address = self.cluster.namesrv_address
        self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopicRequest(topic), answered, address=address)

    def _read(self, topic: str, queue_id: int, offset: int, attempts: int) -> None:
        floor = self.history.order.known_max(topic, queue_id)
        header = PullMessageRequest("auditors", topic, queue_id, offset, 32, SUBSCRIPTION, 0, 0, 0, subscription="*")

        def answered(reply: Command | None) -> None:
            if reply is None:
                raise Violation("a pull is answered", f"{topic}/{queue_id} at {offset}: nothing came, and all is well")
            if reply.code not in (0, 19, 20, 21):
                if not attempts:
                    why = f"{reply.code} {reply.remark}"
                    raise Violation("everything can be read", f"{topic}/{queue_id} at {offset}: {why}")
                self.later(50, 200, lambda: self._read(topic, queue_id, offset, attempts - 1))
                return
            answer = reply.header(PullMessageResponse)
            records = read_answer(self.history, reply, self.scheduler.now_us)
            self.history.order.pulled(
                topic,
                queue_id,
                offset,
                records,
                answer.next_begin_offset,
                all_tags=True,
                log_start=self.cluster.log_start(),
            )
            self.history.order.saw_max(topic, queue_id, answer.max_offset, floor)
            self.records[topic, queue_id] += records
            if answer.next_begin_offset >= answer.max_offset:
                self.left -= 1
            elif answer.next_begin_offset == offset:
                raise Violation(
                    "everything can be read", f"{topic}/{queue_id}: {reply.code} at {offset} of {answer.max_offset}"
                )
            else:
                self._read(topic, queue_id, answer.next_begin_offset, READ_ATTEMPTS)

        self.call(RequestCode.PULL_MESSAGE, header, answered)

    # ---- what all of it says ----

    def check(self) -> None:
        """Compare what was read with the history."""
        self._acknowledged()
        for (topic, queue_id), records in self.records.items():
            self._order(topic, queue_id, records)
        self._delayed()

    def _acknowledged(self) -> None:
        seen = {
            (topic, queue_id, record.queue_offset): record.physical_offset
            for (topic, queue_id), records in self.records.items()
            for record in records
        }
        for place, stored in self.history.order.acked.items():
            if seen.get((place.topic, place.queue_id, place.offset)) != stored.physical:
                raise Violation("nothing acknowledged is lost", f"{stored.sent} at {place} was not read at the end")

    def _order(self, topic: str, queue_id: int, records: list[Record]) -> None:
        """The first appearances of what an ordered producer sent to a queue are in its order. What comes again may
        have come first in a file that is gone: every place that anyone was told of counts."""
        last: dict[str, int] = {}
        for record in records:
            sent = self.history.sent[bytes(record.body[:8])]
            if not sent.producer.startswith("ordered"):
                continue
            places = [place.offset for place in sent.places if (place.topic, place.queue_id) == (topic, queue_id)]
            if record.queue_offset <= min(places):
                if sent.ordinal < last.get(sent.producer, 0):
                    raise Violation(
                        "one producer's order", f"{topic}/{queue_id}: {sent} comes after {last[sent.producer]}"
                    )
                last[sent.producer] = sent.ordinal

    @property
    def seen(self) -> set[bytes]:
        """The values that were read."""
        return {bytes(record.body[:8]) for records in self.records.values() for record in records}

    def _delayed(self) -> None:
        seen, now = self.seen, self.cluster.broker.now
        for value, stored in self.history.delayed.items():
            if stored.sent.deliver_at is not None:
                self.cluster.count("timed message came" if value in seen else "timed message waits at the end")
            if value not in seen and not may_wait(stored.sent, now):
                raise Violation("delayed messages arrive", f"{stored.sent}, log {stored.physical}")
