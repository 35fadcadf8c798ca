"""Send many messages fast and in order: messages with one key go to one queue, in the order of the calls.

Each queue has a sender, with one batch in flight at a time:

    idle --first message--> in flight --stored--> idle, or in flight again with what has gathered meanwhile
                              | no answer, no connection, a retry code
                              v
                           waiting (50 ms, doubling up to 250 ms, or until the route names another master)
                              |                             --> in flight with the very same batch
                              | `deadline_ms` over, or refused for good
                              v
                           all that the sender holds fails

Guarantees:
- Nothing overtakes the batch in flight: the messages of a queue are stored in the order in which they were sent. A
  batch whose answer was lost may be stored twice; the copies have the same `msg_id`.
- If a message fails for good, all later messages that the producer holds for its queue fail too, so no stored message
  follows a gap.
- The queues of a topic are those that it had at the first message. A key keeps its queue as long as the producer
  runs, also if a broker is down or queues are added.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Unpack

from perseid.base.errors import PerseidError
from perseid.client.batching import ITEM_BYTES, Buffer, Entry, acknowledge, fail
from perseid.client.errors import (
    BadAnswer,
    BufferFull,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NoRoute,
    NotStarted,
    SendFailed,
    ServerRefused,
)
from perseid.client.hooks import SendCall, Sending
from perseid.client.keywords import OrderedProducerKeywords, with_keywords
from perseid.client.lifecycle import Client
from perseid.client.metrics import ProducerMetrics
from perseid.client.model import MAX_PROPERTIES_BYTES, Message, MessageQueue, SendResult, key_hash
from perseid.client.options import ORDERED_PRODUCER_DEFAULTS, OrderedProducerOptions, ProducerOptions
from perseid.client.producer import RETRY_CODES, STORED_CODES, Packed, Producer, check_properties, note_answer
from perseid.client.session import Session
from perseid.client.surroundings import now_ms
from perseid.client.tls import ClientTls
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command

log = logging.getLogger("perseid.client")

RETRY_FIRST_MS = 50
RETRY_MAX_MS = 250
ROUTE_FIRST_MS = 10
"""Between two looks at the route while a sender fails; doubled up to `RETRY_MAX_MS`."""
YIELD_EVERY = 512
"""`put()` lets the event loop run after this many messages, even when there is room."""


class _QueueSender:
    """The messages for one queue: waiting, and in flight."""

    __slots__ = (
        "attempts", "deadline", "entries", "failing_since", "in_flight", "outcome_unknown", "packed", "planned",
        "queue", "retry", "tried", "tried_ms",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.entries: deque[Entry] = deque()
        self.in_flight: list[Entry] = []
        self.packed: Packed | None = None
        self.planned = False
        self.attempts = 0
        self.deadline = 0.0
        self.outcome_unknown = False
        """Whether an attempt of the batch in flight may have been stored."""
        self.failing_since: int | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.tried: str | None = None
        """The address of the last attempt."""
        self.tried_ms = 0
        """When that was."""


class _Topic:
    """A topic's senders, once its route is known; before, the messages that wait for that."""

    __slots__ = ("following", "senders", "waiting")

    def __init__(self) -> None:
        self.following = False
        """While the route is asked for again and again."""
        self.senders: list[_QueueSender] | None = None
        self.waiting: list[tuple[int, Entry]] = []


class OrderedProducer(Client):
    """Sends many messages in order: call `await producer.put(message, key)` for each, then `await producer.flush()`.

    `put()` waits while the buffer is full. `send()` never waits, and returns a future for the result.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "PERSEID_PRODUCER",
        *,
        options: OrderedProducerOptions = ORDERED_PRODUCER_DEFAULTS,
        session: Session | None = None,
        tls: ClientTls | None = None,
        **keywords: Unpack[OrderedProducerKeywords],
    ) -> None:
        options = with_keywords(options, keywords, type(self))
        sends = ProducerOptions(
            max_body_bytes=options.max_body_bytes, default_queues=options.default_queues, hooks=options.hooks
        )
        self._producer = Producer(namesrv, group, options=sends, session=session, tls=tls)
        self.session = self._producer.session
        self.hooks = self._producer.hooks
        self.group = group
        self._counts = ProducerMetrics()
        self.options = options
        self._max_batch_bytes = min(options.max_batch_bytes, options.max_body_bytes)
        self._topics: dict[str, _Topic] = {}
        self._buffer = Buffer(options.buffer_messages, options.buffer_bytes)
        self._since_yield = 0
        self._failing = 0
        self._outage_began = 0
        self._error: SendFailed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- lifecycle ----

    async def start(self) -> None:
        """Start the client; connections are opened when first needed."""
        await self._producer.start()
        self._loop = asyncio.get_running_loop()

    async def stop(self, *, flush: bool = True) -> None:
        """Send the buffered messages (unless `flush=False`), then close. Raises as `flush()` does."""
        if self._loop is None:
            return
        try:
            if flush:
                await self.flush()
        finally:
            self._loop = None
            stopped = SendFailed("the producer was stopped before this message was acknowledged", 0)
            given_up = SendFailed(str(stopped), 1, outcome_unknown=True)
            for topic in self._topics.values():
                self._fail([entry for _, entry in topic.waiting], stopped)
                topic.waiting = []
                for sender in topic.senders or ():
                    self._fail_sender(sender, given_up if sender.in_flight else stopped)
            await self._producer.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(flush=kind is None)

    # ---- sending ----

    def send(self, message: Message, key: str) -> asyncio.Future[SendResult]:
        """Buffer a message, and return a future for its result. `BufferFull` if the buffer is full."""
        if self._buffer.full:
            raise BufferFull(f"{self._buffer}: await some results, or use `await put(…)`, which waits for room")
        future: asyncio.Future[SendResult] = self._running().create_future()
        self._accept(message, key, future)
        return future

    async def put(self, message: Message, key: str) -> None:
        """Wait for room, and buffer a message. `flush()` raises if it was not stored."""
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await asyncio.sleep(0)
        if self._buffer.full:
            await self._buffer.room()
        self._accept(message, key, None)

    async def flush(self) -> None:
        """Wait until all messages are acknowledged. `SendFailed` if one from `put()` failed since the last
        `flush()`."""
        self._running()
        await self._buffer.empty()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    @property
    def unacknowledged(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return self._buffer.messages

    @property
    def metrics(self) -> ProducerMetrics:
        """A copy of this producer's counts."""
        senders = [sender for topic in self._topics.values() for sender in topic.senders or ()]
        in_flight = sum(len(sender.in_flight) for sender in senders)
        return self._counts.snapshot(
            in_flight=in_flight,
            buffered=self._buffer.messages - in_flight,
            connections=self.session.connections.count,
        )

    # ---- taking messages in ----

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotStarted("this OrderedProducer is not running: use `async with OrderedProducer(…) as producer`")
        return self._loop

    def _accept(self, message: Message, key: str, future: asyncio.Future[SendResult] | None) -> None:
        if not self.hooks.hear_of_calls:
            self._accept_packable(message, key, future, None)
            return
        self._running()
        call = self.hooks.begin_call(self.group, (message,))
        with self.hooks.failing(call):
            self._accept_packable(call.messages[0].packable(), key, future, call)

    def _accept_packable(
        self, message: Message, key: str, future: asyncio.Future[SendResult] | None, call: SendCall | None
    ) -> None:
        loop = self._running()
        body = message.body
        topic = self._topics.get(message.topic)
        if topic is None or not 0 < len(body) <= self.options.max_body_bytes:
            message.check(self.options.max_body_bytes)
        if message.priority is not None:
            message.check_no_priority("a message in order")
        unique_key = message.properties.get("UNIQ_KEY") or self.session.unique_ids.next(now_ms())
        properties = message.encode_properties(unique_key).encode()
        if len(properties) > MAX_PROPERTIES_BYTES // 3:
            check_properties(message.topic, len(properties))
        size = len(body) + len(properties) + ITEM_BYTES
        entry = Entry(message.flag, body, properties, unique_key, size, message.delayed, future, call)
        if call is not None:
            call.ids = (unique_key,)
        number = key_hash(key)
        self._buffer.add(size)
        if topic is None:
            topic = self._topics[message.topic] = _Topic()
            self.session.spawn(self._open(message.topic, topic), f"route of {message.topic}")
        if topic.senders is None:
            topic.waiting.append((number, entry))
            return
        sender = topic.senders[number % len(topic.senders)]
        sender.entries.append(entry)
        if not sender.in_flight and not sender.planned:
            sender.planned = True
            loop.call_soon(self._dispatch, sender)

    async def _open(self, name: str, topic: _Topic) -> None:
        """Find the queues of a topic, for as long as a batch would be tried."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.deadline_ms / 1000
        pause_ms = RETRY_FIRST_MS
        while True:
            try:
                route = await self.session.routes.get_or_default(name, self.options.default_queues)
                queues = route.write_queues()
                if queues:
                    break
                error: PerseidError = NoRoute(name, "none of its brokers is writable at the moment")
            except PerseidError as problem:
                error = problem
            if loop.time() >= deadline:
                waited_ms = self.options.deadline_ms
                failure = SendFailed(f"no queue of topic {name} was found within {waited_ms} ms: {error}", 0)
                del self._topics[name]
                self._fail([entry for _, entry in topic.waiting], failure)
                return
            self._counts.retried += 1
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, RETRY_MAX_MS)
        topic.senders = [_QueueSender(queue) for queue in queues]
        waiting, topic.waiting = topic.waiting, []
        for number, entry in waiting:
            topic.senders[number % len(queues)].entries.append(entry)
        for sender in topic.senders:
            self._dispatch(sender)

    # ---- the senders ----

    def _dispatch(self, sender: _QueueSender) -> None:
        """Make the next batch of a sender that has none in flight, and send it."""
        sender.planned = False
        entries = sender.entries
        if sender.in_flight or not entries or self._loop is None:
            return
        first = entries.popleft()
        chosen = [first]
        size = first.size
        if not first.delayed:
            while entries and len(chosen) < self.options.max_batch_messages:
                entry = entries[0]
                size += entry.size
                if entry.delayed or size > self._max_batch_bytes:
                    break
                chosen.append(entries.popleft())
        sender.in_flight = chosen
        sender.packed = self._producer.pack_entries(sender.queue.topic, chosen)
        sender.attempts = 0
        sender.outcome_unknown = False
        sender.deadline = self._loop.time() + self.options.deadline_ms / 1000
        self._counts.batches += 1
        self._attempt(sender)

    def _attempt(self, sender: _QueueSender) -> None:
        packed = sender.packed
        if packed is None or self._loop is None:
            return
        sender.attempts += 1
        sender.retry = None
        connections = self.session.connections
        sender.tried = address = self.session.routes.address(self.session.routes.home(sender.queue))
        connection = connections.ready(address) if address is not None else None
        if connection is None:
            self.session.spawn(self._connect(sender), f"connect for {sender.queue}")
            return
        header = packed.header(self.group, sender.queue, self.options.default_queues)
        timeout_ms = min(self.options.timeout_ms, max(1, int((sender.deadline - self._loop.time()) * 1000)))
        answered = partial(self._answered, sender, packed)
        sender.tried_ms = now_ms()
        if self.hooks.hear_of_attempts:
            sending = self._producer.begin_attempt(packed, sender.queue, connection.address, sender.tried_ms)
            answered = partial(self._tell_then_answered, sending, sender, packed)
        connection.request(packed.code, header, packed.body, timeout_ms, answered)

    async def _connect(self, sender: _QueueSender) -> None:
        """Open the connection that a sender needs; a failure counts as a failed attempt."""
        try:
            address = await self.session.leader(sender.queue)
            await self.session.connections.get(address)
        except ConnectFailed as error:
            self._failed(sender, error)
        else:
            sender.attempts -= 1
            self._attempt(sender)

    def _tell_then_answered(
        self, sending: Sending, sender: _QueueSender, packed: Packed, answer: Command | None, error: Exception | None
    ) -> None:
        sending.error = error
        try:
            if answer is not None and answer.code in STORED_CODES:
                note_answer(sending, packed.result(answer, sender.queue), answer)
            elif answer is not None:
                sending.error = ServerRefused(answer.code, answer.remark, sending.address)
        except BadAnswer as problem:
            sending.error = problem
        self.hooks.after_send(sending)
        self._answered(sender, packed, answer, error)

    def _answered(self, sender: _QueueSender, packed: Packed, answer: Command | None, error: Exception | None) -> None:
        if sender.packed is not packed:
            return
        if answer is None:
            self._failed(sender, error or ConnectionLost(sender.tried or "", "no reason given"))
            return
        if answer.code not in STORED_CODES:
            address = sender.tried or sender.queue.broker_name
            if answer.code == ResponseCode.GO_AWAY:
                self.session.connections.retire(address)
            self._failed(sender, ServerRefused(answer.code, answer.remark, address))
            return
        try:
            self._stored(sender, packed, answer)
        except BadAnswer as problem:
            self._failed(sender, problem)

    def _stored(self, sender: _QueueSender, packed: Packed, answer: Command) -> None:
        entries = sender.in_flight
        if any(entry.future is not None or entry.call is not None for entry in entries):
            acknowledge(entries, packed.result(answer, sender.queue), self.hooks)
        sender.in_flight = []
        sender.packed = None
        counts = self._counts
        counts.sent += len(entries)
        counts.sent_bytes += len(packed.body)
        counts.latency.record(now_ms() - sender.tried_ms)
        if sender.failing_since is not None:
            self._recovered(sender)
        self._buffer.remove(entries)
        if sender.entries:
            self._dispatch(sender)

    def _failed(self, sender: _QueueSender, error: Exception) -> None:
        """An attempt came to nothing: wait and try again, or give up."""
        loop = self._loop
        if loop is None or sender.packed is None:
            return
        sender.outcome_unknown |= isinstance(error, ClientError) and error.outcome_unknown
        if sender.failing_since is None:
            sender.failing_since = now_ms()
            self._failing += 1
            if self._failing == 1:
                self._counts.outages += 1
                self._outage_began = sender.failing_since
                log.warning("%s: %s; trying again for up to %d ms", sender.queue, error, self.options.deadline_ms)
        for_good = isinstance(error, ServerRefused) and error.code not in RETRY_CODES
        pause_ms = min(RETRY_FIRST_MS * 2 ** min(sender.attempts - 1, 10), RETRY_MAX_MS)
        if for_good or loop.time() + pause_ms / 1000 >= sender.deadline:
            why = "it was refused" if for_good else f"not acknowledged within {self.options.deadline_ms} ms"
            failure = SendFailed(
                f"{sender.queue}: {why} ({sender.attempts} attempts): {error}",
                sender.attempts,
                outcome_unknown=sender.outcome_unknown,
            )
            failure.__cause__ = error
            self._fail_sender(sender, failure)
            return
        self._counts.retried += 1
        sender.retry = loop.call_later(pause_ms / 1000, self._attempt, sender)
        topic = self._topics.get(sender.queue.topic)
        if topic is not None and not topic.following:
            topic.following = True
            self.session.spawn(self._follow(sender.queue.topic, topic), f"route of {sender.queue.topic}")

    async def _follow(self, name: str, topic: _Topic) -> None:
        """Look at the route while a sender of the topic fails: one that waits is tried at once at another master."""
        pause_ms, routes = ROUTE_FIRST_MS, self.session.routes
        try:
            while self._loop is not None and any(sender.failing_since is not None for sender in topic.senders or ()):
                await routes.refresh(name, at_once=True)
                for sender in topic.senders or ():
                    master = routes.address(routes.home(sender.queue))
                    if sender.retry is not None and master is not None and master != sender.tried:
                        sender.retry.cancel()
                        self._attempt(sender)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS)
        finally:
            topic.following = False

    def _recovered(self, sender: _QueueSender) -> None:
        sender.failing_since = None
        self._failing -= 1
        if self._failing == 0:
            took = now_ms() - self._outage_began
            self._counts.outage_ms += took
            self._counts.longest_outage_ms = max(self._counts.longest_outage_ms, took)
            log.info("%s: back after %d ms", sender.queue, took)

    def _fail_sender(self, sender: _QueueSender, error: SendFailed) -> None:
        in_flight, behind = sender.in_flight, list(sender.entries)
        if sender.retry is not None:
            sender.retry.cancel()
            sender.retry = None
        sender.in_flight = []
        sender.packed = None
        sender.entries.clear()
        if sender.failing_since is not None:
            self._recovered(sender)
        self._fail(in_flight, error)
        if behind:
            not_sent = SendFailed(f"not sent, as a message before it in {sender.queue} was not stored: {error}", 0)
            not_sent.__cause__ = error
            self._fail(behind, not_sent)

    def _fail(self, entries: list[Entry], error: SendFailed) -> None:
        if any(entry.future is None for entry in entries):
            self._error = self._error or error
        fail(entries, error, self.hooks)
        self._counts.failed += len(entries)
        self._buffer.remove(entries)
