"""Hooks: your own functions, which a client calls for each message, each attempt to send, and each call of a handler.

    class Tenant(Hook):
        def on_send(self, outgoing): outgoing.properties["tenant"] = tenant.get()

    Producer("host:9876", options=ProducerOptions(hooks=[Tenant()]))

A send calls `on_send` for each of its messages, `before_send` and `after_send` around each attempt, and `on_sent` at
its end. A handler's call is between `before_consume` and `after_consume`. `poll`, `pull`, `read` and `receive` call
`on_receive`. An exception of a hook is logged and changes nothing else. Hooks run on the event loop: they must not
block. `Tracer` (`perseid.client.tracing`) is a hook that writes RocketMQ's message traces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from perseid.client.errors import InvalidMessage
from perseid.client.model import Message, check_property
from perseid.wire import properties

if TYPE_CHECKING:
    from perseid.client.model import MessageQueue, ReceivedMessage, SendResult
    from perseid.client.session import Session

log = logging.getLogger("perseid.client")

T = TypeVar("T")

SUCCESS, TIME_OUT, EXCEPTION, FAILED = "SUCCESS", "TIME_OUT", "EXCEPTION", "FAILED"
"""How a handler's call ended, in the original's words."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message that is about to be packed. Hooks may set, change and delete `properties`."""

    call: SendCall
    """The call that sends it."""
    message: Message
    """As the caller gave it."""
    properties: dict[str, str]
    """A copy of the properties of `message`; hooks change this copy. Names that clients and brokers use themselves
    (`perseid.wire.properties.SYSTEM_NAMES`) can't be changed."""
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: data to keep from `on_send` until `on_sent`."""

    def packable(self) -> Message:
        """The message with the properties that the hooks have left."""
        return replace(self.message, properties=self.properties)


@dataclass(slots=True, eq=False)
class SendCall:
    """One call that sends one message or a batch."""

    group: str
    """The producer group."""
    batch: bool = False
    """Whether the messages are sent as one batch (`send_batch`)."""
    messages: list[Outgoing] = field(default_factory=list)
    """The messages, in order."""
    ids: Sequence[str] = ()
    """The unique key of each message, once they are packed."""
    results: Sequence[SendResult] | None = None
    """The results of its messages, in `on_sent`. None: it failed, or was one-way."""
    error: BaseException | None = None
    """The exception that it raised, in `on_sent`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: data to keep until `on_sent`."""


@dataclass(slots=True, eq=False)
class Sending:
    """One attempt to send."""

    group: str
    """The producer group."""
    queue: MessageQueue
    """The queue to which it is sent."""
    address: str
    """The broker's address, `host:port`."""
    ids: Sequence[str]
    """The unique key of each message."""
    encoded: str
    """The properties as they are sent. For a batch, the properties of the batch."""
    body_bytes: int
    """The size of the body as it is sent, possibly compressed."""
    started_ms: int
    """When it began, in milliseconds since 1970."""
    results: list[SendResult] | None = None
    """The results of its messages, in `after_send`. None: it failed, or was one-way."""
    error: BaseException | None = None
    """The exception if it failed, in `after_send`."""
    region: str | None = None
    """The broker's region, from its answer."""
    trace_on: bool = True
    """False when the broker wants no traces."""
    calls: Sequence[SendCall] = ()
    """The calls whose messages it carries: one, or several if the client collects batches."""
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: whatever they keep from before until after."""

    @property
    def topic(self) -> str:
        """The topic to which it is sent."""
        return self.queue.topic

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the message, as they are sent."""
        return properties.decode(self.encoded)


@dataclass(slots=True, eq=False)
class Consuming:
    """One call of a handler."""

    group: str
    """The consumer group."""
    message: ReceivedMessage
    """The message that is handled."""
    started_ms: int
    """When the call began, in milliseconds since 1970."""
    broadcast: bool = False
    """Whether each member of the group gets all messages."""
    outcome: str | None = None
    """How it ended, in `after_consume`: SUCCESS, TIME_OUT, EXCEPTION or FAILED."""
    error: BaseException | None = None
    """The exception that the handler raised, in `after_consume`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: whatever they keep from before until after."""


@dataclass(slots=True, eq=False)
class Receiving:
    """Messages of one topic that a call has given to the application, or the error that it raised."""

    group: str
    """The consumer group."""
    topic: str
    """The topic. Empty if the call failed and was for several topics."""
    messages: Sequence[ReceivedMessage]
    """The received messages."""
    started_ms: int
    """When the call began, in milliseconds since 1970."""
    error: BaseException | None = None
    """The exception that the call raised."""


class Hook:
    """The base class of hooks: override the methods that you need."""

    async def start(self, session: Session, group: str) -> None:
        """The client starts: open here what the hook needs."""

    async def stop(self) -> None:
        """The client is about to stop. It can still send."""

    def on_send(self, outgoing: Outgoing) -> None:
        """A message is about to be packed: set properties here. Called once for each message, whatever is retried."""

    def on_sent(self, call: SendCall) -> None:
        """A call to send has ended, after all its attempts."""

    def before_send(self, sending: Sending) -> None:
        """An attempt to send is about to begin."""

    def after_send(self, sending: Sending) -> None:
        """The attempt ended: with results, an error, or neither if it was one-way."""

    def on_receive(self, receiving: Receiving) -> None:
        """A call of a pull or pop consumer got messages, or failed. Not called if it found no messages."""

    def before_consume(self, consuming: Consuming) -> None:
        """The handler is about to be called."""

    def after_consume(self, consuming: Consuming) -> None:
        """The handler's call ended; `outcome` says how."""


class Hooks:
    """The hooks of one client: called in their order, after something in the opposite one."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._started: list[Hook] = []
        backwards = self._hooks[::-1]
        self._on_send = [hook.on_send for hook in self._hooks if type(hook).on_send is not Hook.on_send]
        self._on_sent = [hook.on_sent for hook in backwards if type(hook).on_sent is not Hook.on_sent]
        self._before_send = [hook.before_send for hook in self._hooks]
        self._after_send = [hook.after_send for hook in backwards]
        self._on_receive = [hook.on_receive for hook in self._hooks if type(hook).on_receive is not Hook.on_receive]
        self._before_consume = [hook.before_consume for hook in self._hooks]
        self._after_consume = [hook.after_consume for hook in backwards]
        self.hear_of_attempts = bool(self._hooks)
        self.hear_of_calls = bool(self._on_send or self._on_sent)
        self.hear_of_receives = bool(self._on_receive)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    async def start(self, session: Session, group: str) -> None:
        """All of them; when one fails, those before it are stopped again."""
        try:
            for hook in self._hooks:
                await hook.start(session, group)
                self._started.append(hook)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Those that were started."""
        while self._started:
            await self._started.pop().stop()

    def begin_call(self, group: str, messages: Sequence[Message], *, batch: bool = False) -> SendCall:
        """A call of these messages, with the properties that the hooks set."""
        call = SendCall(group, batch)
        call.messages = [Outgoing(call, message, dict(message.properties)) for message in messages]
        for outgoing in call.messages:
            for hook in self._on_send:
                _let_set(hook, outgoing)
        return call

    def end_call(
        self, call: SendCall, results: Sequence[SendResult] | None = None, error: BaseException | None = None
    ) -> None:
        """A call ended: it was stored, or failed, or neither is known."""
        call.results, call.error = results, error
        _tell(self._on_sent, call)

    @contextmanager
    def failing(self, call: SendCall) -> Iterator[None]:
        """Around what comes before the first attempt: when that raises, the call has ended."""
        try:
            yield
        except BaseException as error:
            self.end_call(call, error=error)
            raise

    def before_send(self, sending: Sending) -> None:
        """An attempt to send is about to begin."""
        _tell(self._before_send, sending)

    def after_send(self, sending: Sending) -> None:
        """The attempt ended: with results, an error, or neither if it was one-way."""
        _tell(self._after_send, sending)

    def received(self, group: str, messages: Sequence[ReceivedMessage], started_ms: int) -> None:
        """A call gave these messages to the application; told topic by topic."""
        if not self.hear_of_receives:
            return
        topics: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        for topic, those in topics.items():
            _tell(self._on_receive, Receiving(group, topic, those, started_ms))

    def receive_failed(self, group: str, topic: str, started_ms: int, error: BaseException) -> None:
        """A call that asked for messages failed."""
        _tell(self._on_receive, Receiving(group, topic, (), started_ms, error))

    def before_consume(self, consuming: Consuming) -> None:
        """A handler is about to be called."""
        _tell(self._before_consume, consuming)

    def after_consume(self, consuming: Consuming) -> None:
        """The handler's call ended; `outcome` says how."""
        _tell(self._after_consume, consuming)


def _let_set(hook: Callable[[Outgoing], None], outgoing: Outgoing) -> None:
    """Let a hook set properties; those of a hook that fails, or sets what it must not, are as before."""
    before = dict(outgoing.properties)
    try:
        hook(outgoing)
        _check_changes(before, outgoing.properties)
    except Exception:  # a hook may raise anything; the message is sent all the same
        log.exception("the hook %r failed; the message for %s is sent without it", hook, outgoing.message.topic)
        outgoing.properties = before


def _check_changes(before: dict[str, str], after: dict[str, str]) -> None:
    for name in before.keys() | after.keys():
        value = after.get(name)
        if value == before.get(name):
            continue
        if name in properties.SYSTEM_NAMES:
            raise InvalidMessage(f"property {name} is for clients and brokers, a hook can't set it: take another name")
        if name in after:
            check_property(name, value)


def _tell(hooks: Sequence[Callable[[T], None]], what: T) -> None:
    for hook in hooks:
        try:
            hook(what)
        except Exception:  # a hook may raise anything; what it was told about goes on
            log.exception("the hook %r failed; what it was told about goes on", hook)
