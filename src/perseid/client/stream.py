"""Consume in a loop: `async for message in consumer`, without a handler.

    async with Consumer("host:9876", "billing", {"orders": "*"}) as consumer:
        async for message in consumer:
            await charge(message.body)

    buffered --offered--> taken by a loop --the loop asks for the next one, or `done()`--> done
                            | an exception leaves the loop, `retry_later()`, `consume_timeout_ms` is over
                            v
                          comes again: as after a handler that failed (`perseid.client.consumer`)

- At least once: a message is consumed when the loop asks for the next one.
- If an exception leaves the loop, its message has failed. It is delivered again after a pause, and goes to the dead
  letters after `max_reconsume_times` retries.
- `break` inside `async with`, or a cancelled task: the current message is not committed. The next consumer of the group
  gets it again at once. Call `consumer.done(message)` before `break` if its work is done.
- Several tasks can loop over one consumer. Each message goes to one of them; up to `concurrency` messages are in work
  at a time, and in ordered modes at most one of each queue.
- A loop ends when the consumer is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from types import TracebackType
from typing import Unpack

from perseid.client.assigned_queue import AssignedQueue
from perseid.client.consumer import STOP_PATIENCE_MS, PushConsumer, RetryLater
from perseid.client.errors import NotStarted, UsageError
from perseid.client.hooks import EXCEPTION, FAILED, SUCCESS, TIME_OUT, Consuming
from perseid.client.keywords import PushKeywords
from perseid.client.model import ReceivedMessage
from perseid.client.options import PUSH_DEFAULTS, ConsumeMode, PushOptions
from perseid.client.session import Session
from perseid.client.subscription import Sql

log = logging.getLogger("perseid.client")


class _Delivery:
    """A message on its way through a loop."""

    __slots__ = ("consuming", "ended", "message", "owner", "taken_ms", "timer")

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message
        self.ended: asyncio.Future[RetryLater | None] = asyncio.get_running_loop().create_future()
        self.owner: Hashable = None
        """The task whose loop has taken it."""
        self.taken_ms = 0
        self.consuming: Consuming | None = None
        self.timer: asyncio.TimerHandle | None = None


class Consumer(PushConsumer):
    """Gives the messages of some topics, shared with its consumer group: `async for message in consumer`.

    Takes the arguments of `PushConsumer`, except the handler. `options.limits` limits the buffer of each queue.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str | Sql],
        *,
        mode: ConsumeMode = ConsumeMode.CONCURRENT,
        from_where: str | int = "last",
        options: PushOptions = PUSH_DEFAULTS,
        session: Session | None = None,
        **keywords: Unpack[PushKeywords],
    ) -> None:
        super().__init__(
            namesrv,
            group,
            subscriptions,
            _no_handler,
            mode=mode,
            from_where=from_where,
            options=options,
            session=session,
            **keywords,
        )
        self._offered: deque[_Delivery] = deque()
        """Wait for a loop."""
        self._taken: dict[Hashable, _Delivery] = {}
        """By owner."""
        self._changed = asyncio.Event()
        self._ended = False

    # ---- lifecycle ----

    async def start(self) -> None:
        """Join the group and begin to buffer messages. It waits for topics that do not exist yet."""
        self._ended = False
        await super().start()

    async def stop(self, *, patience_ms: int = STOP_PATIENCE_MS) -> None:
        """Let other tasks finish their messages within `patience_ms`, end their loops, and leave the group.

        A message that the calling task has not finished is not committed: it is delivered again.
        """
        self._ended = True
        self._changed.set()
        self.abandon(asyncio.current_task(), None)
        await super().stop(patience_ms=patience_ms)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon(asyncio.current_task(), error)
        await self.stop()

    def abandon(self, owner: Hashable, error: BaseException | None) -> None:
        """The consumer is about to be stopped, and nobody finishes the message of this loop.

        An exception of the user's fails it. Else it is as if it had not been taken: it is not committed.
        """
        delivery = self._taken.get(owner)
        if delivery is None:
            return
        if isinstance(error, Exception):
            self._fail(delivery, error)
            return
        self._release(delivery)
        if delivery.consuming is not None:
            self._hooks.after_consume(delivery.consuming)
        delivery.ended.cancel()

    # ---- looping ----

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        self.left(asyncio.current_task())
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await self.take(asyncio.current_task())
        if message is None:
            raise StopAsyncIteration
        return message

    async def take(self, owner: Hashable) -> ReceivedMessage | None:
        """The next message for a loop, whose last one is done now; None when the consumer is stopped.

        `owner` names the loop: its task here, its thread in `perseid.client.blocking`.
        """
        if not self._started and not self._ended:
            raise NotStarted("this Consumer is not running: use `async with Consumer(…) as consumer`")
        last = self._taken.get(owner)
        if last is not None:
            self._settle(last, SUCCESS, None)
        while (delivery := next(filter(self._may_take, self._offered), None)) is None and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if self._ended or delivery is None:
            return None
        self._withdraw(delivery)
        self._taken[owner] = delivery
        delivery.owner, delivery.taken_ms = owner, self.now()
        if isinstance(owner, asyncio.Task):
            owner.add_done_callback(self.left)
        delivery.timer = asyncio.get_running_loop().call_later(
            self.options.consume_timeout_ms / 1000, self._late, delivery
        )
        if self._hooks:
            delivery.consuming = Consuming(self.group, delivery.message, delivery.taken_ms, self.mode.is_broadcast)
            self._hooks.before_consume(delivery.consuming)
        return delivery.message

    @property
    def owners(self) -> list[Hashable]:
        """Those that have a message now."""
        return list(self._taken)

    def left(self, owner: Hashable) -> None:
        """A loop has ended without asking for the next message: its last one comes again."""
        delivery = self._taken.get(owner)
        if delivery is None:
            return
        error = None
        if isinstance(owner, asyncio.Task) and owner.done() and not owner.cancelled():
            error = owner.exception()
        self._fail(delivery, error)

    def done(self, message: ReceivedMessage) -> None:
        """Count the message as consumed, before the loop asks for the next one. Call it before `break`."""
        self._settle(self._delivery(message), SUCCESS, None)

    def retry_later(self, message: ReceivedMessage, *, delay_level: int = 0, after_ms: int = 0) -> None:
        """Get the message again later, and continue the loop. The arguments are those of `RetryLater`."""
        later = RetryLater("the loop wants it later", delay_level=delay_level, after_ms=after_ms)
        self._settle(self._delivery(message), FAILED, later)

    # ---- between the queues and the loops ----

    async def handle(self, message: ReceivedMessage) -> RetryLater | None:
        """Offer a message to the loops, and wait until one is through with it."""
        delivery = _Delivery(message)
        self._offered.append(delivery)
        self._count(-1)  # stop() does not wait for what no loop has taken
        self._changed.set()
        try:
            return await delivery.ended
        finally:
            if delivery in self._offered:
                self._withdraw(delivery)

    def queue_changed(self, assigned: AssignedQueue) -> None:
        """Offer nothing more of a queue that was dropped; offer again what waited for its lock."""
        if assigned.process_queue.dropped:
            for delivery in [one for one in self._offered if one.message.queue == assigned.queue]:
                self._withdraw(delivery)
                delivery.ended.set_result(None)
        self._changed.set()

    def _may_take(self, delivery: _Delivery) -> bool:
        assigned = self.assignment.queues.get(delivery.message.queue)
        return assigned is None or assigned.locked

    def _withdraw(self, delivery: _Delivery) -> None:
        self._offered.remove(delivery)
        self._count(1)

    def _delivery(self, message: ReceivedMessage) -> _Delivery:
        for delivery in self._taken.values():
            if delivery.message is message:
                return delivery
        raise UsageError(
            f"{message!r} is not being handled: it is done, or its loop took longer than"
            f" consume_timeout_ms={self.options.consume_timeout_ms}, or it is another consumer's"
        )

    def _fail(self, delivery: _Delivery, error: BaseException | None) -> None:
        later = RetryLater(repr(error) if error is not None else "its loop was left")
        later.__cause__ = error
        self._settle(delivery, FAILED if error is None else EXCEPTION, later)

    def _late(self, delivery: _Delivery) -> None:
        late = RetryLater(f"its loop did not ask for the next message within {self.options.consume_timeout_ms} ms")
        log.warning("group %s: %r comes again: %s", self.group, delivery.message, late)
        self._settle(delivery, TIME_OUT, late)

    def _settle(self, delivery: _Delivery, outcome: str, failure: RetryLater | None) -> None:
        """A loop is through with a message; what follows from that is done by the task that offered it."""
        self._release(delivery)
        self.counts.latency.record(self.now() - delivery.taken_ms)
        if failure is None:
            self.counts.succeeded += 1
        else:
            self.counts.failed += 1
        if delivery.consuming is not None:
            delivery.consuming.outcome = outcome
            delivery.consuming.error = (failure and failure.__cause__) or failure
            self._hooks.after_consume(delivery.consuming)
        if not delivery.ended.done():
            delivery.ended.set_result(failure)

    def _release(self, delivery: _Delivery) -> None:
        del self._taken[delivery.owner]
        if isinstance(delivery.owner, asyncio.Task):
            delivery.owner.remove_done_callback(self.left)
        if delivery.timer is not None:
            delivery.timer.cancel()


async def _no_handler(message: ReceivedMessage) -> None:
    """In the place of a handler: `Consumer.handle` offers messages to loops."""
    raise UsageError(f"{message!r}: a Consumer calls no handler")
