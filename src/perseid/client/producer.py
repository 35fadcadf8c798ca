"""Send messages: one by one or in batches, to any queue or to one of your choice.

A send goes to the next queue in turn. After an error that a retry may cure (no connection, no answer, or one of
RocketMQ's retry codes) it is retried up to `retries` times, on another broker if there is one. `timeout_ms` limits all
attempts together. If an answer was lost, a message can be stored twice: both copies have the same `msg_id`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from perseid.client import request_reply
from perseid.client.answers import header_of
from perseid.client.batching import Batcher, Entry, Item, batchable
from perseid.client.errors import (
    BadAnswer,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    NoRoute,
    NotStarted,
    RequestTimeout,
    SendFailed,
    ServerRefused,
)
from perseid.client.frames import SendTemplate
from perseid.client.hooks import Hooks, SendCall, Sending
from perseid.client.keywords import ProducerKeywords, with_keywords
from perseid.client.latency import QueueChooser
from perseid.client.lifecycle import Client
from perseid.client.metrics import ProducerMetrics
from perseid.client.model import (
    MAX_PROPERTIES_BYTES,
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    SendStatus,
    key_hash,
)
from perseid.client.options import PRODUCER_DEFAULTS, ProducerOptions
from perseid.client.request_reply import REPLY_TIMEOUT_MS, REQUEST_TIMEOUT_MS
from perseid.client.routes import TopicRoute
from perseid.client.session import Session
from perseid.client.surroundings import now_ms
from perseid.client.tls import ClientTls
from perseid.wire import batch, compression, lite_sharding
from perseid.wire.bodies import ConsumerData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)
from perseid.wire.names import AUTO_CREATE_TOPIC, RETRY_PREFIX

log = logging.getLogger("perseid.client")

MAX_BATCH_MESSAGES = 10_000
MAX_TEMPLATES = 4096
"""Queues whose headers are kept."""
HANDLE_WORDS = 5

RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
STORED_CODES = frozenset(int(status) for status in SendStatus)

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


class Packed:
    """A message (or several as one) ready to be sent to any queue: the same bytes at every attempt."""

    __slots__ = (
        "body", "calls", "code", "flag", "header_max_reconsume", "ids", "properties", "reconsume_times", "sys_flag",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, body: bytes, properties: str, ids: list[str], flag: int = 0) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.ids = ids
        self.flag = flag
        self.sys_flag = 0
        self.code = RequestCode.SEND_MESSAGE_V2
        self.reconsume_times = 0
        self.header_max_reconsume: int | None = None
        self.calls: Sequence[SendCall] = ()
        """Of which hooks want to hear."""

    def header(self, group: str, queue: MessageQueue, default_queues: int) -> SendMessageRequestV2:
        """The header of a send to `queue`."""
        return SendMessageRequestV2(
            producer_group=group,
            topic=self.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=default_queues,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=now_ms(),
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=False,
            max_reconsume_times=self.header_max_reconsume,
            batch=self.code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker_name,
        )

    def result(self, answer: Command, queue: MessageQueue) -> list[SendResult]:
        """The results, one a message, out of the answer to a send that was stored."""
        header = header_of(answer, SendMessageResponse)
        status = SendStatus(answer.code)
        where = queue if header.queue_id == queue.queue_id else queue._replace(queue_id=header.queue_id)
        if len(self.ids) == 1:
            transaction_id, handle = header.transaction_id or "", header.recall_handle or ""
            return [
                SendResult(status, self.ids[0], header.msg_id, where, header.queue_offset, transaction_id, handle)
            ]
        stored = header.msg_id.split(",")
        missing = stored[0] if header.batch_uniq_id is not None else ""  # one record holds them all
        stored += [missing] * (len(self.ids) - len(stored))
        return [
            SendResult(status, own, stored[i], where, header.queue_offset + i) for i, own in enumerate(self.ids)
        ]


class _Begun(NamedTuple):
    """An attempt that is under way."""

    queue: MessageQueue
    address: str
    """Of the broker that was sent to: who leads the queue now does not matter for its answer."""
    answer: asyncio.Future[Command]
    started_ms: int
    deadline: float
    """Of all attempts, by the event loop's clock."""


class Producer(Client):
    """Sends messages: `async with Producer("host:9876") as producer: await producer.send(Message(…))`.

    Options are keywords (`retries=0`), or an object that can be shared (`options=ProducerOptions(retries=0)`).
    `session` shares connections with other clients of this process.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "PERSEID_PRODUCER",
        *,
        options: ProducerOptions = PRODUCER_DEFAULTS,
        session: Session | None = None,
        tls: ClientTls | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        self.session = session or Session(namesrv, tls=tls)
        self.group = group
        self.options = options = with_keywords(options, keywords, type(self))
        self._chooser = QueueChooser(
            self.session.random.randrange(1 << 16), avoid_slow_brokers=options.avoid_slow_brokers
        )
        self.hooks = Hooks(options.hooks)
        self._counts = ProducerMetrics()
        self._started = False
        self._batcher: Batcher | None = None
        self._greeted: set[str] = set()
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._ids = self.session.unique_ids

    # ---- lifecycle ----

    async def start(self) -> None:
        """Start the client; connections are opened when first needed."""
        if not self._started:
            await self.session.start()
            try:
                await self.hooks.start(self.session, self.group)
            except BaseException:
                await self.session.stop()
                raise
            self.session.members.append(self)
            self._batcher = Batcher(self, self.options) if self.options.linger_ms > 0 else None
            self._started = True

    async def stop(self) -> None:
        """Send collected messages, leave the group, and close the connections (unless the session is shared)."""
        try:
            if self._batcher is not None:
                await self._batcher.close()
        finally:
            if self._started:
                self._started = False
                await self.hooks.stop()
                self.session.members.remove(self)
                await self.session.unregister(producer_group=self.group)
                await self.session.stop()

    def producer_group(self) -> str | None:
        """For the session's heartbeats."""
        return self.group

    def consumer_data(self) -> ConsumerData | None:
        """For the session's heartbeats."""
        return None

    @property
    def metrics(self) -> ProducerMetrics:
        """A copy of this producer's counts."""
        collected = 0 if self._batcher is None else self._batcher.collected
        return self._counts.snapshot(
            in_flight=self._counts.in_flight, buffered=collected, connections=self.session.connections.count
        )

    # ---- sending ----

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        `queue` chooses the queue. `key` chooses always the same queue for the same key, as long as the topic's queues
        stay the same. `selector` is a function that chooses one of the topic's queues. With any of them the send is not
        retried, as in RocketMQ; `OrderedProducer` retries on the same queue.

        With `linger_ms`, it is sent in a batch with others (`perseid.client.batching`), unless it has a `timeout_ms`.
        `SendFailed` or another `ClientError` if no broker acknowledged it.
        """
        self._check_started()
        if queue is not None or key is not None or selector is not None:
            message.check_no_priority("a message for a queue of the sender's choice")
        chosen = by_key(key) or selector or _by_lite_topic(message)
        if self._batcher is not None and timeout_ms is None and batchable(message, self.options):
            if chosen is None and not self.hooks.hear_of_calls:
                item = self._encode(message, now_ms())
                future = self._batcher.begin(message.topic, queue, item)
                return await (future or self._batcher.send(message.topic, queue, item, None))
            return await self._send_in_batch(self._batcher, message, queue, chosen)
        packed = self.pack(message)
        begun = None
        if queue is None and chosen is None and not self.hooks:
            begun = self._begin(packed, self.options.timeout_ms if timeout_ms is None else timeout_ms)
            if begun is not None:
                try:
                    return self._stored(packed, begun, await begun.answer)
                except asyncio.CancelledError:
                    self._counts.in_flight -= 1
                    self._counts.failed += 1
                    raise
                except ClientError:
                    pass  # `_send` meets it again, and knows what follows from it
        return (await self._send(packed, queue, chosen, timeout_ms, begun))[0]

    async def flush(self) -> None:
        """Send the messages that `linger_ms` has collected at once, and wait until each is acknowledged or has failed.

        Errors are raised by the messages' own `send()`.
        """
        self._check_started()
        if self._batcher is not None:
            await self._batcher.flush()

    async def send_packed(self, packed: Packed) -> list[SendResult]:
        """Send what was packed before (`pack`, `pack_batch`), to any queue."""
        self._check_started()
        return await self._send(packed, None, None, None)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of one topic together: they get consecutive offsets in one queue.

        All bodies together must not exceed `max_body_bytes`. Delays are not possible. Returns one result for each
        message, in order.
        """
        self._check_started()
        return await self._send(self.pack_batch(messages), queue, by_key(key), timeout_ms)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, key: str | None = None
    ) -> None:
        """Send without waiting for an answer. This is fast, but you don't learn whether the message was stored."""
        self._check_started()
        if queue is not None or key is not None:
            message.check_no_priority("a message for a queue of the sender's choice")
        packed = self.pack(message)
        try:
            chosen = queue or await self._choose(packed.topic, by_key(key) or _by_lite_topic(message), None)
            address = await self.session.leader(chosen)
            connection = await self.session.connections.get(address)
        except BaseException as error:
            self._counts.failed += 1
            self.end_calls(packed, error=error)
            raise
        self._counts.oneway += 1
        sending = self.begin_attempt(packed, chosen, address, now_ms()) if self.hooks.hear_of_attempts else None
        connection.oneway(packed.code, packed.header(self.group, chosen, self.options.default_queues), packed.body)
        if sending is not None:
            self.hooks.after_send(sending)
        self.end_calls(packed)

    async def request(self, message: Message, *, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReceivedMessage:
        """Send one message and wait for its consumer's reply. `NoReply` if none comes in time."""
        self._check_started()
        return await request_reply.request(self, message, timeout_ms)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = REPLY_TIMEOUT_MS,
    ) -> SendResult:
        """Reply to a message that was sent with `request`, and wait until the requester has the reply.

        `InvalidMessage` for a message that asks for none; `ServerRefused` when the requester is gone.
        """
        self._check_started()
        return await request_reply.reply(
            self, request, body, timeout_ms, tag=tag, keys=keys, properties=properties
        )

    async def clusters(self, topic: str) -> set[str]:
        """The clusters whose brokers a send to `topic` can go to."""
        self._check_started()
        return set((await self._route(topic)).clusters.values())

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a message with `delay_ms` or `deliver_at_ms` before its time. Returns its `msg_id`.

        `recall_handle` is that of its `SendResult`. The broker promises not to deliver the message; it does not check
        whether the message exists. `ServerRefused` if the time has come, or the broker allows no recalls
        (recallMessageEnable).
        """
        self._check_started()
        broker_name = _broker_of(recall_handle)
        header = RecallMessageRequest(
            topic=topic, recall_handle=recall_handle, producer_group=self.group, broker_name=broker_name
        )
        address = await self.session.broker(broker_name, topic)
        answer = await self.session.connections.call(
            address, RequestCode.RECALL_MESSAGE, header, b"", timeout_ms or self.options.timeout_ms
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, address)
        return header_of(answer, RecallMessageResponse).msg_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a message of `topic` can be sent now. `NoRoute` if there are none."""
        self._check_started()
        queues = (await self._route(topic)).write_queues()
        if not queues:
            raise NoRoute(topic, "none of its brokers is writable at the moment")
        return queues

    # ---- packing ----

    def pack(self, message: Message) -> Packed:
        """Check, compress and encode a message once, for all attempts; hooks may set its properties before."""
        if not self.hooks.hear_of_calls:
            return self._pack(message)
        return self._pack_call((message,), self._pack_one)

    def pack_batch(self, messages: Sequence[Message]) -> Packed:
        """Check and encode several messages as the one that carries them; hooks may set their properties before."""
        if not self.hooks.hear_of_calls:
            return self._pack_batch(messages)
        return self._pack_call(messages, self._pack_batch, batch=True)

    def _pack_call(
        self, messages: Sequence[Message], pack: Callable[[list[Message]], Packed], *, batch: bool = False
    ) -> Packed:
        """The messages, packed with the properties that the hooks set."""
        call = self.hooks.begin_call(self.group, messages, batch=batch)
        with self.hooks.failing(call):
            packed = pack([outgoing.packable() for outgoing in call.messages])
        call.ids = packed.ids
        packed.calls = (call,)
        return packed

    def _pack_one(self, messages: list[Message]) -> Packed:
        return self._pack(messages[0])

    def _pack(self, message: Message) -> Packed:
        message.check(self.options.max_body_bytes)
        unique_key = message.properties.get("UNIQ_KEY") or self._ids.next(now_ms())
        packed = Packed(
            message.topic, message.body, message.encode_properties(unique_key), [unique_key], message.flag
        )
        if len(packed.properties) > MAX_PROPERTIES_BYTES // 3:
            check_properties(message.topic, len(packed.properties.encode()))
        if len(message.body) >= self.options.compress_above_bytes:
            packed.body = compression.compress(message.body, compression.ZLIB, self.options.compress_level)
            packed.sys_flag = compression.flag_of(compression.ZLIB)
        return packed

    def _pack_batch(self, messages: Sequence[Message]) -> Packed:
        if not messages:
            raise InvalidMessage("an empty batch: give at least one message")
        if len(messages) > MAX_BATCH_MESSAGES:
            raise InvalidMessage(f"a batch of {len(messages)} messages; the limit is {MAX_BATCH_MESSAGES}")
        topic = messages[0].topic
        is_retry = topic.startswith(RETRY_PREFIX)
        items: list[Item] = []
        now = now_ms()
        for message in messages:
            if message.topic != topic:
                raise InvalidMessage(f"a batch for {topic} and {message.topic}: send one batch a topic")
            if message.delayed or is_retry:
                raise InvalidMessage(f"message for {topic}: delayed and retry messages can't be batched: send() them")
            if message.priority is not None:
                message.check_no_priority("a message of a batch")
            if message.lite_topic:
                raise InvalidMessage(f"message for {topic}: messages of lite topics can't be batched: send() them")
            items.append(self._encode(message, now))
        return self._pack_items(topic, items)

    def _encode(self, message: Message, now: int) -> Item:
        """Check and encode a message that goes into a batch."""
        message.check(self.options.max_body_bytes)
        unique_key = (message.properties.get("UNIQ_KEY") if message.properties else None) or self._ids.next(now)
        properties = message.encode_properties(unique_key).encode()
        if len(properties) > MAX_PROPERTIES_BYTES:
            check_properties(message.topic, len(properties))
        return Item(message.flag, message.body, properties, unique_key)

    def pack_entries(self, topic: str, entries: Sequence[Entry]) -> Packed:
        """Messages that were given one by one: a single one as it is, several as the one that carries them."""
        if len(entries) == 1:
            only = entries[0]
            packed = Packed(topic, only.body, only.properties.decode(), [only.unique_key], only.flag)
        else:
            packed = self._pack_items(topic, entries)
        if self.hooks.hear_of_calls:
            packed.calls = [entry.call for entry in entries if entry.call is not None]
        return packed

    def _pack_items(self, topic: str, items: Sequence[Item | Entry]) -> Packed:
        body = batch.encode([item[:3] for item in items])
        if len(body) > self.options.max_body_bytes:
            raise InvalidMessage(
                f"a batch of {len(items)} messages has {len(body)} bytes, the limit is {self.options.max_body_bytes}:"
                " send fewer at a time"
            )
        ids = [item.unique_key for item in items]
        packed = Packed(topic, body, f"UNIQ_KEY\x01{ids[0]}\x02WAIT\x01true\x02", ids)
        packed.code = RequestCode.SEND_BATCH_MESSAGE
        return packed

    # ---- the usual send: at once, with nobody to ask and nobody to tell ----

    def _begin(self, packed: Packed, timeout_ms: int) -> _Begun | None:
        """The first attempt of a message without hooks, for any queue; None where something has to be waited for, or
        done, before it can be sent (`attempt` does that)."""
        route = self.session.routes.known(packed.topic)
        if route is None or packed.flag or packed.sys_flag or not route.writable:
            return None
        started = now_ms()
        queue = self._chooser.choose(packed.topic, route.writable, started, None)
        address = self.session.routes.address(self.session.routes.home(queue))
        if address is None or address not in self._greeted:
            return None
        connection = self.session.connections.ready(address)
        if connection is None or not connection.writable or connection.signs:
            return None
        template = self._templates.get(queue)
        if template is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            template = SendTemplate(packed.code, packed.header(self.group, queue, self.options.default_queues))
            self._templates[queue] = template
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        answer = connection.begin(template, started, packed.properties, packed.body, timeout_ms)
        self._counts.in_flight += 1
        return _Begun(queue, address, answer, started, deadline)

    def _stored(self, packed: Packed, begun: _Begun, answer: Command) -> SendResult:
        """The result of a send that went as it should; ClientError when it did not."""
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, begun.queue.broker_name)
        (result,) = packed.result(answer, begun.queue)
        now, counts = now_ms(), self._counts
        counts.in_flight -= 1
        counts.sent += 1
        counts.sent_bytes += len(packed.body)
        counts.latency.record(now - begun.started_ms)
        self._chooser.report(self.session.routes.home(begun.queue), now - begun.started_ms, now, failed=False)
        return result

    # ---- inside ----

    def _check_started(self) -> None:
        self.session.check_running("Producer")
        if not self._started:
            raise NotStarted("this Producer is not running: use `async with Producer(…)`, or `await start()` first")

    async def _route(self, topic: str) -> TopicRoute:
        return await self.session.routes.get_or_default(topic, self.options.default_queues)

    async def _choose(self, topic: str, selector: Selector | None, failed: str | None) -> MessageQueue:
        if selector is not None:
            return selector(await self.queues(topic))
        queues = (await self._route(topic)).writable or await self.queues(topic)
        return self._chooser.choose(topic, queues, now_ms(), failed)

    async def _send_in_batch(
        self, batcher: Batcher, message: Message, queue: MessageQueue | None, selector: Selector | None
    ) -> SendResult:
        if selector is not None and queue is None:
            queue = await self._choose(message.topic, selector, None)
        if not self.hooks.hear_of_calls:
            return await batcher.send(message.topic, queue, self._encode(message, now_ms()), None)
        call = self.hooks.begin_call(self.group, (message,))
        with self.hooks.failing(call):
            item = self._encode(call.messages[0].packable(), now_ms())
        call.ids = (item.unique_key,)
        return await batcher.send(message.topic, queue, item, call)

    async def send_entries(
        self, topic: str, entries: Sequence[Entry], queue: MessageQueue | None
    ) -> list[SendResult]:
        """Send what a batcher has collected; it tells the callers and the hooks how their messages ended."""
        self._counts.batches += 1
        try:
            return await self._send_by_attempts(self.pack_entries(topic, entries), queue, None, None)
        except BaseException:
            self._counts.failed += len(entries)
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """For a batcher: a task that ends with the session."""
        self.session.spawn(coroutine, name)

    async def _send(
        self,
        packed: Packed,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_ms: int | None,
        begun: _Begun | None = None,
    ) -> list[SendResult]:
        try:
            results = await self._send_by_attempts(packed, queue, selector, timeout_ms, begun)
        except BaseException as error:
            self._counts.failed += len(packed.ids)
            self.end_calls(packed, error=error)
            raise
        if packed.calls:
            self.end_calls(packed, results)
        return results

    async def _send_by_attempts(
        self,
        packed: Packed,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_ms: int | None,
        begun: _Begun | None = None,
    ) -> list[SendResult]:
        total_ms = timeout_ms if timeout_ms is not None else self.options.timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + total_ms / 1000 if begun is None else begun.deadline
        fixed = queue is not None or selector is not None
        attempts = 1 if fixed else 1 + self.options.retries
        failed: str | None = None
        tried: list[str] = []
        last: ClientError | None = None
        results: list[SendResult] | None = None
        moved = unknown = False
        while attempts > 0:
            attempts -= 1
            left_ms = int((deadline - loop.time()) * 1000)
            if left_ms <= 0 and begun is None:
                break
            try:
                chosen = begun.queue if begun else queue or await self._choose(packed.topic, selector, failed)
            except NoRoute:
                if last is None:
                    raise
                break  # no master for now: the error is that of the attempt, which may have stored the message
            first, begun = begun, None
            home = self.session.routes.home(chosen)
            if tried:
                self._counts.retried += 1
            tried.append(home)
            try:
                results = await self.attempt(packed, chosen, left_ms, first)
                if results[0].status == SendStatus.SEND_OK or not self.options.retry_when_not_stored_ok:
                    return results
            except (BadAnswer, ConnectFailed, ConnectionLost, RequestTimeout) as error:
                last, unknown = error, unknown or error.outcome_unknown
                await self.session.routes.refresh(packed.topic)
            except ServerRefused as error:
                last, unknown = error, unknown or error.outcome_unknown
                if error.code not in RETRY_CODES:
                    raise
                if error.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                    await self.session.routes.refresh(packed.topic, at_once=True)
                    if not moved and self.session.routes.home(chosen) != home:
                        moved, attempts = True, attempts + 1  # it was not stored, and we know better now
            failed = home
        if results is not None:
            return results
        raise SendFailed(
            f"message for {packed.topic} was not acknowledged after {len(tried)} attempt(s) within {total_ms} ms"
            f" (brokers tried: {', '.join(tried) or 'none'}); the last error: {last}",
            len(tried),
            outcome_unknown=unknown,
        ) from last

    async def attempt(
        self, packed: Packed, queue: MessageQueue, timeout_ms: int, begun: _Begun | None = None
    ) -> list[SendResult]:
        """One send to one queue: its results, or what went wrong. `begun`: it is under way, or over, already."""
        started, counts = now_ms() if begun is None else begun.started_ms, self._counts
        failed = True
        counts.in_flight += len(packed.ids) if begun is None else 0
        sending: Sending | None = None
        address = ""
        try:
            address = await self.session.leader(queue) if begun is None else begun.address
            if address not in self._greeted:
                self._greet(address)
            if self.hooks.hear_of_attempts:
                sending = self.begin_attempt(packed, queue, address, started)
            answer = None if begun is None else await begun.answer
            if answer is not None and answer.code == ResponseCode.GO_AWAY:
                self.session.connections.retire(address)
            if answer is None or answer.code == ResponseCode.GO_AWAY:
                header = packed.header(self.group, queue, self.options.default_queues)
                answer = await self.session.connections.call(address, packed.code, header, packed.body, timeout_ms)
            if answer.code not in STORED_CODES:
                raise ServerRefused(answer.code, answer.remark, address)
            results = packed.result(answer, queue)
            failed = False
            if sending is not None:
                note_answer(sending, results, answer)
            return results
        except BaseException as error:
            if isinstance(error, ConnectFailed | ConnectionLost):
                self._greeted.discard(address)  # whoever answers there next does not know our group
            if sending is not None:
                sending.error = error
            raise
        finally:
            now = now_ms()
            counts.in_flight -= len(packed.ids)
            if not failed:
                counts.sent += len(packed.ids)
                counts.sent_bytes += len(packed.body)
                counts.latency.record(now - started)
            self._chooser.report(self.session.routes.home(queue), now - started, now, failed=failed)
            if sending is not None:
                self.hooks.after_send(sending)

    # ---- telling hooks ----

    def begin_attempt(self, packed: Packed, queue: MessageQueue, address: str, started_ms: int) -> Sending:
        """An attempt that hooks are told of; they are told that it begins."""
        sending = Sending(self.group, queue, address, packed.ids, packed.properties, len(packed.body), started_ms)
        sending.calls = packed.calls
        self.hooks.before_send(sending)
        return sending

    def end_calls(
        self, packed: Packed, results: list[SendResult] | None = None, error: BaseException | None = None
    ) -> None:
        """Tell the hooks that the call that was packed has ended, with all its attempts; once."""
        calls, packed.calls = packed.calls, ()
        for call in calls:
            self.hooks.end_call(call, results, error)

    def _greet(self, address: str) -> None:
        """A broker seen for the first time gets a heartbeat soon, not only at the next turn of the 30 s."""
        self._greeted.add(address)
        self.session.spawn(self.session.heartbeat(), "first heartbeat")


def note_answer(sending: Sending, results: list[SendResult], answer: Command) -> None:
    """What hooks are told of an attempt that was stored."""
    told = header_of(answer, SendMessageResponse)
    sending.results, sending.region = results, told.msg_region
    sending.trace_on = told.trace_on is not False


def _broker_of(recall_handle: str) -> str:
    """The broker that a handle names; InvalidMessage when it is none."""
    try:
        padded = recall_handle + "=" * (-len(recall_handle) % 4)
        words = base64.urlsafe_b64decode(padded).decode().split(" ")
    except ValueError:
        words = []
    if len(words) < HANDLE_WORDS or words[0] != "v1":
        raise InvalidMessage(f"{recall_handle[:80]!r} is no recall handle: give that of a SendResult")
    return words[2]


def by_key(key: str | None) -> Selector | None:
    """What picks always the same queue for the same key; None without a key."""
    if key is None:
        return None
    number = key_hash(key)
    return lambda queues: queues[number % len(queues)]


def _by_lite_topic(message: Message) -> Selector | None:
    """The queue that the brokers look for a lite topic's messages in."""
    name = message.lite_topic
    return (lambda queues: lite_sharding.place_of(name, queues)) if name else None


def check_properties(topic: str, size: int) -> None:
    """Raise `InvalidMessage` for encoded properties that no broker takes."""
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(
            f"message for {topic}: keys, tag and properties have {size} bytes, the limit is {MAX_PROPERTIES_BYTES}"
        )
