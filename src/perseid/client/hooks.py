"""Functions of yours around each attempt to send, and around each call of a consumer's handler.

    class Spans(Hook):
        def before_send(self, send): send.notes["span"] = tracer.start(send.topic)
        def after_send(self, send): send.notes["span"].end(send.error)

    Producer("host:9876", options=ProducerOptions(hooks=[Spans()]))

An exception of a hook is logged and changes nothing else. Hooks run on the event loop: they must not wait. `Tracer`
(`perseid.client.tracing`) is one: it writes the original's message traces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from perseid.wire import properties

if TYPE_CHECKING:
    from perseid.client.model import MessageQueue, ReceivedMessage, SendResult
    from perseid.client.session import Session

log = logging.getLogger("perseid.client")

T = TypeVar("T")

SUCCESS, TIME_OUT, EXCEPTION, FAILED = "SUCCESS", "TIME_OUT", "EXCEPTION", "FAILED"
"""How a handler's call ended, in the original's words."""


@dataclass(slots=True, eq=False)
class Sending:
    """An attempt to send. Afterwards `results` is there if it was stored, `error` if not; neither if it was one-way."""

    group: str
    queue: MessageQueue
    address: str
    ids: Sequence[str]
    """The unique key of each message."""
    encoded: str
    """The properties as they are sent; of a batch, those of the whole."""
    body_bytes: int
    """As it is sent: compressed, if it is."""
    started_ms: int
    results: list[SendResult] | None = None
    error: BaseException | None = None
    region: str | None = None
    """The broker's, told in its answer."""
    trace_on: bool = True
    """False when the broker wants no traces."""
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: whatever they keep from before until after."""

    @property
    def topic(self) -> str:
        """Where it is sent."""
        return self.queue.topic

    @property
    def properties(self) -> dict[str, str]:
        """The message's."""
        return properties.decode(self.encoded)


@dataclass(slots=True, eq=False)
class Consuming:
    """One call of a handler: `outcome` (SUCCESS, TIME_OUT, EXCEPTION, FAILED) and `error` are there after it."""

    group: str
    message: ReceivedMessage
    started_ms: int
    outcome: str | None = None
    error: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """For hooks: whatever they keep from before until after."""


class Hook:
    """Override what you need."""

    async def start(self, session: Session, group: str) -> None:
        """The client starts."""

    async def stop(self) -> None:
        """The client stops; it can still send."""

    def before_send(self, sending: Sending) -> None:
        """An attempt begins."""

    def after_send(self, sending: Sending) -> None:
        """It ended."""

    def before_consume(self, consuming: Consuming) -> None:
        """The handler is about to be called."""

    def after_consume(self, consuming: Consuming) -> None:
        """It ended."""


class Hooks:
    """The hooks of one client: called in their order, after something in the opposite one."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        backwards = self._hooks[::-1]
        self._before_send = [hook.before_send for hook in self._hooks]
        self._after_send = [hook.after_send for hook in backwards]
        self._before_consume = [hook.before_consume for hook in self._hooks]
        self._after_consume = [hook.after_consume for hook in backwards]
        self._started: list[Hook] = []

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

    def before_send(self, sending: Sending) -> None:
        """An attempt begins."""
        _tell(self._before_send, sending)

    def after_send(self, sending: Sending) -> None:
        """It ended."""
        _tell(self._after_send, sending)

    def before_consume(self, consuming: Consuming) -> None:
        """A handler is about to be called."""
        _tell(self._before_consume, consuming)

    def after_consume(self, consuming: Consuming) -> None:
        """It ended."""
        _tell(self._after_consume, consuming)


def _tell(hooks: Sequence[Callable[[T], None]], what: T) -> None:
    for hook in hooks:
        try:
            hook(what)
        except Exception:  # a hook may raise anything; what it was told about goes on
            log.exception("the hook %r failed; what it was told about goes on", hook)
