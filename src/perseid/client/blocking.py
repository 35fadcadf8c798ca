"""The same clients for code that does not use asyncio: scripts, Spark workers, notebooks.

Each blocking client has a thread of its own with an event loop, which `start()` (or `with`) starts and
`stop()` ends. A client that was not started can be pickled and sent to another process: it holds only its arguments.
A started client can't be used in the child after a fork: it raises an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from perseid.client.admin import Admin, Cluster, QueueLag, QueueStats, SlaveStatus
from perseid.client.consumer import PushConsumer
from perseid.client.errors import NotStarted, UsageError
from perseid.client.lifecycle import Client
from perseid.client.lite import LiteConsumer
from perseid.client.metrics import ConsumerMetrics, ProducerMetrics
from perseid.client.model import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from perseid.client.pop import INVISIBLE_MS, WAIT_MS, PopConsumer, PoppedMessage
from perseid.client.producer import Producer
from perseid.client.pull import PullConsumer
from perseid.client.pulling import PullResult
from perseid.client.routes import TopicRoute
from perseid.client.run import SIGNALS
from perseid.client.session import Session
from perseid.client.stream import Consumer
from perseid.client.surroundings import here
from perseid.client.tls import ClientTls
from perseid.client.transactions import TransactionProducer, TransactionResult, TransactionState
from perseid.security.credentials import Credentials
from perseid.wire.lite import OffsetOption
from perseid.wire.users import AclInfo, PolicyInfo, UserInfo

log = logging.getLogger("perseid.client")

T = TypeVar("T")
C = TypeVar("C", bound=Client)

NOTEBOOK = "ipykernel"
"""A module that a process of Jupyter has: each cell runs in its event loop."""
START_DEADLINE_S = 10.0
_MISSING = object()


class LoopThread:
    """An event loop in a daemon thread; `run()` waits for a coroutine's result."""

    def __init__(self, name: str) -> None:
        if here().simulated:
            raise UsageError(f"{name}: blocking clients wait in real time; in virtual time use the asyncio ones")
        self._loop = new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the loop; what it raises is raised here."""
        if os.getpid() != self._pid:
            coroutine.close()
            raise NotStarted("this client was started before the process forked: make and start one in the child")
        if self._loop.is_closed():
            coroutine.close()
            raise NotStarted("this client was stopped meanwhile: `start()` it again")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(f"{self._thread.name} was called in its own event loop and would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread, and its event loop with it."""
        if os.getpid() == self._pid:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_DEADLINE_S)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _warn_of_loop(name: str) -> None:
    """Say that a blocking client stops the event loop of its caller; in a notebook that is what is wanted."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if NOTEBOOK not in sys.modules:
        log.warning(
            "%s blocks the event loop that runs here while it waits: use %s, or call it by asyncio.to_thread()",
            name, name.removeprefix("Blocking"),
        )  # fmt: skip


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Blocking(Generic[C]):
    """Base of the blocking clients: options, a thread, lifecycle."""

    _make: Callable[..., C]

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *args: Any,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
        **options: Any,
    ) -> None:
        """The client's own arguments; `credentials` and `tls` in place of a session, which would belong to its event
        loop."""
        self._options = ((namesrv, *args), options)
        self._credentials = credentials
        self._tls = tls
        self._thread: LoopThread | None = None
        self._client: C | None = None

    def __getstate__(self) -> dict[str, Any]:
        told = {"_options": self._options, "_credentials": self._credentials, "_tls": self._tls}
        return {**told, "_thread": None, "_client": None}

    def start(self) -> Self:
        """Start the thread and the client; does nothing when they run."""
        if self._client is None:
            _warn_of_loop(type(self).__name__)
            thread = LoopThread(type(self).__name__)
            try:
                self._client = thread.run(self._start())
            except BaseException:
                thread.stop()
                raise
            self._thread = thread
        return self

    def stop(self) -> None:
        """Stop the client and its thread."""
        client, thread = self._client, self._thread
        self._client = self._thread = None
        if client is not None and thread is not None:
            try:
                thread.run(client.stop())
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _start(self) -> C:
        args, options = self._options
        if self._credentials is not None or self._tls is not None:
            session = Session(args[0], credentials=self._credentials, tls=self._tls)
            options = {**options, "session": session}
        client = type(self)._make(*args, **options)
        await client.start()
        return client

    @property
    def _running(self) -> tuple[LoopThread, C]:
        if self._client is None or self._thread is None:
            name = type(self).__name__
            raise NotStarted(f"this {name} is not running: use `with {name}(…) as …`, or call `start()` first")
        return self._thread, self._client


class BlockingProducer(Blocking[Producer]):
    """`Producer` without asyncio; takes the same arguments. Safe to use from several threads."""

    _make: Callable[..., Producer] = Producer

    @property
    def metrics(self) -> ProducerMetrics:
        """As `Producer.metrics`."""
        return self._running[1].metrics

    def send(self, message: Message, **options: Any) -> SendResult:
        """As `Producer.send`."""
        thread, client = self._running
        return thread.run(client.send(message, **options))

    def flush(self) -> None:
        """As `Producer.flush`."""
        thread, client = self._running
        thread.run(client.flush())

    def send_batch(self, messages: Sequence[Message], **options: Any) -> list[SendResult]:
        """As `Producer.send_batch`."""
        thread, client = self._running
        return thread.run(client.send_batch(messages, **options))

    def send_oneway(self, message: Message, **options: Any) -> None:
        """As `Producer.send_oneway`."""
        thread, client = self._running
        thread.run(client.send_oneway(message, **options))

    def request(self, message: Message, **options: Any) -> ReceivedMessage:
        """As `Producer.request`."""
        thread, client = self._running
        return thread.run(client.request(message, **options))

    def reply(self, request: ReceivedMessage, body: bytes, **options: Any) -> SendResult:
        """As `Producer.reply`."""
        thread, client = self._running
        return thread.run(client.reply(request, body, **options))

    def recall(self, topic: str, recall_handle: str, **options: Any) -> str:
        """As `Producer.recall`."""
        thread, client = self._running
        return thread.run(client.recall(topic, recall_handle, **options))

    def queues(self, topic: str) -> list[MessageQueue]:
        """As `Producer.queues`."""
        thread, client = self._running
        return thread.run(client.queues(topic))


class BlockingTransactionProducer(BlockingProducer):
    """`TransactionProducer` without asyncio; takes the same arguments. Local transactions run in the caller's
    thread."""

    _make: Callable[..., Producer] = TransactionProducer

    def begin(self, message: Message, **options: Any) -> SendResult:
        """As `TransactionProducer.begin`."""
        thread, client = self._transactional
        return thread.run(client.begin(message, **options))

    def end(self, half: SendResult, state: TransactionState, **options: Any) -> TransactionResult:
        """As `TransactionProducer.end`."""
        thread, client = self._transactional
        return thread.run(client.end(half, state, **options))

    def send_in_transaction(
        self, message: Message, local: Callable[[SendResult], TransactionState], **options: Any
    ) -> TransactionResult:
        """As `TransactionProducer.send_in_transaction`; `local` is a plain function."""
        half = self.begin(message, **options)
        timeout_ms = options.get("timeout_ms")
        if half.status is not SendStatus.SEND_OK:
            return self.end(half, TransactionState.ROLLBACK, timeout_ms=timeout_ms)
        return self.end(half, local(half), timeout_ms=timeout_ms)

    @property
    def _transactional(self) -> tuple[LoopThread, TransactionProducer]:
        thread, client = self._running
        assert isinstance(client, TransactionProducer)
        return thread, client


class BlockingPopConsumer(Blocking[PopConsumer]):
    """`PopConsumer` without asyncio; takes the same arguments."""

    _make: Callable[..., PopConsumer] = PopConsumer

    @property
    def metrics(self) -> ConsumerMetrics:
        """As `PopConsumer.metrics`."""
        return self._running[1].metrics

    def receive(self, max_messages: int = 32, timeout_ms: int = WAIT_MS) -> list[PoppedMessage]:
        """As `PopConsumer.receive`."""
        thread, client = self._running
        return thread.run(client.receive(max_messages, timeout_ms))

    def ack(self, message: PoppedMessage) -> None:
        """As `PopConsumer.ack`."""
        thread, client = self._running
        thread.run(client.ack(message))

    def ack_all(self, messages: Iterable[PoppedMessage]) -> None:
        """As `PopConsumer.ack_all`."""
        thread, client = self._running
        thread.run(client.ack_all(list(messages)))

    def change_invisible(self, message: PoppedMessage, invisible_ms: int = INVISIBLE_MS) -> PoppedMessage:
        """As `PopConsumer.change_invisible`."""
        thread, client = self._running
        return thread.run(client.change_invisible(message, invisible_ms))


class BlockingLiteConsumer(BlockingPopConsumer):
    """`LiteConsumer` without asyncio; takes the same arguments."""

    _make: Callable[..., PopConsumer] = LiteConsumer

    def subscribe(self, *names: str, begin: OffsetOption | None = None) -> None:
        """As `LiteConsumer.subscribe`."""
        thread, client = self._lite
        thread.run(client.subscribe(*names, begin=begin))

    def unsubscribe(self, *names: str) -> None:
        """As `LiteConsumer.unsubscribe`."""
        thread, client = self._lite
        thread.run(client.unsubscribe(*names))

    @property
    def _lite(self) -> tuple[LoopThread, LiteConsumer]:
        thread, client = self._running
        assert isinstance(client, LiteConsumer)
        return thread, client


class BlockingPullConsumer(Blocking[PullConsumer]):
    """`PullConsumer` without asyncio; takes the same arguments."""

    _make = PullConsumer

    @property
    def metrics(self) -> ConsumerMetrics:
        """As `PullConsumer.metrics`."""
        return self._running[1].metrics

    def queues(self, topic: str) -> list[MessageQueue]:
        """As `PullConsumer.queues`."""
        thread, client = self._running
        return thread.run(client.queues(topic))

    def check_expression(self, topic: str) -> None:
        """As `PullConsumer.check_expression`."""
        thread, client = self._running
        thread.run(client.check_expression(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """As `PullConsumer.assign`."""
        thread, client = self._running
        chosen = list(queues)
        thread.run(_as_coroutine(lambda: client.assign(chosen)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """As `PullConsumer.seek`."""
        thread, client = self._running
        thread.run(_as_coroutine(lambda: client.seek(queue, offset)))

    def position(self, queue: MessageQueue) -> int | None:
        """As `PullConsumer.position`."""
        thread, client = self._running
        return thread.run(_as_coroutine(lambda: client.position(queue)))

    def poll(self, max_messages: int = 500, timeout_ms: int = 1000) -> list[ReceivedMessage]:
        """As `PullConsumer.poll`."""
        thread, client = self._running
        return thread.run(client.poll(max_messages, timeout_ms))

    def pull(self, queue: MessageQueue, offset: int, max_messages: int = 256, *, hold_ms: int = 0) -> PullResult:
        """As `PullConsumer.pull`."""
        thread, client = self._running
        return thread.run(client.pull(queue, offset, max_messages, hold_ms=hold_ms))

    def read(self, queue: MessageQueue, start: int, end: int) -> Iterator[list[ReceivedMessage]]:
        """As `PullConsumer.read`."""
        thread, client = self._running
        lists = client.read(queue, start, end)
        try:
            while (found := thread.run(_next(lists))) is not None:
                yield found
        finally:
            thread.run(lists.aclose())

    def address(self, queue: MessageQueue) -> str:
        """As `PullConsumer.address`."""
        thread, client = self._running
        return thread.run(client.address(queue))

    def is_compacted(self, queue: MessageQueue) -> bool:
        """As `PullConsumer.is_compacted`."""
        thread, client = self._running
        return thread.run(client.is_compacted(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """As `PullConsumer.min_offset`."""
        thread, client = self._running
        return thread.run(client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """As `PullConsumer.max_offset`."""
        thread, client = self._running
        return thread.run(client.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """As `PullConsumer.search_offset`."""
        thread, client = self._running
        return thread.run(client.search_offset(queue, timestamp_ms, upper=upper))

    def committed(self, queue: MessageQueue) -> int | None:
        """As `PullConsumer.committed`."""
        thread, client = self._running
        return thread.run(client.committed(queue))

    def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """As `PullConsumer.commit`."""
        thread, client = self._running
        thread.run(client.commit(queue, offset))


def wait_for_signal() -> signal.Signals:
    """Wait for SIGINT or SIGTERM, and return it. Nothing else is done: leaving the `with` lets clients finish.

    A second signal has its usual effect: SIGTERM ends the process, SIGINT raises `KeyboardInterrupt`. `UsageError`
    outside of the main thread, because only that gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("wait_for_signal() has to run in the main thread, which alone gets signals")
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = {number: signal.signal(number, lambda got, _: received.put(got)) for number in SIGNALS}
    try:
        return signal.Signals(received.get())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class BlockingPushConsumer(Blocking[PushConsumer]):
    """`PushConsumer` without asyncio; takes the same arguments. A plain function as the handler runs in threads, up to
    `concurrency` at a time.

        with BlockingPushConsumer("host:9876", "billing", {"orders": "*"}, charge):
            wait_for_signal()               # then running handlers may finish
    """

    _make: Callable[..., PushConsumer] = PushConsumer

    def pause(self) -> None:
        """As `PushConsumer.pause`."""
        thread, client = self._running
        thread.run(_as_coroutine(client.pause))

    def resume(self) -> None:
        """As `PushConsumer.resume`."""
        thread, client = self._running
        thread.run(_as_coroutine(client.resume))

    @property
    def queues(self) -> list[MessageQueue]:
        """As `PushConsumer.queues`."""
        thread, client = self._running
        return thread.run(_as_coroutine(lambda: client.queues))

    @property
    def metrics(self) -> ConsumerMetrics:
        """As `PushConsumer.metrics`."""
        return self._running[1].metrics


class BlockingConsumer(Blocking[Consumer]):
    """`Consumer` without asyncio: `for message in consumer`; takes the same arguments.

        with BlockingConsumer("host:9876", "billing", {"orders": "*"}) as consumer:
            for message in consumer:
                charge(message.body)

    Messages are consumed, or delivered again, as with `Consumer` (`perseid.client.stream`), with threads instead of
    tasks: several threads can loop over one consumer. A thread that ends within its loop keeps its message until the
    consumer is stopped, or `consume_timeout_ms` is over.
    """

    _make: Callable[..., Consumer] = Consumer

    def __iter__(self) -> Iterator[ReceivedMessage]:
        thread, client = self._running
        owner = threading.current_thread()
        thread.run(_as_coroutine(lambda: client.left(owner)))
        while True:
            message, context = thread.run(_with_context(client.take(owner)))
            if message is None:
                return
            with _variables_of(context):
                yield message

    def done(self, message: ReceivedMessage) -> None:
        """As `Consumer.done`."""
        thread, client = self._running
        thread.run(_as_coroutine(lambda: client.done(message)))

    def retry_later(self, message: ReceivedMessage, *, delay_level: int = 0, after_ms: int = 0) -> None:
        """As `Consumer.retry_later`."""
        thread, client = self._running
        thread.run(
            _as_coroutine(lambda: client.retry_later(message, delay_level=delay_level, after_ms=after_ms))
        )

    @property
    def metrics(self) -> ConsumerMetrics:
        """As `Consumer.metrics`."""
        return self._running[1].metrics

    def stop(self) -> None:
        """As `Consumer.stop`. A message that the calling thread has not finished is delivered again."""
        self._abandon(None)
        super().stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon(error)
        self.stop()

    def _abandon(self, error: BaseException | None) -> None:
        """Nobody finishes the messages of the calling thread, and of threads that have ended."""
        if self._client is None or self._thread is None:
            return
        client, current = self._client, threading.current_thread()

        def abandon() -> None:
            client.abandon(current, error)
            for owner in client.owners:
                if isinstance(owner, threading.Thread) and not owner.is_alive():
                    client.abandon(owner, None)

        self._thread.run(_as_coroutine(abandon))


class BlockingAdmin(Blocking[Admin]):
    """`Admin` without asyncio; takes the same arguments."""

    _make = Admin

    def create_topic(self, topic: str, queues: int = 8, **options: Any) -> TopicRoute:
        """As `Admin.create_topic`."""
        thread, client = self._running
        return thread.run(client.create_topic(topic, queues, **options))

    def delete_topic(self, topic: str) -> None:
        """As `Admin.delete_topic`."""
        thread, client = self._running
        thread.run(client.delete_topic(topic))

    def topic_list(self) -> list[str]:
        """As `Admin.topic_list`."""
        thread, client = self._running
        return thread.run(client.topic_list())

    def user_topics(self) -> list[str]:
        """As `Admin.user_topics`."""
        thread, client = self._running
        return thread.run(client.user_topics())

    def topic_route(self, topic: str) -> TopicRoute:
        """As `Admin.topic_route`."""
        thread, client = self._running
        return thread.run(client.topic_route(topic))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        """As `Admin.topic_stats`."""
        thread, client = self._running
        return thread.run(client.topic_stats(topic))

    def cluster_info(self) -> Cluster:
        """As `Admin.cluster_info`."""
        thread, client = self._running
        return thread.run(client.cluster_info())

    def broker_runtime_info(self, address: str) -> Mapping[str, str]:
        """As `Admin.broker_runtime_info`."""
        thread, client = self._running
        return thread.run(client.broker_runtime_info(address))

    def ha_status(self, *, brokers: Sequence[str] | None = None) -> list[SlaveStatus]:
        """As `Admin.ha_status`."""
        thread, client = self._running
        return thread.run(client.ha_status(brokers=brokers))

    def consume_stats(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """As `Admin.consume_stats`."""
        thread, client = self._running
        return thread.run(client.consume_stats(group, topic))

    def masters(self, **options: Any) -> dict[str, str]:
        """As `Admin.masters`."""
        thread, client = self._running
        return thread.run(client.masters(**options))

    def create_user(self, username: str, password: str, address: str, **options: Any) -> None:
        """As `Admin.create_user`."""
        thread, client = self._running
        thread.run(client.create_user(username, password, address, **options))

    def update_user(self, username: str, address: str, **options: Any) -> None:
        """As `Admin.update_user`."""
        thread, client = self._running
        thread.run(client.update_user(username, address, **options))

    def delete_user(self, username: str, address: str) -> None:
        """As `Admin.delete_user`."""
        thread, client = self._running
        thread.run(client.delete_user(username, address))

    def user(self, username: str, address: str) -> UserInfo | None:
        """As `Admin.user`."""
        thread, client = self._running
        return thread.run(client.user(username, address))

    def users(self, address: str, **options: Any) -> list[UserInfo]:
        """As `Admin.users`."""
        thread, client = self._running
        return thread.run(client.users(address, **options))

    def create_acl(self, user: str, policies: Sequence[PolicyInfo], address: str) -> None:
        """As `Admin.create_acl`."""
        thread, client = self._running
        thread.run(client.create_acl(user, policies, address))

    def update_acl(self, user: str, policies: Sequence[PolicyInfo], address: str) -> None:
        """As `Admin.update_acl`."""
        thread, client = self._running
        thread.run(client.update_acl(user, policies, address))

    def delete_acl(self, user: str, address: str, **options: Any) -> None:
        """As `Admin.delete_acl`."""
        thread, client = self._running
        thread.run(client.delete_acl(user, address, **options))

    def acl(self, user: str, address: str) -> AclInfo | None:
        """As `Admin.acl`."""
        thread, client = self._running
        return thread.run(client.acl(user, address))

    def acls(self, address: str, **options: Any) -> list[AclInfo]:
        """As `Admin.acls`."""
        thread, client = self._running
        return thread.run(client.acls(address, **options))


async def _with_context(awaitable: Awaitable[T]) -> tuple[T, Context]:
    """What it gives, and the context variables after it: those of the caller, with what hooks have set."""
    return await awaitable, copy_context()


@contextmanager
def _variables_of(context: Context) -> Iterator[None]:
    """Set what a context has other than this thread, and set it back at the end."""
    here = copy_context()
    changed = [variable for variable in context if here.get(variable, _MISSING) is not context[variable]]
    tokens = [(variable, variable.set(context[variable])) for variable in changed]
    try:
        yield
    finally:
        for variable, token in tokens:
            try:
                variable.reset(token)
            except ValueError:  # the loop is ended in another context, which never had them
                log.debug("%s was set in another context", variable.name)


async def _as_coroutine(function: Callable[[], T]) -> T:
    return function()


async def _next(lists: AsyncGenerator[list[ReceivedMessage]]) -> list[ReceivedMessage] | None:
    async for found in lists:
        return found
    return None
