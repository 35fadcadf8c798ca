"""One queue that is assigned to a push consumer: the task that pulls, and in ordered mode the task that handles.

    assigned --pull--> process queue --handler--> done --> the offset moves on
      |
      +--dropped (assigned to another member, or begun anew at another offset): nothing more is handed out, and
         handlers that still run change no offset
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from perseid.base.errors import PerseidError
from perseid.client.deduplicator import Deduplicator
from perseid.client.errors import ServerRefused
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.process_queue import ProcessQueue
from perseid.client.pulling import PullStatus
from perseid.wire.codes import ResponseCode

if TYPE_CHECKING:
    from perseid.client.consumer import PushConsumer

log = logging.getLogger("perseid.client")

ERROR_PAUSE_MS = 1000
FLOW_CONTROL_PAUSE_MS = 20
LOCK_LIVES_MS = 30_000
"""How long a lock is trusted after it was last confirmed; the broker keeps it for 60 s."""
LOCK_PAUSE_MS = 1000
DROP_PATIENCE_MS = 500
"""How long giving an ordered queue up waits for the handler that runs; after that the next round tries."""
_HEARTBEAT_NEEDED = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})


class AssignedQueue:
    """A queue with its buffered messages and its tasks."""

    def __init__(self, consumer: PushConsumer, queue: MessageQueue, offset: int) -> None:
        self.queue = queue
        self.process_queue = ProcessQueue(queue, offset)
        self.deduplicator = Deduplicator(queue, offset) if consumer.options.dedupe else None
        self.gone = asyncio.Event()
        self.room = asyncio.Event()
        self.work = asyncio.Event()
        self.lock_until = 0.0
        self.winding_down = False
        self._end_offset = 0
        """Where the queue ended at the last pull."""
        self.last_pull_ms = 0
        self.last_done_ms = 0
        self._consumer = consumer
        self._reader: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None

    # ---- lifecycle ----

    def start(self) -> None:
        """Begin to pull (and, in ordered mode, to handle)."""
        session = self._consumer.session
        self._reader = session.spawn(self._read(), f"pull {self.queue}")
        if self._consumer.mode.is_ordered:
            self._worker = session.spawn(self._handle_in_order(), f"handle {self.queue}")

    def let_go(self) -> None:
        """Pull and hand out nothing more; what runs may finish, but moves no offset."""
        self.process_queue.dropped = True
        self._consumer.queue_changed(self)
        self.wind_down()

    async def drop(self) -> bool:
        """Let go; False when an ordered handler still runs (call again later)."""
        self.let_go()
        if self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker], timeout=DROP_PATIENCE_MS / 1000)
            return self._worker.done()
        return True

    def wind_down(self) -> None:
        """Pull and hand out nothing more; what runs may finish and still move the offset."""
        self.winding_down = True
        self.gone.set()
        self.work.set()
        if self._reader is not None:
            self._reader.cancel()

    def cancel(self) -> None:
        """Stop at once, also a handler that runs."""
        self.process_queue.dropped = True
        for task in (self._reader, self._worker):
            if task is not None:
                task.cancel()

    # ---- locks (ordered clustering only) ----

    @property
    def locked(self) -> bool:
        """True while the broker's lock can be trusted."""
        return not self._consumer.mode.needs_locks or asyncio.get_running_loop().time() < self.lock_until

    def lock_confirmed(self) -> None:
        """The broker has just said that the lock is ours."""
        self.lock_until = asyncio.get_running_loop().time() + LOCK_LIVES_MS / 1000
        self.work.set()
        self._consumer.queue_changed(self)

    # ---- progress ----

    def done(self, message: ReceivedMessage) -> None:
        """A message needs no more work: the offset may move on."""
        if self.process_queue.dropped:
            return
        self.process_queue.done(message.queue_offset)
        self.last_done_ms = self._consumer.now()
        self._move_on()
        self.room.set()

    def _move_on(self) -> None:
        """The group's offset is where this queue is."""
        offset, offsets = self.process_queue.commit_offset, self._consumer.offsets
        if offsets.get(self.queue) != offset:
            offsets[self.queue] = offset
            self._consumer.assignment.moved.set()

    @property
    def lag(self) -> int:
        """Offsets between what is done and where the queue ended at the last pull."""
        return max(0, self._end_offset - self.process_queue.commit_offset)

    # ---- pulling ----

    async def _read(self) -> None:
        consumer, process_queue = self._consumer, self.process_queue
        while not process_queue.dropped:
            await consumer.resumed.wait()
            if process_queue.full(consumer.options.limits, ordered=consumer.mode.is_ordered):
                consumer.counts.flow_controlled += 1
                self.room.clear()
                await self.room.wait()
                continue
            if not self.locked:
                await asyncio.sleep(LOCK_PAUSE_MS / 1000)
                continue
            pause_ms = await self._pull_once()
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _pull_once(self) -> int:
        """One pull and what follows from it; gives back how long to wait before the next."""
        consumer, process_queue = self._consumer, self.process_queue
        subscription = consumer.subscriptions[self.queue.topic]
        self.last_pull_ms = consumer.now()
        try:
            result = await consumer.puller.pull(
                self.queue,
                process_queue.next_offset,
                subscription,
                max_messages=consumer.options.pull_batch,
                with_subscription=False,
            )
            messages = result.messages
            if self.deduplicator is not None and messages:
                messages = await consumer.puller.fresh(self.deduplicator, self.queue, messages, subscription)
        except ServerRefused as error:
            if error.code == ResponseCode.FLOW_CONTROL:
                return FLOW_CONTROL_PAUSE_MS
            if error.code in _HEARTBEAT_NEEDED:  # the broker has lost us, perhaps it was restarted
                await consumer.session.heartbeat_soon()
            else:
                log.warning("%s: pulling goes on in %d ms: %s", self.queue, ERROR_PAUSE_MS, error)
            return ERROR_PAUSE_MS
        except PerseidError as error:
            log.warning("%s: pulling goes on in %d ms: %s", self.queue, ERROR_PAUSE_MS, error)
            return ERROR_PAUSE_MS
        if process_queue.dropped:
            return 0
        if result.status is PullStatus.MOVED:
            wanted = process_queue.next_offset
            if wanted != result.next_offset:  # else the group was reset to where we are
                log.warning("%s: offset %d is not there; on to %d", self.queue, wanted, result.next_offset)
            consumer.assignment.restart(self, result.next_offset)
            return ERROR_PAUSE_MS
        held_bytes = process_queue.bytes
        fresh = process_queue.add(messages, result.next_offset)
        self._end_offset = result.max_offset
        consumer.counts.pulled += len(fresh)
        consumer.counts.pulled_bytes += process_queue.bytes - held_bytes
        if not process_queue.messages:
            self._move_on()
        elif consumer.mode.is_ordered:
            self.work.set()
        else:
            for message in fresh:
                consumer.ready.put_nowait((self, message))
        return consumer.options.pull_interval_ms

    # ---- ordered handling ----

    async def _handle_in_order(self) -> None:
        consumer, process_queue = self._consumer, self.process_queue
        while not (process_queue.dropped or self.winding_down):
            message = process_queue.lowest()
            if message is None or not self.locked:
                self.work.clear()
                await self.work.wait()
                continue
            async with consumer.slots:
                if process_queue.dropped or self.winding_down:
                    return
                with consumer.busy():
                    pause_ms = await self._handle_one(message)
            if pause_ms:
                await self._unless_gone(pause_ms)

    async def _handle_one(self, message: ReceivedMessage) -> int:
        """Handle the lowest message; gives back how long to wait before it is tried again, 0 when it is done."""
        consumer = self._consumer
        failure = await consumer.handle(message)
        if self.process_queue.dropped:
            return 0
        at_limit = message.reconsume_times >= consumer.max_times_ordered
        if failure is None or (at_limit and await consumer.give_up(message)):
            self.done(message)
            return 0
        message.reconsume_times += 1
        return failure.after_ms or consumer.options.suspend_ms

    async def _unless_gone(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(min(max(pause_ms, 10), 30_000) / 1000):
                await self.gone.wait()
        except TimeoutError:
            pass


Handler = Callable[[ReceivedMessage], Awaitable[object] | object]
"""A function that handles a message, plain or async. Returning is success; an exception or `False` means
"again later"."""
