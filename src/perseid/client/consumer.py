"""Consume: your function is called for each message of some topics. The members of a consumer group share the messages.

Each queue is assigned to one member of the group (clustering), or each member gets all queues (broadcasting). A
rebalance assigns the queues again every 20 s, and at once when a member joins or leaves.

- At least once: an offset is committed only when all messages below it are consumed. After a crash or a rebalance
  some messages are delivered again.
- Concurrent mode: up to `concurrency` handlers run at a time, in no particular order. A message whose handler fails
  goes to the group's retry topic, and is delivered again after 10 s, 30 s, 1 min, …. After `max_reconsume_times` (16)
  retries it goes to the dead letters, the topic `%DLQ%group`.
- Ordered mode: each queue is locked at its broker, and its messages are handled one after the other. A message whose
  handler fails is retried, and its queue waits.
- Broadcasting keeps offsets in a local file, and retries nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Unpack

from perseid.client import server_requests
from perseid.client.assigned_queue import AssignedQueue, Handler
from perseid.client.assignment import Assignment
from perseid.client.errors import UsageError
from perseid.client.hooks import EXCEPTION, FAILED, SUCCESS, TIME_OUT, Consuming, Hooks
from perseid.client.keywords import PushKeywords, with_keywords
from perseid.client.lifecycle import Client, call, is_async
from perseid.client.metrics import ConsumerMetrics
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.offsets import default_folder
from perseid.client.options import PUSH_DEFAULTS, ConsumeMode, PushOptions
from perseid.client.pulling import Puller
from perseid.client.retry import Retries
from perseid.client.session import Session
from perseid.client.subscription import ALL, Sql, Subscription
from perseid.client.surroundings import now_ms
from perseid.wire.bodies import ConsumerData
from perseid.wire.names import RETRY_PREFIX

log = logging.getLogger("perseid.client")

RESUBMIT_MS = 5000
STOP_PATIENCE_MS = 10_000
MAX_TIMES_CONCURRENT = 16
MAX_TIMES_ORDERED = 2**31 - 1


class RetryLater(Exception):
    """Raise it in a handler to get the message again later, without a traceback in the log.

    `delay_level` (concurrent mode): 1 to 18 is the level of the delay, 0 lets the broker choose (10 s, 30 s, 1 min, …),
    -1 sends the message to the dead letters at once. `after_ms` (ordered mode): the pause before the retry.
    """

    def __init__(self, text: str = "later", *, delay_level: int = 0, after_ms: int = 0) -> None:
        super().__init__(text)
        self.delay_level = delay_level
        self.after_ms = after_ms


class PushConsumer(Client):
    """Calls `handler` for each message: `async with PushConsumer("host:9876", "my-group", {"orders": "*"}, handle): …`.

    `subscriptions` maps topics to tags (`"a || b"`, `"*"`) or to `Sql("price > 5")`. A `handler` that is a plain
    function runs in a thread, an `async def` on the event loop. `from_where` says where a group without offsets begins:
    "last", "first", or a time in milliseconds since 1970. `options`, or their names as keywords: `PushOptions`.
    `session` shares connections with other clients of this process.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str | Sql],
        handler: Handler,
        *,
        mode: ConsumeMode = ConsumeMode.CONCURRENT,
        from_where: str | int = "last",
        options: PushOptions = PUSH_DEFAULTS,
        session: Session | None = None,
        **keywords: Unpack[PushKeywords],
    ) -> None:
        _check(group, subscriptions, from_where)
        self.session = session or Session(namesrv)
        self.group = group
        self.mode = mode
        self.options = options = with_keywords(options, keywords, type(self))
        times = options.max_reconsume_times
        self.max_times_concurrent = times if times >= 0 else MAX_TIMES_CONCURRENT
        self.max_times_ordered = times if times >= 0 else MAX_TIMES_ORDERED
        self.handler = handler
        self._hooks = Hooks(options.hooks)
        self.counts = ConsumerMetrics()
        """Counted into by the parts of this consumer; `metrics` is a copy."""
        self.started_ms = now_ms()
        self.now = now_ms
        self.from_where = from_where
        self.subscriptions = {
            topic: Subscription.parse(topic, text, self.started_ms) for topic, text in subscriptions.items()
        }
        if not mode.is_broadcast:
            self.retry_topic = RETRY_PREFIX + group
            self.subscriptions[self.retry_topic] = Subscription.parse(self.retry_topic, ALL, self.started_ms)
        self.puller = Puller(self.session, group)
        self.offsets: dict[MessageQueue, int] = {}
        self.ready: asyncio.Queue[tuple[AssignedQueue, ReceivedMessage]] = asyncio.Queue()
        self.slots = asyncio.Semaphore(options.concurrency)
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.stopping = False
        self.retries = Retries(self.session, group)
        self.assignment = Assignment(self, options.offsets_folder or default_folder())
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads: ThreadPoolExecutor | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._started = False

    # ---- lifecycle ----

    async def start(self) -> None:
        """Join the group and begin to consume. It waits for topics that do not exist yet."""
        if self._started:
            return
        await self.session.start()
        self._started, self.stopping = True, False
        self.started_ms = now_ms()
        try:
            await self._hooks.start(self.session, self.group)
            await self.retries.start()
            server_requests.register(self)
            await self.assignment.join()
        except BaseException:
            await self._leave()
            raise
        if not is_async(self.handler):
            self._threads = ThreadPoolExecutor(self.options.concurrency, thread_name_prefix=f"handle {self.group}")
        if not self.mode.is_ordered:
            self._workers = [
                self.session.spawn(self._work(), f"handle {self.group} {i}") for i in range(self.options.concurrency)
            ]

    async def stop(self, *, patience_ms: int = STOP_PATIENCE_MS) -> None:
        """Let running handlers finish within `patience_ms`, commit the offsets, and leave the group."""
        if not self._started or self.stopping:
            return
        self.stopping = True
        self.assignment.wind_down()
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            log.warning("group %s: %d handlers still run after %d ms", self.group, self._running, patience_ms)
        for task in self._workers:
            task.cancel()
        await self.assignment.leave()
        await self._leave()

    async def _leave(self) -> None:
        server_requests.unregister(self)
        await self.retries.stop()
        await self._hooks.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        self._started = False
        await self.session.stop()

    def pause(self) -> None:
        """Stop pulling until `resume()`. Messages that are buffered are still handled."""
        self.resumed.clear()

    def resume(self) -> None:
        """Pull again after `pause()`."""
        self.resumed.set()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer now, sorted."""
        return sorted(self.assignment.queues)

    @property
    def metrics(self) -> ConsumerMetrics:
        """A copy of this consumer's counts."""
        assigned = self.assignment.queues.values()
        held = sum(len(one.process_queue.messages) for one in assigned)
        return self.counts.snapshot(
            in_flight=self._running,
            buffered=max(0, held - self._running),
            lag=sum(one.lag for one in assigned),
            connections=self.session.connections.count,
        )

    # ---- for the session's heartbeats ----

    def producer_group(self) -> str | None:
        """None: a consumer is no producer."""
        return None

    def consumer_data(self) -> ConsumerData | None:
        """This consumer's part of heartbeats."""
        first = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self.mode.is_broadcast else "CLUSTERING",
            consume_from_where=first.get(str(self.from_where), "CONSUME_FROM_TIMESTAMP"),
            subscription_data_set=[subscription.data() for subscription in self.subscriptions.values()],
        )

    # ---- handling ----

    async def handle(self, message: ReceivedMessage) -> RetryLater | None:
        """Call the handler; None when it went well."""
        started = now_ms()
        if self._hooks:
            failure = await self._told_outcome(message, started)
        else:
            failure = (await self._outcome(message))[1]
        self.counts.latency.record(now_ms() - started)
        return failure

    async def _told_outcome(self, message: ReceivedMessage, started_ms: int) -> RetryLater | None:
        """Why the message comes again, if it does; the hooks are told of the call."""
        consuming = Consuming(self.group, message, started_ms, self.mode.is_broadcast)
        self._hooks.before_consume(consuming)
        try:
            consuming.outcome, failure = await self._outcome(message)
            consuming.error = (failure and failure.__cause__) or failure
        finally:  # when this client is stopped in the middle, too
            self._hooks.after_consume(consuming)
        return failure

    async def _outcome(self, message: ReceivedMessage) -> tuple[str, RetryLater | None]:
        """How a call ended (`perseid.client.hooks`), and why the message comes again."""
        limit = asyncio.timeout(self.options.consume_timeout_ms / 1000)
        try:
            async with limit:
                result = await call(self.handler, message, self._threads)
        except RetryLater as later:
            log.info("%r again later: %s", message, later)
            self.counts.failed += 1
            return FAILED, later
        except Exception as error:  # a handler may raise anything; the message is tried again
            log.exception("the handler of group %s failed with %r", self.group, message)
            self.counts.failed += 1
            failure = RetryLater(repr(error))
            failure.__cause__ = error
            return TIME_OUT if limit.expired() else EXCEPTION, failure
        if result is False:
            self.counts.failed += 1
            return FAILED, RetryLater("the handler returned False")
        self.counts.succeeded += 1
        return SUCCESS, None

    async def give_up(self, message: ReceivedMessage) -> bool:
        """Ordered mode: on to the dead letters, by way of the retry topic; False when no broker took it."""
        return await self.retries.send_to_retry_topic(message, self.max_times_ordered)

    async def _work(self) -> None:
        """One of the `concurrency` workers of the concurrent mode."""
        while True:
            assigned, message = await self.ready.get()
            if not (assigned.process_queue.dropped or self.stopping):
                with self.busy():
                    await self._handle_one(assigned, message)

    async def _handle_one(self, assigned: AssignedQueue, message: ReceivedMessage) -> None:
        failure = await self.handle(message)
        if assigned.process_queue.dropped:
            return
        if failure is None:
            assigned.done(message)
        elif self.mode.is_broadcast:
            log.warning("%r is not tried again: broadcasting has no retry queue", message)
            assigned.done(message)
        else:
            await self._try_later(assigned, message, failure)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Around the work on one message: `stop()` waits for its end."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        """More or fewer messages are being handled."""
        self._running += change
        if self._running:
            self._idle.clear()
        else:
            self._idle.set()

    def queue_changed(self, assigned: AssignedQueue) -> None:
        """A queue was dropped, or its lock was confirmed."""

    async def _try_later(self, assigned: AssignedQueue, message: ReceivedMessage, failure: RetryLater) -> None:
        if await self.retries.give_back(message, failure.delay_level, self.max_times_concurrent):
            self.counts.sent_back += 1
            assigned.done(message)
            return
        message.reconsume_times += 1
        asyncio.get_running_loop().call_later(RESUBMIT_MS / 1000, self.ready.put_nowait, (assigned, message))


def _check(group: str, subscriptions: Mapping[str, str | Sql], from_where: str | int) -> None:
    if not group:
        raise UsageError("a consumer needs the name of its group: members of one group share the messages")
    if not subscriptions:
        raise UsageError(f"group {group} subscribes to nothing: pass {{'topic': '*'}}")
    if from_where not in ("last", "first") and not isinstance(from_where, int):
        raise UsageError(f"from_where={from_where!r}: write 'last', 'first', or a time in milliseconds")
