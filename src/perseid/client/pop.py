"""Take messages for a while: receive, acknowledge, or ask for more time (POP; the original's simple consumer).

    async with PopConsumer("host:9876", "billing", "orders", invisible_ms=30_000) as consumer:
        for message in await consumer.receive():
            charge(message.body)
            await consumer.ack(message)

The members of a group share all queues without a rebalance: each `receive` gets messages that no other member has. They
are invisible to the others for `invisible_ms`. A message that is not acknowledged by then is delivered again, to any
member, with `reconsume_times` one higher. Delivery is at least once: a late acknowledgement does not stop that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Unpack

from msgspec.structs import replace

from perseid.base.errors import PerseidError
from perseid.client.answers import header_of, unreadable
from perseid.client.errors import ClientError, NoRoute, ServerRefused, UsageError
from perseid.client.hooks import EXCEPTION, SUCCESS, Consuming, Hooks
from perseid.client.keywords import PopKeywords, with_keywords
from perseid.client.lifecycle import Client
from perseid.client.metrics import ConsumerMetrics
from perseid.client.model import ReceivedMessage
from perseid.client.options import POP_DEFAULTS, PopOptions
from perseid.client.routes import MISSING_INTERVAL_MS
from perseid.client.session import Session
from perseid.client.subscription import ALL, Sql, Subscription
from perseid.client.surroundings import now_ms
from perseid.wire import pop, record
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from perseid.wire.pop import BatchAck, Handle
from perseid.wire.record import Record

log = logging.getLogger("perseid.client")

INVISIBLE_MS = 60_000
WAIT_MS = 15_000
GRACE_MS = 10_000
"""So much later than the wait the client gives an answer up."""
ERROR_PAUSE_MS = 1_000
ALL_QUEUES = -1
_NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT)


class PoppedMessage(ReceivedMessage):
    """A received message that is invisible to others for a limited time. `handle` identifies this delivery of it,
    `lite_topic` is its lite topic (`LiteConsumer`)."""

    __slots__ = ("handle", "lite_topic")

    def __init__(self, record: Record, broker_name: str, handle: Handle, lite_topic: str | None = None) -> None:
        super().__init__(record, broker_name)
        self.handle = handle
        self.lite_topic = lite_topic

    @property
    def visible_at(self) -> int:
        """When others may see it again, by the broker's clock (ms)."""
        return self.handle.pop_time + self.handle.invisible_time


class PopConsumer(Client):
    """Receives messages of one topic for one group.

    `expression` filters by tags (`"a || b"`) or by `Sql("price > 5")`. `from_where` says where a new group begins:
    "first" or "last". `options`, or their names as keywords: `PopOptions`. `session` shares connections with other
    clients of this process.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "PERSEID_POP",
        topic: str = "",
        *,
        expression: str | Sql = ALL,
        invisible_ms: int = INVISIBLE_MS,
        from_where: str = "first",
        options: PopOptions = POP_DEFAULTS,
        session: Session | None = None,
        **keywords: Unpack[PopKeywords],
    ) -> None:
        if from_where not in ("first", "last"):
            raise UsageError(f"from_where={from_where!r}: write 'first' or 'last'")
        if not topic:
            raise UsageError("a PopConsumer needs a topic")
        self.session = session or Session(namesrv)
        self.group = group
        self.topic = topic
        self.invisible_ms = invisible_ms
        self._subscription = Subscription.parse(topic, expression, now_ms())
        self._init_mode = 0 if from_where == "first" else 1
        self.options = options = with_keywords(options, keywords, type(self))
        self._hooks = Hooks(options.hooks)
        self._counts = ConsumerMetrics()
        self._pops: dict[str, asyncio.Task[list[PoppedMessage] | ClientError]] = {}
        """By broker: pops that are under way."""
        self._told_missing = False
        """It was said that the topic does not exist."""
        self._started = False

    # ---- lifecycle ----

    async def start(self) -> None:
        """Start the client; connections are opened when first needed."""
        if not self._started:
            await self.session.start()
            try:
                await self._hooks.start(self.session, self.group)
            except BaseException:
                await self.session.stop()
                raise
            self._started = True

    async def stop(self) -> None:
        """Close the connections. Messages that were received and not acknowledged are delivered again."""
        if self._started:
            self._started = False
            for task in self._pops.values():
                task.cancel()
            await asyncio.gather(*self._pops.values(), return_exceptions=True)
            self._pops.clear()
            await self._hooks.stop()
            await self.session.stop()

    @property
    def metrics(self) -> ConsumerMetrics:
        """A copy of this consumer's counts."""
        now = self._counts.in_flight
        return self._counts.snapshot(in_flight=now, buffered=0, lag=0, connections=self.session.connections.count)

    # ---- receiving ----

    async def receive(self, max_messages: int = pop.MAX_MESSAGES, timeout_ms: int = WAIT_MS) -> list[PoppedMessage]:
        """Messages, as soon as there are some: at most `max_messages` (32) of each broker, [] if none came in time.

        It waits for a topic that does not exist yet. `ServerRefused` or another `ClientError` if no broker could
        answer.
        """
        started = now_ms()
        try:
            found = await self._receive(max_messages, timeout_ms)
        except ClientError as error:
            self._hooks.receive_failed(self.group, self.topic, started, error)
            raise
        self._hooks.received(self.group, found, started)
        return found

    async def _receive(self, max_messages: int, timeout_ms: int) -> list[PoppedMessage]:
        self.session.check_running("PopConsumer")
        brokers = await self._brokers_within(timeout_ms)
        if not brokers:
            return []
        for broker in brokers:
            if broker not in self._pops:
                coroutine = self._pop(broker, max_messages, timeout_ms)
                self._pops[broker] = self.session.spawn(_quiet(coroutine), f"pop of {self.topic} at {broker}")
        await asyncio.wait(self._pops.values(), timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        found: list[PoppedMessage] = []
        error: ClientError | None = None
        for broker, task in list(self._pops.items()):
            if not task.done():
                continue
            del self._pops[broker]
            result = task.result()
            if isinstance(result, ClientError):
                error = result
            else:
                found += result
        if error is not None:
            if not found and len(brokers) == 1:
                raise error
            log.warning("pop of %s: %s", self.topic, error)
        self._counts.pulled += len(found)
        self._counts.pulled_bytes += sum(message.record_bytes for message in found)
        return found

    async def _brokers_within(self, timeout_ms: int) -> list[str]:
        """As `_brokers`; a topic that does not exist yet is looked for each second. []: it did not come in time."""
        now = asyncio.get_running_loop().time
        until = now() + timeout_ms / 1000
        while True:
            try:
                found = await self._brokers()
            except NoRoute as error:
                if not self._told_missing:
                    self._told_missing = True
                    log.warning("group %s: %s; it is looked for each second", self.group, error)
                left = until - now()
                if left <= 0:
                    return []
                await asyncio.sleep(min(MISSING_INTERVAL_MS / 1000, left))
                await self.session.routes.refresh(self.topic)
            else:
                self._told_missing = False
                return found

    async def _brokers(self) -> list[str]:
        """All that have queues of the topic, of a static one too: pops know no logical queues."""
        names = (await self.session.routes.get(self.topic)).readable_brokers()
        if not names:
            raise NoRoute(self.topic, "none of its brokers is readable at the moment")
        return names

    def _request(self, max_messages: int, wait_ms: int) -> tuple[RequestCode, Header]:
        """What a broker is asked for messages."""
        return RequestCode.POP_MESSAGE, PopMessageRequest(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=max_messages,
            invisible_time=self.invisible_ms,
            poll_time=wait_ms,
            born_time=now_ms(),
            init_mode=self._init_mode,
            exp_type=self._subscription.kind,
            exp=self._subscription.text,
            order=self.options.ordered,
        )

    async def _pop(self, broker: str, max_messages: int, wait_ms: int) -> list[PoppedMessage]:
        address = await self.session.broker(broker, self.topic)
        code, request = self._request(min(max_messages, pop.MAX_MESSAGES), wait_ms)
        try:
            answer = await self.session.connections.call(address, code, request, timeout_ms=wait_ms + GRACE_MS)
        except ClientError:
            await self.session.routes.refresh(self.topic)
            raise
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, address)
        messages = self._read(answer, broker)
        unwanted = [message for message in messages if not self._subscription.wants(message.tag)]
        if unwanted:  # another tag with the same code
            await self.ack_all(unwanted)
        return [message for message in messages if self._subscription.wants(message.tag)]

    def _read(self, answer: Command, broker: str) -> list[PoppedMessage]:
        """The messages of an answer, with their handles."""
        try:
            return self._messages(answer, record.decode_all(answer.body), broker)
        except (PerseidError, KeyError, ValueError, IndexError) as error:
            raise unreadable(error) from error

    def _messages(self, answer: Command, records: list[Record], broker: str) -> list[PoppedMessage]:
        header = header_of(answer, PopMessageResponse)
        starts, counts = pop.parse_info(header.start_offset_info), pop.parse_info(header.order_count_info)
        return [self._message(one, header, starts, counts, broker) for one in records]

    def _message(
        self, one: Record, header: PopMessageResponse, starts: dict[tuple[str, str], str],
        counts: dict[tuple[str, str], str], broker: str,
    ) -> PoppedMessage:  # fmt: skip
        handle = pop.handle_of(one, header, starts, broker)
        count = counts.get((pop.retry_of(one.topic), f"qo{one.queue_id}%{one.queue_offset}"))
        if count is not None and "POP_CK" not in one.props:
            one = replace(one, reconsume_times=int(count))
        return PoppedMessage(one, broker, handle)

    # ---- what becomes of a message ----

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message: it is consumed. `ServerRefused` if the broker no longer has it."""
        handle = message.handle
        header = AckMessageRequest(
            consumer_group=self.group, topic=self._real_topic(handle), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset, lite_topic=message.lite_topic,
        )  # fmt: skip
        address = await self.session.broker(message.queue.broker_name, self.topic)
        await self.session.connections.ask(address, RequestCode.ACK_MESSAGE, header)
        self._counts.acknowledged += 1

    async def ack_all(self, messages: Iterable[PoppedMessage]) -> None:
        """Acknowledge messages, with one request for each broker."""
        by_broker: dict[str, dict[Handle, list[int]]] = {}
        for message in messages:
            batches = by_broker.setdefault(message.queue.broker_name, {})
            batches.setdefault(message.handle._replace(offset=-1), []).append(message.handle.offset)
        for broker, batches in by_broker.items():
            acks = [
                BatchAck(
                    self.group, self.topic, one.retry, one.start_offset, one.queue_id, one.revive_queue, one.pop_time,
                    one.invisible_time, tuple(offsets),
                )
                for one, offsets in batches.items()
            ]  # fmt: skip
            address = await self.session.broker(broker, self.topic)
            body = pop.batch_ack_body(broker, acks)
            await self.session.connections.ask(address, RequestCode.BATCH_ACK_MESSAGE, None, body)
            self._counts.acknowledged += sum(map(len, batches.values()))

    async def change_invisible(self, message: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Keep a message invisible to others for `invisible_ms` from now on. Acknowledge the returned message, which
        has a new handle. `ServerRefused` (208) if the message was already visible again."""
        handle = message.handle
        header = ChangeInvisibleTimeRequest(
            consumer_group=self.group, topic=self._real_topic(handle), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset, invisible_time=invisible_ms,
            lite_topic=message.lite_topic,
        )  # fmt: skip
        address = await self.session.broker(message.queue.broker_name, self.topic)
        answer = await self.session.connections.ask(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        new = header_of(answer, ChangeInvisibleTimeResponse)
        changed = handle._replace(
            start_offset=handle.offset, pop_time=new.pop_time, invisible_time=new.invisible_time,
            revive_queue=new.revive_qid,
        )  # fmt: skip
        return PoppedMessage(message.record, message.queue.broker_name, changed, message.lite_topic)

    def _real_topic(self, handle: Handle) -> str:
        return pop.real_topic(self.topic, self.group, handle.retry)

    # ---- a loop ----

    async def run(
        self, handle: Callable[[PoppedMessage], Awaitable[None]], *, concurrency: int = pop.MAX_MESSAGES
    ) -> None:
        """Receive messages until it is cancelled, and call `handle` for each, `concurrency` at a time. A message is
        acknowledged when `handle` returns, and delivered again when it raises."""
        busy: dict[asyncio.Task[None], None] = {}
        try:
            while True:
                while len(busy) >= concurrency:
                    await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                try:
                    messages = await self._receive(concurrency - len(busy), WAIT_MS)
                except PerseidError as error:
                    log.warning("pop of %s: %s; tried again", self.topic, error)
                    await asyncio.sleep(ERROR_PAUSE_MS / 1000)
                    continue
                for message in messages:
                    task = asyncio.ensure_future(self._handle(handle, message))
                    busy[task] = None
                    task.add_done_callback(busy.pop)
        finally:
            for task in list(busy):
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)

    async def _handle(self, handle: Callable[[PoppedMessage], Awaitable[None]], message: PoppedMessage) -> None:
        started, counts = now_ms(), self._counts
        consuming = Consuming(self.group, message, started)
        self._hooks.before_consume(consuming)
        counts.in_flight += 1
        try:
            await handle(message)
            consuming.outcome = SUCCESS
            counts.succeeded += 1
        except Exception as error:  # a handler may raise anything; the message comes again
            log.exception("the handler of %s failed: message %s comes again", self.topic, message.msg_id)
            consuming.outcome, consuming.error = EXCEPTION, error
            counts.failed += 1
            return
        except BaseException as error:
            consuming.error = error
            raise
        finally:
            counts.in_flight -= 1
            counts.latency.record(now_ms() - started)
            self._hooks.after_consume(consuming)
        try:
            await self.ack(message)
        except PerseidError as error:
            log.warning("message %s was not acknowledged, it comes again: %s", message.msg_id, error)


async def _quiet(coroutine: Awaitable[list[PoppedMessage]]) -> list[PoppedMessage] | ClientError:
    """The result, or the error as one: whoever asks next is told."""
    try:
        return await coroutine
    except ClientError as error:
        return error
