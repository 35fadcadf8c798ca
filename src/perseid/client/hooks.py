"""Functions of yours around each attempt to send, and around each call of a consumer's handler.

    class Spans(Hook):
        def before_send(self, send): send.notes["span"] = tracer.start(send.topic)
        def after_send(self, send): send.notes["span"].end(send.error)

    Producer("host:9876", hooks=[Spans()])

What a hook raises is logged and changes nothing else. Hooks run on the event loop: they must not wait. `Tracer`
(`perseid.client.tracing`) is one: it writes the original's message traces.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perseid.wire import properties

if TYPE_CHECKING:
    from perseid.client.model import MessageQueue, ReceivedMessage, SendResult
    from perseid.client.session import Session

log = logging.getLogger("perseid.client")

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
    """What hooks keep from before until after."""

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
    """What hooks keep from before until after."""


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
        self._backwards = self._hooks[::-1]
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
        """Tell all."""
        for hook in self._hooks:
            try:
                hook.before_send(sending)
            except Exception:  # a hook may raise anything; the send goes on
                _failed(hook)

    def after_send(self, sending: Sending) -> None:
        """Tell all."""
        for hook in self._backwards:
            try:
                hook.after_send(sending)
            except Exception:  # as above
                _failed(hook)

    def before_consume(self, consuming: Consuming) -> None:
        """Tell all."""
        for hook in self._hooks:
            try:
                hook.before_consume(consuming)
            except Exception:  # as above
                _failed(hook)

    def after_consume(self, consuming: Consuming) -> None:
        """Tell all."""
        for hook in self._backwards:
            try:
                hook.after_consume(consuming)
            except Exception:  # as above
                _failed(hook)


def _failed(hook: Hook) -> None:
    log.exception("the hook %r failed; what it was told about goes on", hook)
