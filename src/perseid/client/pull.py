"""Read queues at your own pace: assign queues, seek, poll, commit.

You choose the queues; they are not shared among the members of a group. Each assigned queue is read ahead in the
background (one pull in flight, at most `buffer_messages` and `buffer_bytes` in the buffer), so `poll()` mostly finds
messages at once. Messages of one queue come in the order of their offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Unpack

from perseid.base.errors import PerseidError
from perseid.client.answers import body_of
from perseid.client.deduplicator import Deduplicator
from perseid.client.errors import ClientError, NoRoute, ServerRefused, UsageError
from perseid.client.hooks import Hooks
from perseid.client.keywords import PullKeywords, with_keywords
from perseid.client.lifecycle import Client
from perseid.client.metrics import ConsumerMetrics
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.options import PULL_DEFAULTS, PullOptions
from perseid.client.pulling import READ_BATCH, Offsets, Puller, PullResult, PullStatus
from perseid.client.session import Session
from perseid.client.subscription import ALL, Sql, Subscription
from perseid.client.surroundings import now_ms
from perseid.client.tls import ClientTls
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.topics import GetTopicConfigRequest

log = logging.getLogger("perseid.client")

ERROR_PAUSE_MS = 1000
FLOW_CONTROL_PAUSE_MS = 20
_record_bytes = attrgetter("record_bytes")


def bytes_of(messages: Iterable[ReceivedMessage]) -> int:
    """Of their records."""
    return sum(map(_record_bytes, messages))


class _Assigned:
    """One queue that is read: its buffer, and the task that fills it."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.deduplicator: Deduplicator | None = None
        self.next_fetch: int | None = None
        self.position: int | None = None
        self.end_offset = 0
        """Where the queue ended at the last pull."""
        self.ready: deque[tuple[list[ReceivedMessage], int]] = deque()
        """What each pull brought, and the bytes of that."""
        self.ready_messages = self.ready_bytes = 0
        self.room = asyncio.Event()
        self.room.set()
        self.task: asyncio.Task[None] | None = None

    def clear(self) -> None:
        self.ready.clear()
        self.ready_messages = self.ready_bytes = 0
        self.room.set()

    def add(self, messages: list[ReceivedMessage], size: int) -> None:
        """A pull has brought these; `size`: their bytes."""
        self.ready.append((messages, size))
        self.ready_messages += len(messages)
        self.ready_bytes += size

    def take(self, most: int) -> list[ReceivedMessage]:
        """At most so many of the messages that one pull has brought; there are some."""
        messages, size = self.ready.popleft()
        if len(messages) > most:
            messages, rest = messages[:most], messages[most:]
            left = bytes_of(rest)
            self.ready.appendleft((rest, left))
            size -= left
        self.ready_messages -= len(messages)
        self.ready_bytes -= size
        self.position = messages[-1].queue_offset + 1
        return messages


class PullConsumer(Client):
    """Reads the queues that you assign: `async with PullConsumer("host:9876", "my-group") as consumer: …`.

    `expression` filters by tags (`"a || b"`) or by `Sql("price > 5")`. `from_where` says where to begin in a queue for
    which the group has committed nothing: "first" or "last". `options`, or their names as keywords: `PullOptions`.
    `session` shares connections with other clients of this process.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "PERSEID_PULL",
        *,
        expression: str | Sql = ALL,
        from_where: str = "last",
        options: PullOptions = PULL_DEFAULTS,
        session: Session | None = None,
        tls: ClientTls | None = None,
        **keywords: Unpack[PullKeywords],
    ) -> None:
        if from_where not in ("first", "last"):
            raise UsageError(f"from_where={from_where!r}: write 'first' or 'last'")
        self.session = session or Session(namesrv, tls=tls)
        self.group = group
        self._expression = expression
        self._from_first = from_where == "first"
        self.options = options = with_keywords(options, keywords, type(self))
        self._hooks = Hooks(options.hooks)
        self._counts = ConsumerMetrics()
        self._puller = Puller(self.session, group)
        self._offsets = Offsets(self.session)
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._turn: deque[MessageQueue] = deque()
        self._arrived = asyncio.Event()
        self._error: Exception | None = None
        self._started = False

    # ---- lifecycle ----

    async def start(self) -> None:
        """Get ready; connections are opened when first needed."""
        if not self._started:
            await self.session.start()
            try:
                await self._hooks.start(self.session, self.group)
            except BaseException:
                await self.session.stop()
                raise
            self._started = True

    async def stop(self) -> None:
        """Stop reading and close the connections. It does not commit."""
        if self._started:
            self._started = False
            self.assign([])
            await self._hooks.stop()
            await self.session.stop()

    # ---- which queues ----

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic. `NoRoute` if there is no such topic."""
        self.session.check_running("PullConsumer")
        queues = (await self.session.routes.get(topic)).read_queues()
        if not queues:
            raise NoRoute(topic, "none of its brokers is readable at the moment")
        return queues

    async def check_expression(self, topic: str) -> None:
        """Let the topic's brokers check the SQL expression. `ClientError` if one of them refuses it."""
        subscription = self._subscription(topic)
        if subscription.kind != "TAG":
            await self._puller.check(subscription, await self.session.routes.get(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues from now on. Queues that were assigned before keep their position."""
        wanted = {MessageQueue(*queue) for queue in queues}
        if wanted:
            self.session.check_running("PullConsumer")
        for queue in [q for q in self._assigned if q not in wanted]:
            gone = self._assigned.pop(queue)
            if gone.task is not None:
                gone.task.cancel()
        for queue in sorted(wanted - self._assigned.keys()):
            self._begin(_Assigned(queue))
        self._turn = deque(self._assigned)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in an assigned queue. Messages that were read ahead are dropped."""
        assigned = self._of(queue)
        if assigned.task is not None:
            assigned.task.cancel()
        assigned.clear()
        assigned.next_fetch = assigned.position = offset
        self._begin(assigned)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after the last message that `poll()` returned. None before the first offset is known."""
        return self._of(queue).position

    # ---- reading ----

    async def poll(self, max_messages: int = 500, timeout_ms: int = 1000) -> list[ReceivedMessage]:
        """The next messages of the assigned queues: at least one, or an empty list after `timeout_ms`.

        Queues take turns; messages of one queue are in order. A pull that the broker refused for good (no such group,
        an invalid expression) raises its error here.
        """
        if not self._hooks.hear_of_receives:
            return await self._poll(max_messages, timeout_ms)
        return await self._told(self._poll(max_messages, timeout_ms), "")

    async def _told(self, receiving: Awaitable[list[ReceivedMessage]], topic: str) -> list[ReceivedMessage]:
        """What is received, and the hooks are told of it."""
        started = now_ms()
        try:
            found = await receiving
        except ClientError as error:
            self._hooks.receive_failed(self.group, topic, started, error)
            raise
        self._hooks.received(self.group, found, started)
        return found

    async def _poll(self, max_messages: int, timeout_ms: int) -> list[ReceivedMessage]:
        self.session.check_running("PullConsumer")
        if not self._assigned:
            raise UsageError("no queue is assigned: call assign(await consumer.queues(topic)) first")
        found = self._take(max_messages)
        if found:
            return found
        try:
            async with asyncio.timeout(max(0, timeout_ms) / 1000):
                while not found:
                    if self._error is not None:
                        raise self._error
                    self._arrived.clear()
                    await self._arrived.wait()
                    found = self._take(max_messages)
        except TimeoutError:
            pass
        return found

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = READ_BATCH, *, hold_ms: int = 0
    ) -> PullResult:
        """Pull once from any queue, assigned or not, from `offset` on. Nothing is buffered, no position changes."""
        self.session.check_running("PullConsumer")
        started = now_ms()
        try:
            result = await self._puller.pull(
                queue, offset, self._subscription(queue.topic), max_messages=max_messages, hold_ms=hold_ms
            )
        except ClientError as error:
            self._hooks.receive_failed(self.group, queue.topic, started, error)
            raise
        self._count(result.messages)
        self._hooks.received(self.group, result.messages, started)
        return result

    async def read(
        self, queue: MessageQueue, start: int, end: int, *, max_messages: int = READ_BATCH
    ) -> AsyncGenerator[list[ReceivedMessage]]:
        """All messages of a queue with start ≤ offset < end, in order, in lists. The next pull is always in flight.

        Ends early when the queue ends before `end`. When the broker has already deleted the beginning, the
        first message has a higher offset than `start`: compare with `min_offset()`.
        """
        self.session.check_running("PullConsumer")
        subscription = self._subscription(queue.topic)
        lists = self._puller.read(queue, start, end, subscription, max_messages=max_messages)
        repeats = self._deduplicator(queue, start)
        started = now_ms()
        try:
            async for found in lists:
                wanted = await self._puller.fresh(repeats, queue, found, subscription) if repeats is not None else found
                if wanted:
                    self._count(wanted)
                    self._hooks.received(self.group, wanted, started)
                    yield wanted
                    started = now_ms()
        finally:
            await lists.aclose()

    async def address(self, queue: MessageQueue) -> str:
        """`host:port` of the replica that a pull of this queue goes to now."""
        self.session.check_running("PullConsumer")
        return await self._puller.address(queue)

    async def is_compacted(self, queue: MessageQueue) -> bool:
        """Whether the queue's topic keeps only the last message of each key (`cleanup.policy` COMPACTION). Then offsets
        are missing, and there are messages before `min_offset()`. `ServerRefused` by brokers that don't tell."""
        self.session.check_running("PullConsumer")
        header = GetTopicConfigRequest(topic=queue.topic)
        answer = await self.session.connections.ask(await self.address(queue), RequestCode.GET_TOPIC_CONFIG, header)
        return body_of(answer, TopicConfig).is_compacted

    # ---- offsets ----

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset of a queue that can still be read."""
        self.session.check_running("PullConsumer")
        return await self._offsets.min(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset after the newest message of a queue."""
        self.session.check_running("PullConsumer")
        return await self._offsets.max(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The offset of the first message stored at or after a time (milliseconds since 1970). With `upper`, of the
        last one at or before it."""
        self.session.check_running("PullConsumer")
        return await self._offsets.at_time(queue, timestamp_ms, upper=upper)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that this group has committed for a queue, or None."""
        self.session.check_running("PullConsumer")
        return await self._offsets.committed(self.group, queue, zero_if_young=False)

    async def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """Commit for this group: `offset` of `queue`, or of all assigned queues the messages that `poll()` returned.

        The offset is that of the next message to read.
        """
        self.session.check_running("PullConsumer")
        if queue is not None and offset is not None:
            await self._offsets.commit(self.group, queue, offset)
            return
        chosen = [self._of(queue)] if queue is not None else list(self._assigned.values())
        for assigned in chosen:
            if assigned.position is not None:
                await self._offsets.commit(self.group, assigned.queue, assigned.position)

    @property
    def metrics(self) -> ConsumerMetrics:
        """A copy of this consumer's counts."""
        assigned = self._assigned.values()
        return self._counts.snapshot(
            in_flight=0,
            buffered=sum(one.ready_messages for one in assigned),
            lag=sum(max(0, one.end_offset - one.position) for one in assigned if one.position is not None),
            connections=self.session.connections.count,
        )

    # ---- inside ----

    def _count(self, messages: list[ReceivedMessage]) -> int:
        """Count what was pulled; its bytes."""
        size = bytes_of(messages)
        self._counts.pulled += len(messages)
        self._counts.pulled_bytes += size
        return size

    def _of(self, queue: MessageQueue) -> _Assigned:
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise UsageError(f"{MessageQueue(*queue)} is not assigned: call assign() with it first")
        return assigned

    def _subscription(self, topic: str) -> Subscription:
        found = self._subscriptions.get(topic)
        if found is None:
            found = self._subscriptions[topic] = Subscription.parse(topic, self._expression, now_ms())
        return found

    def _deduplicator(self, queue: MessageQueue, begin: int) -> Deduplicator | None:
        return Deduplicator(queue, begin) if self.options.dedupe else None

    def _begin(self, assigned: _Assigned) -> None:
        self._error = None
        assigned.deduplicator = None
        self._assigned[assigned.queue] = assigned
        assigned.task = self.session.spawn(self._fill(assigned), f"read {assigned.queue}")

    def _take(self, max_messages: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            assigned = self._assigned[self._turn[0]]
            self._turn.rotate(-1)
            while assigned.ready and len(found) < max_messages:
                found += assigned.take(max_messages - len(found))
            if not assigned.ready and assigned.next_fetch is not None:
                assigned.position = assigned.next_fetch
            if self._has_room(assigned):
                assigned.room.set()
            if len(found) >= max_messages:
                break
        return found

    def _has_room(self, assigned: _Assigned) -> bool:
        options = self.options
        return assigned.ready_messages < options.buffer_messages and assigned.ready_bytes < options.buffer_bytes

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await self._offsets.committed(self.group, queue, zero_if_young=False)
        if committed is not None:
            return committed
        return await (self._offsets.min(queue) if self._from_first else self._offsets.max(queue))

    async def _fill(self, assigned: _Assigned) -> None:
        """Read ahead until cancelled; short errors are waited out, those for good end in `poll()`."""
        queue = assigned.queue
        subscription = self._subscription(queue.topic)
        while True:
            try:
                if assigned.next_fetch is None:
                    assigned.next_fetch = assigned.position = await self._start_offset(queue)
                if not self._has_room(assigned):
                    assigned.room.clear()
                await assigned.room.wait()
                result = await self._puller.pull(
                    queue,
                    assigned.next_fetch,
                    subscription,
                    max_messages=min(READ_BATCH, self.options.buffer_messages),
                    hold_ms=self.options.hold_ms,
                )
                if result.status is PullStatus.MOVED:
                    if assigned.next_fetch != result.next_offset:  # else the group was reset to where we are
                        text = "%s: offset %d is not there; on to %d"
                        log.warning(text, queue, assigned.next_fetch, result.next_offset)
                    assigned.deduplicator = None
                elif self.options.dedupe:
                    assigned.deduplicator = assigned.deduplicator or Deduplicator(queue, assigned.next_fetch)
                    fresh = await self._puller.fresh(assigned.deduplicator, queue, result.messages, subscription)
                    result = replace(result, messages=fresh)
            except ServerRefused as error:
                if error.code in _FOR_GOOD:
                    self._error = error
                    self._arrived.set()
                    return
                flow = error.code == ResponseCode.FLOW_CONTROL
                await asyncio.sleep((FLOW_CONTROL_PAUSE_MS if flow else ERROR_PAUSE_MS) / 1000)
                continue
            except PerseidError as error:
                log.warning("%s: reading goes on in %d ms: %s", queue, ERROR_PAUSE_MS, error)
                await asyncio.sleep(ERROR_PAUSE_MS / 1000)
                continue
            assigned.next_fetch, assigned.end_offset = result.next_offset, result.max_offset
            if result.messages:
                assigned.add(result.messages, self._count(result.messages))
                self._arrived.set()


_FOR_GOOD = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)
