"""What simulated clients do: producers of four kinds, pulling consumers, an operator, a peer that misbehaves.

Each acts, waits a little, and acts again until it is stopped. What they send and what they are told goes into
the history, which checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perseid.sim.facts import LOOSE, Place, Sent
from perseid.sim.models.broker.checkers import SEND_OK, read_answer
from perseid.sim.models.broker.client import Client
from perseid.sim.net import End
from perseid.sim.promises.linear_queues import NEVER_US
from perseid.sim.promises.offsets import Commits
from perseid.sim.promises.ordering import check_bounds
from perseid.wire import batch
from perseid.wire import properties as props
from perseid.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.ids import parse_offset_message_id
from perseid.wire.names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

TAGS = ("TagA", "TagB", None)
BODY_SIZES = (8, 8, 40, 200, 700, 2_000)
LARGE_BODY = 9_000
"""More than half of the smallest log file, so that such a message often begins a new one."""
UNIFORM_BODY = 120
TIMED = 0.7
"""Of delayed messages: those for a time."""
MAX_WAIT_MS = 14_000
COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4
LOOKS = 0.3
"""Of the commits that were answered: after those the group asks where it is."""
HELD_US = 100_000
"""A pull that is answered later than this was held."""


class Producer(Client):
    """Sends values: alone or in batches, with or without waiting for the answer."""

    kind = "single"

    def __init__(self, cluster: Cluster, name: str, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.pause_ms = pause_ms * cluster.scheduler.pace
        self.ordinal = 0

    def work(self) -> None:
        burst = self.random.choice((1, 1, 1, 2, 6))
        for _ in range(burst):
            self.send_one()
        self.later(0, 2 * self.pause_ms * burst, self.work)

    def send_one(self) -> None:
        topic, queue_id = self._queue()
        if self.random.random() < 0.2:
            queue_id = -1
        sent = self.message(topic, queue_id)
        self.transmit([sent], retries=self.random.choice((0, 0, 1)))

    # ---- messages ----

    def _queue(self) -> tuple[str, int]:
        topic = self.random.choice(self.cluster.topics)
        return topic.name, self.random.randrange(topic.queues)

    def message(self, topic: str, queue_id: int) -> Sent:
        random = self.random
        uniform = self.cluster.uniform
        size = LARGE_BODY if random.random() < 0.01 and not uniform else random.choice(BODY_SIZES)
        self.ordinal += 1
        tag = random.choice(TAGS)
        if uniform:
            size, tag = UNIFORM_BODY, TAGS[0]
        sent = self.history.new(topic, queue_id, self.name, self.ordinal, size, tag=tag)
        if random.random() < 0.2 and not uniform:
            sent.key = f"k{sent.value.decode()}"
        return sent

    @staticmethod
    def properties_of(sent: Sent, *, wait: bool = True) -> dict[str, str]:
        properties = {props.UNIQ_KEY: sent.value.decode() * 4}
        if sent.tag is not None:
            properties[props.TAGS] = sent.tag
        if sent.key is not None:
            properties[props.KEYS] = f"{sent.key} common"
        if sent.deliver_at is not None:
            properties[props.TIMER_DELIVER_MS] = str(sent.deliver_at)
        elif sent.delayed:
            properties[props.DELAY] = "1"
        if not wait:
            properties[props.WAIT] = "false"
        return properties

    def header_of(self, sent: Sent, properties: dict[str, str], *, batch: bool = False) -> SendMessageRequest:
        kind = SendMessageRequestV2 if batch or self.name.endswith(("1", "3")) else SendMessageRequest
        return kind(
            producer_group=f"PG_{self.kind}",
            topic=sent.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=sent.queue_id,
            sys_flag=0,
            born_timestamp=self.cluster.true_ms,
            flag=0,
            properties=str(props.encode(properties), "utf-8"),
            batch=batch,
        )

    # ---- sending ----

    def transmit(self, sents: list[Sent], retries: int) -> None:
        """Send one message or a batch; what is not acknowledged is sent again, `retries` times (−1: always)."""
        wait = self.random.random() > 0.05 or self.cluster.uniform
        first = sents[0]
        for sent in sents:
            sent.attempts += 1
        if len(sents) == 1:
            header = self.header_of(first, self.properties_of(first, wait=wait))
            body = first.body
        else:
            items = [(0, sent.body, props.encode(self.properties_of(sent))) for sent in sents]
            header = self.header_of(first, {} if wait else {props.WAIT: "false"}, batch=True)
            body = batch.encode(items)
        code = RequestCode.SEND_MESSAGE_V2 if isinstance(header, SendMessageRequestV2) else RequestCode.SEND_MESSAGE
        if len(sents) > 1:
            code = RequestCode.SEND_BATCH_MESSAGE
        life, since_us = self.cluster.broker.lives, self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code in SEND_OK:
                self.acknowledged(sents, reply, wait=wait, life=life, since_us=since_us)
                self.done(sents)
            elif reply is not None and reply.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER):
                self.done(sents)
            elif retries:
                self.later(200, 900, lambda: self.transmit(sents, retries - 1))
            else:
                self.done(sents)

        self.call(code, header, answered, body, timeout_ms=self.random.choice((3_000, 3_000, 8_000)))

    def acknowledged(self, sents: list[Sent], reply: Command, *, wait: bool, life: int, since_us: int) -> None:
        """Take an acknowledgement into the history, place by place."""
        header = reply.header(SendMessageResponse)
        now = self.scheduler.now_us
        sure = wait and reply.code == ResponseCode.SUCCESS
        for at, (sent, msg_id) in enumerate(zip(sents, header.msg_id.split(","), strict=True)):
            physical = parse_offset_message_id(msg_id)[1]
            self.cluster.saw_log_file(physical)
            place = Place(sent.topic, header.queue_id, header.queue_offset + at)
            self.scheduler.note(self.name, f"acknowledged {sent.value.decode()} at {place}, log {physical}")
            self.history.acknowledged(sent, place, physical, now, sure=sure)
            if not sent.delayed and sent.commit is None:
                self.history.queues.sent(place.topic, place.queue_id, place.offset, since_us, now)
            if sure and life == self.cluster.broker.lives:
                self.cluster.checkers.durability.acknowledged(sent, physical)
                self.cluster.slaves.acknowledged(sent, physical, since_us)

    def done(self, sents: list[Sent]) -> None:
        """These are acknowledged or given up."""


class BatchProducer(Producer):
    """Sends batches, all messages of one to one queue."""

    kind = "batch"

    def send_one(self) -> None:
        topic, queue_id = self._queue()
        sents = [self.message(topic, queue_id) for _ in range(self.random.randrange(2, 9))]
        for sent in sents:
            sent.body = sent.body[:700]
        self.transmit(sents, retries=1)


class OrderedProducer(Producer):
    """One message at a time per queue, sent again until it is acknowledged."""

    kind = "ordered"

    def work(self) -> None:
        for topic in self.cluster.topics:
            for queue_id in range(topic.queues):
                if self.random.random() < 0.7:
                    self.next(topic.name, queue_id)

    def next(self, topic: str, queue_id: int) -> None:
        self.transmit([self.message(topic, queue_id)], retries=-1)

    def done(self, sents: list[Sent]) -> None:
        sent = sents[0]
        self.later(0, 8 * self.pause_ms, lambda: self.next(sent.topic, sent.queue_id))


class OnewayProducer(Producer):
    """Never waits for an answer."""

    kind = "oneway"

    def send_one(self) -> None:
        topic, queue_id = self._queue()
        sent = self.message(topic, queue_id)
        sent.attempts = 1
        self.send_oneway(RequestCode.SEND_MESSAGE, self.header_of(sent, self.properties_of(sent)), sent.body)


class DelayProducer(Producer):
    """Sends messages with a delay of one second, or for a time by the broker's clock."""

    kind = "delayed"

    def send_one(self) -> None:
        topic, queue_id = self._queue()
        sent = self.message(topic, queue_id)
        sent.delayed = not self.cluster.uniform
        if sent.delayed and self.cluster.timed and self.random.random() < TIMED:
            sent.deliver_at = self.cluster.broker.now + self.random.randrange(MAX_WAIT_MS)
        self.transmit([sent], retries=2)


class Consumer(Client):
    """Pulls all queues of its topics with long polling, and commits what it has read."""

    suspend_ms = 5_000

    def __init__(self, cluster: Cluster, name: str, group: str, tag: str | None, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.group = group
        self.tag = tag
        self.pause_ms = pause_ms * cluster.scheduler.pace
        self.positions: dict[tuple[str, int], int] = {}
        self._beats = 0
        self._asks = cluster.scheduler.stream(f"{name} asks")

    def work(self) -> None:
        self._heartbeat()
        for topic in self.cluster.topics:
            for queue_id in range(topic.queues):
                self.resume(topic.name, queue_id)

    def _heartbeat(self) -> None:
        subscriptions = [
            SubscriptionData(topic=topic.name, sub_string=self.tag or "*", sub_version=self.cluster.true_ms)
            for topic in self.cluster.topics
        ]
        data = HeartbeatData(
            client_id=f"{self.name}@1",
            consumer_data_set=[ConsumerData(group_name=self.group, subscription_data_set=subscriptions)],
        )
        self.call(RequestCode.HEART_BEAT, None, lambda reply: None, data.to_json())
        self.later(8_000, 12_000, self._heartbeat)

    def resume(self, topic: str, queue_id: int) -> None:
        """Begin where the group's committed offset is."""

        def resumed(offset: int | None) -> None:
            self.positions[topic, queue_id] = offset or 0
            self.pull(topic, queue_id)

        def again() -> None:
            self.later(500, self.scheduler.slowed(2_000), lambda: self.resume(topic, queue_id))

        self._ask_offset(topic, queue_id, resumed, again)

    def _ask_offset(
        self, topic: str, queue_id: int, found: Callable[[int | None], None], refused: Callable[[], None]
    ) -> None:
        """Where the group is, as the broker knows it; None: nowhere yet."""
        header = QueryConsumerOffsetRequest(consumer_group=self.group, topic=topic, queue_id=queue_id)
        life, since_us = self.cluster.broker.lives, self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                refused()
                return
            offset = reply.header(OffsetResponse).offset if reply.code == ResponseCode.SUCCESS else None
            self.history.offsets.answered(self.group, topic, queue_id, offset)
            if life == self.cluster.broker.lives:
                now_us = self.scheduler.now_us
                self.history.queues.asked(self.group, topic, queue_id, life, offset, since_us, now_us)
            found(offset)

        self.call(RequestCode.QUERY_CONSUMER_OFFSET, header, answered)

    def pull(self, topic: str, queue_id: int) -> None:
        offset = self.positions[topic, queue_id]
        flags, committing = SUSPEND | SUBSCRIPTION, None
        if self.random.random() < 0.2 and offset:
            flags |= COMMIT_OFFSET
            committing = self.history.offsets.commit(self.group, topic, queue_id, offset, self.scheduler.now_us)
        header = PullMessageRequest(
            consumer_group=self.group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=self.random.choice((1, 4, 32)),
            sys_flag=flags,
            commit_offset=offset if committing else 0,
            suspend_timeout_millis=self.suspend_ms,
            sub_version=0,
            subscription=self.tag or "*",
            expression_type="TAG",
        )
        life = self.cluster.broker.lives
        floor = self.history.order.known_max(topic, queue_id)
        asked_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is not None and self.scheduler.now_us - asked_us > HELD_US:
                found = reply.code == ResponseCode.SUCCESS
                self.cluster.count("held pull woken by a message" if found else "held pull ended empty")
            served = reply is not None and reply.code in PULL_ANSWERS  # who is refused has committed nothing
            done = served and life == self.cluster.broker.lives
            if committing is not None:
                self._committed(committing, topic, queue_id, offset, life, asked_us, done=done)
            self._pulled(topic, queue_id, offset, floor, asked_us, reply)

        self.call(RequestCode.PULL_MESSAGE, header, answered, timeout_ms=self.suspend_ms + 3_000)

    def _committed(
        self, committing: tuple[Commits, int], topic: str, queue_id: int, offset: int, life: int, since_us: int, *,
        done: bool,
    ) -> None:  # fmt: skip
        """A commit was answered, or there is no answer."""
        queues, now_us = self.history.queues, self.scheduler.now_us if done else NEVER_US
        queues.committed(self.group, topic, queue_id, life, offset, since_us, now_us)
        if done:
            commits, number = committing
            commits.unanswered.discard(number)
            commits.acked = max(commits.acked, number)

    def _pulled(
        self, topic: str, queue_id: int, offset: int, floor: int, asked_us: int, reply: Command | None
    ) -> None:

        def again() -> None:
            self.pull(topic, queue_id)

        if reply is None or reply.code not in PULL_ANSWERS:
            if self.random.random() < 0.2:
                self.later(500, self.scheduler.slowed(2_000), lambda: self.resume(topic, queue_id))
            else:
                self.later(500, self.scheduler.slowed(2_000), again)
            return
        header = reply.header(PullMessageResponse)
        records = read_answer(self.history, reply, self.scheduler.now_us)
        self.history.order.pulled(
            topic,
            queue_id,
            offset,
            records,
            header.next_begin_offset,
            all_tags=self.tag is None,
            log_start=self.cluster.log_start(),
        )
        self.history.order.saw_max(topic, queue_id, header.max_offset, floor)
        self.history.queues.ends(topic, queue_id, header.max_offset, asked_us, self.scheduler.now_us)
        check_bounds(topic, queue_id, offset, header, reply.code)
        self.positions[topic, queue_id] = header.next_begin_offset
        if records and self.random.random() < 0.3:
            self.commit(topic, queue_id)
        if not self.running:
            return
        if reply.code == ResponseCode.PULL_NOT_FOUND:
            again()
        else:
            self.later(0, self.pause_ms * (0.2 if len(records) > 3 else 1), again)

    def commit(self, topic: str, queue_id: int) -> None:
        offset = self.positions[topic, queue_id]
        commits, number = self.history.offsets.commit(self.group, topic, queue_id, offset, self.scheduler.now_us)
        header = UpdateConsumerOffsetRequest(
            consumer_group=self.group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        life, since_us = self.cluster.broker.lives, self.scheduler.now_us
        if self.random.random() < 0.3:
            self.send_oneway(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            self._committed((commits, number), topic, queue_id, offset, life, since_us, done=False)
            return

        def answered(reply: Command | None) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS and life == self.cluster.broker.lives
            self._committed((commits, number), topic, queue_id, offset, life, since_us, done=done)
            if self.running and self._asks.random() < LOOKS:
                self._ask_offset(topic, queue_id, lambda offset: None, lambda: None)

        self.call(RequestCode.UPDATE_CONSUMER_OFFSET, header, answered)


PULL_ANSWERS = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Hostile:
    """A peer that sends what no client may send: each time over a connection of its own."""

    name = "hostile"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = cluster.scheduler.stream(self.name)
        self.ip = cluster.client_ip(self.name)

    def attack(self) -> None:
        self.cluster.network.dial(
            self, self.ip, self.random.choice((self.cluster.broker_address, self.cluster.namesrv_address))
        )

    def opened(self, end: End, listener: str, dialled: str) -> None:
        data = self._bytes()
        self.cluster.network.write(end, data)
        if self.random.random() < 0.5:
            self.cluster.network.close(end, "hostile close")

    def _bytes(self) -> bytes:
        random = self.random
        header = PullMessageRequest(
            "g", LOOSE, 0, -5, -1, 0xFF, -9, 1 << 40, 0, subscription="||", expression_type="SQL92"
        )
        good = encode_request(RequestCode.PULL_MESSAGE, 1, header)
        kind = random.randrange(7)
        if kind == 0:
            return random.randbytes(random.randrange(1, 200))
        if kind == 1:
            return b"\x7f\xff\xff\xff" + good
        if kind == 2:
            return good[: random.randrange(1, len(good))]
        if kind == 3:
            spoilt = bytearray(good)
            for _ in range(3):
                spoilt[random.randrange(4, len(spoilt))] = random.randrange(256)
            return bytes(spoilt)
        if kind == 4:
            return encode_request(random.choice((0, 9999, 30_000, 36, 37, 11)), 7, {"topic": "x", "queueId": "nine"})
        if kind == 5:
            wrong = {"a": "g", "b": "t" * 300, "c": AUTO_CREATE_TOPIC, "d": "4", "e": "99", "f": "-1"}
            wrong |= {"g": "0", "h": "0"}
            return encode_request(RequestCode.SEND_BATCH_MESSAGE, 8, {**wrong, "m": "true"}, random.randbytes(60))
        return good * 3

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None:
        self.cluster.count("hostile request answered")

    def closed(self, end: End, reason: str) -> None: ...
