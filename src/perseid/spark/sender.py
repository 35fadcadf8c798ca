"""The network side of a task of the sink: it finds the queues, and sends batches, in order for each queue.

One batch is in flight for each queue, and tried again as it is until the deadline: through restarts of brokers and
changes of masters. So what is stored of a task in a queue is at any time a beginning of what the task sends there
(parts of it perhaps twice, which the stamps tell).

Where a batch begins in a queue at the earliest (the stamps' `since`) is kept by the brokers, as the offsets of two
groups of the query, for even and for odd batches: when batch N is whole, the ends of the queues are committed for
batch N + 1. That leaves the bound of batch N alone until batch N + 1 is whole, so a batch that runs again finds its
own. The queues that have one are also those that the batch was spread over, whatever the topic has got since.

A third group has the number of the last batch that was begun, as its offset of each broker's first queue. That one may
run again, as Spark does after a crash. An older one comes of a checkpoint that was restored from a copy, or of a
writer's name that was used before: it is refused before anything of it is sent.

The tasks of a query's first batch find no bound; each notes the same ones, its topic's first queue last. So a task that
sees that queue's bound sees all of them, and no task has sent anything before it was there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from perseid.client.blocking import LoopThread
from perseid.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NoRoute,
    RequestTimeout,
    SendFailed,
    ServerRefused,
)
from perseid.client.model import MessageQueue
from perseid.client.options import ProducerOptions
from perseid.client.producer import RETRY_CODES, Packed, Producer
from perseid.client.pulling import Offsets, Puller
from perseid.client.session import Session
from perseid.client.subscription import ALL, Subscription
from perseid.client.surroundings import now_ms
from perseid.spark.encode import BatchPartition, Layout
from perseid.spark.retrying import transient, until
from perseid.spark.sink_options import SinkError, SinkOptions
from perseid.wire.codes import ResponseCode
from perseid.wire.mapping import MOCK_PREFIX

log = logging.getLogger("perseid.spark")

BUFFER_BYTES = 16 * 1024 * 1024
"""How much may wait to be sent in one task; then rows wait."""
RETRY_FIRST_MS = 50
RETRY_MAX_MS = 500
CLOCK_SKEW_MS = 5 * 60_000
"""How far the brokers' clocks may be behind that of the driver."""

Ends = Mapping[MessageQueue, int]
"""Where queues end."""
T = TypeVar("T")


def slot_group(options: SinkOptions, writer: str, batch: int) -> str:
    """The group whose offsets say where a batch begins."""
    return f"{options.group}-{writer}-{batch % 2}"


def begun_group(options: SinkOptions, writer: str) -> str:
    """The group whose offsets are the number of the last batch that was begun."""
    return f"{options.group}-{writer}-begun"


class Sender:
    """The sink's connections, for code without asyncio: `with Sender(options) as sender: …`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        sends = ProducerOptions(timeout_ms=options.timeout_ms)
        session = Session(options.nameserver, **options.link())
        self._producer = Producer(group=options.group, options=sends, session=session)
        self._offsets = Offsets(self._producer.session)
        self._outgoing: dict[MessageQueue, asyncio.Queue[Packed]] = {}
        self._held = 0
        self._error: Exception | None = None
        self._moved = asyncio.Event()
        self.batches = 0
        self.retries = 0

    def __enter__(self) -> Self:
        self._thread = LoopThread("perseid sink")
        try:
            self._run(self._producer.start())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._producer.stop())
            finally:
                thread.stop()

    # ---- what the sink asks ----

    def ends(self, topic: str) -> Ends:
        """The queues that can be written to, and where each ends now. SinkError when there is no such topic."""
        return self._run(self._patiently(topic, lambda: self._ends(topic)))

    def layout(
        self, topic: str, part: BatchPartition, planned: Ends | None, planned_ms: int, *, remembered: bool
    ) -> Layout:
        """The queues of a batch and where it begins in each.

        `planned` is what `ends` said before any task of this run began, at `planned_ms`. `remembered`: the batch may
        have been begun by an earlier run, so that the brokers are asked for what that one knew. SinkError when a later
        one was begun.
        """
        return self._run(self._patiently(topic, lambda: self._layout(topic, part, planned, planned_ms, remembered)))

    def remember(self, topic: str, writer: str, batch: int) -> None:
        """Tell the brokers where `batch` begins at the earliest: here."""
        self._run(self._patiently(topic, lambda: self._remember(topic, writer, batch)))

    def put(self, queue: MessageQueue, packed: Packed) -> None:
        """Send a batch when its turn comes; waits for room. Raises what an earlier batch failed with."""
        self._run(self._put(queue, packed))

    def flush(self) -> None:
        """Wait until all is stored; SendFailed when something is not."""
        self._run(self._until_below(1))

    # ---- on the loop's thread ----

    def _run(self, coroutine: Awaitable[T]) -> T:
        assert self._thread is not None, "the sender is not started"
        return self._thread.run(_as_coroutine(coroutine))

    async def _patiently(self, topic: str, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await until(self._options.deadline_ms, f"topic {topic}", ask, lambda: self._refresh(topic))
        except NoRoute as error:
            raise SinkError(f"the sink found no queue of topic {topic!r} to write to: {error}") from error

    async def _refresh(self, topic: str) -> None:
        self.retries += 1
        await self._producer.session.routes.refresh(topic, at_once=True)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        queues = (await self._producer.session.routes.get(topic)).write_queues()
        if not queues:
            raise ConnectFailed(topic, "none of its brokers is writable at the moment")
        if queues[0].broker_name.startswith(MOCK_PREFIX):
            raise SinkError(f"{topic} is a static topic: its logical queues can't be written to by Spark")
        return queues

    async def _ends(self, topic: str) -> Ends:
        queues = await self._queues(topic)
        return dict(zip(queues, await asyncio.gather(*map(self._offsets.max, queues)), strict=True))

    async def _layout(
        self, topic: str, part: BatchPartition, planned: Ends | None, planned_ms: int, remembered: bool
    ) -> Layout:
        if not self._options.stamps:
            queues: Sequence[MessageQueue] = await self._queues(topic)
            return Layout(tuple(queues), (0,) * len(queues))
        if not remembered:
            if planned is not None:
                return _layout(planned)
            queues, began = await self._queues(topic), planned_ms - CLOCK_SKEW_MS
            times = await asyncio.gather(*(self._offsets.at_time(queue, began) for queue in queues))
            return _layout(dict(zip(queues, times, strict=True)))
        await self._begin(topic, part)
        own = slot_group(self._options, part.writer, part.batch)
        known = await self._remembered(topic, own)
        if known:
            return _layout(known)
        before = await self._remembered(topic, slot_group(self._options, part.writer, part.batch + 1))
        planned = before or planned  # before: the end of the last batch was not noted, but where it began
        if not planned:
            planned = dict.fromkeys(await self._queues(topic), 0)
        try:
            await self._commit(own, planned)
        except ServerRefused as error:
            if transient(error):
                raise
            log.warning("%s: where the batch begins can't be noted, so readers look far back: %s", topic, error)
            planned = dict.fromkeys(planned, 0)
        return _layout(planned)

    async def _begin(self, topic: str, part: BatchPartition) -> None:
        """Note at the brokers that a batch begins."""
        queues = sorted(await self._queues(topic), reverse=True)
        firsts = {queue.broker_name: queue for queue in queues}.values()
        group = begun_group(self._options, part.writer)
        known = await asyncio.gather(*(self._offsets.committed(group, queue, zero_if_young=False) for queue in firsts))
        last = max((number for number in known if number is not None), default=-1)
        if part.batch < last:
            raise SinkError(_older(topic, part, last, own_id=self._options.query_id is not None))
        if any(number != part.batch for number in known):
            try:
                await self._commit(group, dict.fromkeys(firsts, part.batch))
            except ServerRefused as error:
                if transient(error):
                    raise
                log.warning("%s: that batch %d begins can't be noted: %s", topic, part.batch, error)

    async def _remembered(self, topic: str, group: str) -> Ends:
        """The offsets that `_commit` has noted; none as long as they are not complete."""
        noted = await self._noted(topic, group)
        return noted if min(await self._queues(topic)) in noted else {}

    async def _noted(self, topic: str, group: str) -> Ends:
        queues = await self._queues(topic)
        known = await asyncio.gather(*(self._offsets.committed(group, q, zero_if_young=False) for q in queues))
        return {queue: offset for queue, offset in zip(queues, known, strict=True) if offset is not None}

    async def _remember(self, topic: str, writer: str, batch: int) -> None:
        await self._commit(slot_group(self._options, writer, batch), await self._ends(topic))

    async def _commit(self, group: str, ends: Ends) -> None:
        try:
            await self._commit_all(group, ends)
        except ServerRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            puller = Puller(self._producer.session, group)
            for queue in {queue.broker_name: queue for queue in ends}.values():  # a pull makes a broker create a group
                everything = Subscription.parse(queue.topic, ALL, now_ms())
                await puller.pull(queue, ends[queue], everything, max_messages=1, hold_ms=0)
            await self._commit_all(group, ends)

    async def _commit_all(self, group: str, ends: Ends) -> None:
        last = min(ends)
        others = {queue: offset for queue, offset in ends.items() if queue != last}
        for error in (await self._offsets.commit_all(group, others)).values():
            if error is not None:
                raise error
        if not others.keys() <= (await self._noted(last.topic, group)).keys():  # Java's broker may, see commit_all
            raise ClientError(f"{last.topic}: the brokers do not tell all offsets of {group} that they took")
        await self._offsets.commit(group, last, ends[last])

    # ---- sending ----

    async def _put(self, queue: MessageQueue, packed: Packed) -> None:
        await self._until_below(BUFFER_BYTES)
        outgoing = self._outgoing.get(queue)
        if outgoing is None:
            outgoing = self._outgoing[queue] = asyncio.Queue()  # bounded by BUFFER_BYTES, over all queues
            self._producer.session.spawn(self._work(queue, outgoing), f"send to {queue}")
        self._held += len(packed.body)
        outgoing.put_nowait(packed)

    async def _until_below(self, limit: int) -> None:
        while self._held >= limit and self._error is None:
            self._moved.clear()
            await self._moved.wait()
        if self._error is not None:
            raise self._error

    async def _work(self, queue: MessageQueue, outgoing: asyncio.Queue[Packed]) -> None:
        while self._error is None:
            packed = await outgoing.get()
            try:
                await self._deliver(queue, packed)
            except Exception as error:  # whatever it is, whoever waits has to hear of it
                self._error = self._error or error
            self._held -= len(packed.body)
            self.batches += 1
            self._moved.set()

    async def _deliver(self, queue: MessageQueue, packed: Packed) -> None:
        """Send one batch until it is stored; SendFailed when the deadline is over, or it was refused for good."""
        loop, session = asyncio.get_running_loop(), self._producer.session
        deadline = loop.time() + self._options.deadline_ms / 1000
        pause_ms, attempts = RETRY_FIRST_MS, 0
        while True:
            attempts += 1
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            try:
                await self._producer.attempt(packed, queue, min(self._options.timeout_ms, left_ms))
                return
            except (ConnectFailed, ConnectionLost, RequestTimeout) as error:
                last: ClientError = error
            except ServerRefused as error:
                if error.code not in RETRY_CODES:
                    raise SendFailed(f"{queue}: a batch was refused: {error}", attempts) from error
                last = error
            if loop.time() + pause_ms / 1000 >= deadline:
                raise SendFailed(
                    f"{queue}: a batch was not acknowledged within deadlineMs={self._options.deadline_ms}"
                    f" ({attempts} attempts): {last}",
                    attempts,
                ) from last
            self.retries += 1
            await session.routes.refresh(queue.topic, at_once=True)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, RETRY_MAX_MS)


def _older(topic: str, part: BatchPartition, last: int, *, own_id: bool) -> str:
    """Why a batch is refused, and what to do."""
    said = f"{topic}: batch {part.batch} of query {part.writer} was not sent, for batch {last} was begun already: "
    if own_id:
        return f"{said}the numbers of a queryId's batches rise; give a new queryId, or a higher batchId"
    return (
        f"{said}the checkpoint was restored from an older copy; begin with a new checkpointLocation, or give a queryId"
        " of its own, and readers get the rows from there on as new ones"
    )


def _layout(ends: Ends) -> Layout:
    queues = sorted(ends)
    return Layout(tuple(queues), tuple(ends[queue] for queue in queues))


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
