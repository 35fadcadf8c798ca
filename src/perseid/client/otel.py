"""OpenTelemetry: spans and metrics of what a client sends, receives and handles.

    from perseid.client.otel import OpenTelemetry

    Producer(namesrv, options=ProducerOptions(hooks=[OpenTelemetry()]))
    PushConsumer(namesrv, "billing", {"orders": "*"}, handle, options=PushOptions(hooks=[OpenTelemetry()]))

The trace context travels in the messages' properties (`traceparent`, `tracestate`, `baggage`: whatever the configured
propagator writes), as with OpenTelemetry's instrumentation of RocketMQ's Java clients. Names follow the semantic
conventions for messaging:

| span | kind | when |
|---|---|---|
| `send orders` | PRODUCER | a message is sent, with all attempts; its context is the one that travels |
| `create orders` | PRODUCER | one for each message of a batch; its context travels |
| `send orders` | CLIENT | a batch is sent; it links to the messages' `create` spans |
| `receive orders` | CLIENT | `poll`, `pull`, `read` or `receive` gave messages, or failed; it links to their contexts |
| `process orders` | CONSUMER | a handler runs, within this span; its parent is the message's context |

Metrics: `messaging.client.sent.messages`, `messaging.client.consumed.messages`, `messaging.client.operation.duration`,
`messaging.process.duration`.

It needs opentelemetry-api (`pip install 'perseid[otel]'`); the application chooses the SDK and the exporter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from perseid.base import extras
from perseid.client.errors import SendFailed, ServerRefused, UsageError, code_name
from perseid.client.hooks import SUCCESS, Consuming, Hook, Outgoing, Receiving, SendCall, Sending
from perseid.client.model import Message, ReceivedMessage
from perseid.client.session import Session
from perseid.wire import properties as props

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise extras.missing("perseid.client.otel", error) from None

log = logging.getLogger("perseid.client")

SCOPE = "perseid"
SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that the conventions ask for."""
MAX_LINKS = 128
"""Of one span: as many as the SDK keeps by default."""
_HALF = f"{props.TRAN_MSG}\x01true"

Attributes = dict[str, str | int | Sequence[str]]


class _Properties(Getter[Mapping[str, str]]):
    """Reads the trace context out of a message's properties."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        found = carrier.get(key)
        if found is None and key == "traceparent":
            found = carrier.get(props.TRACE_CONTEXT)  # where clients of RocketMQ 5 with gRPC put it
        return None if found is None else [found]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


class OpenTelemetry(Hook):
    """Writes spans and metrics of one client: make one for each.

    `tracer_provider`, `meter_provider`, `propagator`: None takes the global ones (`opentelemetry.trace`, `.metrics`,
    `.propagate`) at the time of the call.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagator = propagator
        self._metrics = _Metrics(meter_provider)
        self._client_id: str | None = None

    async def start(self, session: Session, group: str) -> None:
        """Learn the client's id."""
        if self._client_id is not None:
            raise UsageError("this OpenTelemetry is in use by another client: make one for each")
        self._client_id = session.client_id

    async def stop(self) -> None:
        """Free for another client."""
        self._client_id = None

    # ---- sending ----

    def on_send(self, outgoing: Outgoing) -> None:
        """Begin the message's span, and put its context into the properties; one that is there already stays."""
        message, call = outgoing.message, outgoing.call
        if outgoing is call.messages[0]:
            call.notes[self._note] = _Send(asyncio.get_running_loop().time())
        state: _Send = call.notes[self._note]
        created = self._context_of(outgoing.properties)
        if created.is_valid:
            state.created.append(created)
            if call.batch:
                return
        name = "create" if call.batch else "send"
        span = self._tracer.start_span(
            f"{name} {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes=self._common(name, name, message.topic) | _of_outgoing(message),
            links=[Link(created)] if created.is_valid else (),
        )
        if not created.is_valid:
            self._inject(outgoing.properties, span)
        if call.batch:
            state.created.append(span.get_span_context())
            span.end()
        else:
            state.span = span

    def before_send(self, sending: Sending) -> None:
        """Begin the span of a batch, when it is tried for the first time."""
        for call in sending.calls:
            state: _Send | None = call.notes.get(self._note)
            if state is None:
                continue
            if state.span is None:
                count: Attributes = {"messaging.batch.message_count": len(call.messages)}
                state.span = self._tracer.start_span(
                    f"send {sending.topic}",
                    kind=SpanKind.CLIENT,
                    attributes=self._common("send", "send", sending.topic) | count,
                    links=[Link(one) for one in state.created[:MAX_LINKS]],
                )
            elif _HALF in sending.encoded:
                state.span.set_attribute("messaging.rocketmq.message.type", "transaction")

    def after_send(self, sending: Sending) -> None:
        """Where it was sent to; an attempt that failed is an event of the span."""
        server = _server(sending.address)
        for call in sending.calls:
            state: _Send | None = call.notes.get(self._note)
            if state is None:
                continue
            state.server = server
            if state.span is None:
                continue
            state.span.set_attributes(server | {"messaging.destination.partition.id": _partition(sending.queue)})
            if sending.error is not None:
                failed = server | {"error.type": error_type(sending.error)}
                state.span.add_event("attempt failed", failed | {"exception.message": str(sending.error)})

    def on_sent(self, call: SendCall) -> None:
        """End the span of a call that sent."""
        state: _Send | None = call.notes.pop(self._note, None)
        if state is None or not call.messages:
            return
        took_s = asyncio.get_running_loop().time() - state.began
        topic = call.messages[0].message.topic
        attributes = _BASE | {"messaging.operation.name": "send", "messaging.destination.name": topic} | state.server
        if call.error is not None:
            attributes["error.type"] = error_type(call.error)
        if state.server:
            self._metrics.sent.add(len(call.messages), attributes)
        self._metrics.duration.record(took_s, attributes | {"messaging.operation.type": "send"})
        span = state.span
        if span is None:
            return
        if not call.batch and call.ids:
            span.set_attribute("messaging.message.id", call.ids[0])
        _end(span, call.error)

    # ---- receiving and handling ----

    def on_receive(self, receiving: Receiving) -> None:
        """A span of the call, from its begin until now."""
        topic, messages, error = receiving.topic, receiving.messages, receiving.error
        contexts = [self._context_of(message.properties) for message in messages[:MAX_LINKS]]
        group: Attributes = {"messaging.consumer.group.name": receiving.group}
        count: Attributes = {"messaging.batch.message_count": len(messages)}
        span = self._tracer.start_span(
            f"receive {topic}".rstrip(),
            kind=SpanKind.CLIENT,
            attributes=self._common("receive", "receive", topic) | group | count,
            links=[Link(one) for one in contexts if one.is_valid],
            start_time=receiving.started_ms * 1_000_000,
        )
        attributes = _BASE | group | {"messaging.operation.name": "receive"}
        if topic:
            attributes["messaging.destination.name"] = topic
        if error is not None:
            attributes["error.type"] = error_type(error)
        if messages:
            self._metrics.consumed.add(len(messages), attributes)
        _end(span, error)

    def before_consume(self, consuming: Consuming) -> None:
        """Begin the span that the handler runs in."""
        message = consuming.message
        parent = self._extract(message.properties)
        created = trace.get_current_span(parent).get_span_context()
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=self._common("process", "process", message.topic) | _of_consumed(consuming),
            links=[Link(created)] if created.is_valid else (),
        )
        outer = otel_context.get_current()
        otel_context.attach(trace.set_span_in_context(span, parent))
        consuming.notes[self._note] = _Process(span, outer, asyncio.get_running_loop().time())

    def after_consume(self, consuming: Consuming) -> None:
        """End the span of the handler's call."""
        state: _Process | None = consuming.notes.pop(self._note, None)
        if state is None:
            return
        if trace.get_current_span() is state.span:  # not where a loop over a `Consumer` was left, or came too late
            otel_context.attach(state.outer)  # and no detach(): a loop may be ended by another task
        took_s = asyncio.get_running_loop().time() - state.began
        attributes = _BASE | {
            "messaging.operation.name": "process",
            "messaging.destination.name": consuming.message.topic,
            "messaging.consumer.group.name": consuming.group,
        }
        error = consuming.error
        if error is None and consuming.outcome != SUCCESS:
            error = asyncio.CancelledError("the client was stopped")
        if error is not None:
            attributes["error.type"] = error_type(error)
        self._metrics.consumed.add(1, attributes)
        self._metrics.process.record(took_s, attributes)
        _end(state.span, error)

    # ---- inside ----

    @property
    def _note(self) -> str:
        return f"otel {id(self)}"

    def _common(self, name: str, kind: str, topic: str) -> Attributes:
        attributes: Attributes = {**_BASE, "messaging.operation.name": name, "messaging.operation.type": kind}
        if topic:
            attributes["messaging.destination.name"] = topic
        if self._client_id is not None:
            attributes["messaging.client.id"] = self._client_id
        return attributes

    def _inject(self, carrier: dict[str, str], span: Span) -> None:
        propagator = self._propagator or propagate.get_global_textmap()
        found: dict[str, str] = {}
        propagator.inject(found, context=trace.set_span_in_context(span))
        carrier.update((name, value) for name, value in found.items() if value)

    def _extract(self, carrier: Mapping[str, str]) -> Context:
        """The context in a message's properties; an empty one, and not the caller's, where there is none."""
        propagator = self._propagator or propagate.get_global_textmap()
        return propagator.extract(carrier, context=Context(), getter=_PROPERTIES)

    def _context_of(self, carrier: Mapping[str, str]) -> SpanContext:
        return trace.get_current_span(self._extract(carrier)).get_span_context()


class _Send:
    """Of one call that sends: its span, from the first attempt on if it is a batch's."""

    __slots__ = ("began", "created", "server", "span")

    def __init__(self, began: float) -> None:
        self.began = began
        self.span: Span | None = None
        self.created: list[SpanContext] = []
        """The context of each message of a batch."""
        self.server: Attributes = {}


class _Process:
    """Of one call of a handler."""

    __slots__ = ("began", "outer", "span")

    def __init__(self, span: Span, outer: Context, began: float) -> None:
        self.span = span
        self.outer = outer
        """The context before, which is current again after the call."""
        self.began = began


class _Metrics:
    """The instruments that the conventions name."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self.sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of messages that the client tried to send."
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Number of messages delivered to the application."
        )
        self.duration = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of a send, with all its attempts.",
            explicit_bucket_boundaries_advisory=SECONDS_BUCKETS,
        )  # fmt: skip
        self.process = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of a handler's call.",
            explicit_bucket_boundaries_advisory=SECONDS_BUCKETS,
        )  # fmt: skip


_PROPERTIES = _Properties()
_BASE: Attributes = {"messaging.system": "rocketmq"}


def error_type(error: BaseException) -> str:
    """The value of `error.type`: the response code of what a server refused, else the name of the exception's class."""
    if isinstance(error, SendFailed) and error.__cause__ is not None:
        error = error.__cause__
    return code_name(error.code).split(" (")[0] if isinstance(error, ServerRefused) else type(error).__qualname__


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.set_attribute("error.type", error_type(error))
    span.end()


def _server(address: str) -> Attributes:
    host, _, port = address.rpartition(":")
    return {"server.address": host.strip("[]"), "server.port": int(port)} if port.isdigit() else {}


def _partition(queue: object) -> str:
    """A queue within its topic: its broker's name and its number there."""
    return str(queue).partition("/")[2]


def _of_outgoing(message: Message) -> Attributes:
    attributes: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": "delay" if message.delayed else "normal",
    }
    if message.tag:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        keys = message.keys
        attributes["messaging.rocketmq.message.keys"] = keys.split() if isinstance(keys, str) else list(keys)
    if message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at_ms:
        attributes["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    return attributes


def _of_consumed(consuming: Consuming) -> Attributes:
    message: ReceivedMessage = consuming.message
    attributes: Attributes = {
        "messaging.consumer.group.name": consuming.group,
        "messaging.rocketmq.consumption_model": "broadcasting" if consuming.broadcast else "clustering",
        "messaging.message.id": message.msg_id,
        "messaging.message.body.size": len(message.record.body),
        "messaging.destination.partition.id": _partition(message.queue),
    }
    if message.tag:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
    if message.reconsume_times:
        attributes["perseid.message.reconsume_times"] = message.reconsume_times
    return attributes
