"""Batches: the producer collects messages that were sent one by one, and sends them together.

    async with Producer("host:9876", linger_ms=5) as producer:
        await asyncio.gather(*(producer.send(Message("orders", body)) for body in bodies))

    send() --> the open batch of its topic (and queue, if it has one)
                 | `linger_ms` after its first message, or full, or flush()
                 v
               in flight: retried as a single message would be --> each caller gets its own result, or the error

A message that can't be in a batch is sent at once: `batchable` says which. `buffer_messages` and `buffer_bytes` limit
the messages that wait or are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from perseid.client.errors import BufferFull, NotStarted, SendFailed
from perseid.client.hooks import Hooks, SendCall
from perseid.client.model import Message, MessageQueue, SendResult
from perseid.client.options import ProducerOptions
from perseid.wire.names import RETRY_PREFIX

ITEM_BYTES = 64
"""Counted for each message beside its body and properties."""


class Item(NamedTuple):
    """One message, checked and encoded."""

    flag: int
    body: bytes
    properties: bytes
    unique_key: str


class Entry(NamedTuple):
    """One message that a producer has taken."""

    flag: int
    body: bytes
    properties: bytes
    unique_key: str
    size: int
    """Bytes that are counted for it."""
    delayed: bool
    future: asyncio.Future[SendResult] | None
    """Of the caller who waits for its result."""
    call: SendCall | None
    """Of which hooks want to hear."""


def batchable(message: Message, options: ProducerOptions) -> bool:
    """Whether a message may share a batch with others.

    Not: one for a time, with a priority, of a lite topic or a retry topic, with `wait_stored=False`, and one that is
    compressed (`compress_above_bytes`).
    """
    alone = message.delayed or message.priority is not None or message.lite_topic or not message.wait_stored
    return not (alone or len(message.body) >= options.compress_above_bytes or message.topic.startswith(RETRY_PREFIX))


def acknowledge(entries: Sequence[Entry], results: Sequence[SendResult], hooks: Hooks) -> None:
    """Tell callers and hooks that their messages are stored."""
    for entry, result in zip(entries, results, strict=True):
        if entry.future is not None and not entry.future.done():
            entry.future.set_result(result)
        if entry.call is not None:
            hooks.end_call(entry.call, [result])


def fail(entries: Sequence[Entry], error: BaseException, hooks: Hooks) -> None:
    """Tell callers and hooks that their messages are not acknowledged."""
    for entry in entries:
        if entry.future is not None and not entry.future.done():
            entry.future.set_exception(error)
        if entry.call is not None:
            hooks.end_call(entry.call, error=error)


class Buffer:
    """How much is taken and not acknowledged yet, and its limits."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.messages = 0
        self.bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def full(self) -> bool:
        """Nothing more may be taken now."""
        return self.messages >= self._max_messages or self.bytes >= self._max_bytes

    def add(self, size: int) -> None:
        """A message was taken."""
        if not self.messages:
            self._empty.clear()
        self.messages += 1
        self.bytes += size

    def remove(self, entries: Sequence[Entry]) -> None:
        """Messages were acknowledged, or failed."""
        self.messages -= len(entries)
        self.bytes -= sum(entry.size for entry in entries)
        if not self.full:
            self._room.set()
        if self.messages == 0:
            self._empty.set()

    async def room(self) -> None:
        """Wait until a message may be taken."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    async def empty(self) -> None:
        """Wait until nothing is left."""
        await self._empty.wait()

    def __str__(self) -> str:
        return f"{self.messages} messages ({self.bytes} bytes) wait to be acknowledged"


class Sender(Protocol):
    """What a batcher needs of its producer."""

    hooks: Hooks

    async def send_entries(
        self, topic: str, entries: Sequence[Entry], queue: MessageQueue | None
    ) -> list[SendResult]: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object: ...


class _Batch:
    __slots__ = ("entries", "queue", "size", "timer", "topic")

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue
        self.entries: list[Entry] = []
        self.size = 0
        self.timer: asyncio.TimerHandle | None = None


class Batcher:
    """Collects messages in batches, one open for each topic and queue, and has them sent."""

    def __init__(self, sender: Sender, options: ProducerOptions) -> None:
        self._sender = sender
        self._options = options
        self._max_bytes = min(options.max_batch_bytes, options.max_body_bytes)
        self._open: dict[tuple[str, MessageQueue | None], _Batch] = {}
        self._buffer = Buffer(options.buffer_messages, options.buffer_bytes)
        self._closed = False

    async def send(self, topic: str, queue: MessageQueue | None, item: Item, call: SendCall | None) -> SendResult:
        """The message's result, once its batch was sent; BufferFull when there is no room within `timeout_ms`."""
        with nullcontext() if call is None else self._sender.hooks.failing(call):
            if self._buffer.full:
                await self._wait_for_room()
            if self._closed:
                raise NotStarted("this Producer is being stopped: send before `stop()`")
        return await self._take(topic, queue, item, call)

    def begin(self, topic: str, queue: MessageQueue | None, item: Item) -> asyncio.Future[SendResult] | None:
        """As `send`, without a wait: the future of the result; None where `send` would have to wait, or to refuse."""
        if self._buffer.full or self._closed:
            return None
        return self._take(topic, queue, item, None)

    def _take(
        self, topic: str, queue: MessageQueue | None, item: Item, call: SendCall | None
    ) -> asyncio.Future[SendResult]:
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        flag, body, properties, unique_key = item
        size = ITEM_BYTES + len(body) + len(properties)
        self._add(topic, queue, Entry(flag, body, properties, unique_key, size, False, future, call))
        return future

    @property
    def collected(self) -> int:
        """Messages that wait in open batches."""
        return sum(len(batch.entries) for batch in self._open.values())

    async def flush(self) -> None:
        """Send what is collected at once, and wait until all that was taken is acknowledged or has failed."""
        for batch in list(self._open.values()):
            self._leave(batch)
        await self._buffer.empty()

    async def close(self) -> None:
        """Take nothing more, and `flush()`."""
        self._closed = True
        await self.flush()

    async def _wait_for_room(self) -> None:
        timeout_ms = self._options.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._buffer.room()
        except TimeoutError:
            raise BufferFull(
                f"{self._buffer}, and no room came within {timeout_ms} ms: send fewer at a time, or raise"
                " buffer_messages and buffer_bytes"
            ) from None

    def _add(self, topic: str, queue: MessageQueue | None, entry: Entry) -> None:
        batch = self._open.get((topic, queue))
        if batch is not None and batch.size + entry.size > self._max_bytes:
            self._leave(batch)
            batch = None
        if batch is None:
            batch = self._open[topic, queue] = _Batch(topic, queue)
            loop = asyncio.get_running_loop()
            batch.timer = loop.call_later(self._options.linger_ms / 1000, self._leave, batch)
        batch.entries.append(entry)
        batch.size += entry.size
        self._buffer.add(entry.size)
        if len(batch.entries) >= self._options.max_batch_messages or batch.size >= self._max_bytes:
            self._leave(batch)

    def _leave(self, batch: _Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
        del self._open[batch.topic, batch.queue]
        self._sender.spawn(self._send(batch), f"batch for {batch.topic}")

    async def _send(self, batch: _Batch) -> None:
        """Send a batch, without the messages whose callers were cancelled, and tell the others how it went."""
        hooks = self._sender.hooks
        entries: list[Entry] = []
        given_up: list[Entry] = []
        for entry in batch.entries:
            (given_up if entry.future is not None and entry.future.done() else entries).append(entry)
        try:
            fail(given_up, asyncio.CancelledError(), hooks)
            if entries:
                acknowledge(entries, await self._sender.send_entries(batch.topic, entries, batch.queue), hooks)
        except asyncio.CancelledError:
            stopped = "the producer was stopped before this message was acknowledged"
            fail(entries, SendFailed(stopped, 1, outcome_unknown=True), hooks)
            raise
        except Exception as error:  # it is the callers': each of them raises it
            fail(entries, error, hooks)
        finally:
            self._buffer.remove(batch.entries)
