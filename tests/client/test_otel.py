"""Spans and metrics of OpenTelemetry, as its SDK's exporters in memory see them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

from perseid.base.errors import PerseidError
from perseid.client import (
    ConsumeMode,
    Consumer,
    InvalidMessage,
    Message,
    OrderedProducer,
    OrderedProducerOptions,
    PopConsumer,
    PopOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullOptions,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendFailed,
    TransactionProducer,
    TransactionState,
)
from perseid.client.blocking import BlockingConsumer, BlockingProducer
from perseid.client.otel import OpenTelemetry
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import FakeServer, refuse, run


class Exporter(InMemorySpanExporter):
    """Says when a span has come."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[asyncio.Event] = []

    def export(self, spans: Any) -> SpanExportResult:
        result = super().export(spans)
        for event in self._waiting:
            event.set()
        return result

    async def next(self) -> None:
        """Until one more has come, of a client on this event loop."""
        self._waiting = [asyncio.Event()]
        await self._waiting[0].wait()


class Recorder:
    """An SDK whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self.exporter, self.reader = Exporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.tracer = self.provider.get_tracer("test")

    def hook(self) -> OpenTelemetry:
        return OpenTelemetry(self.provider, meter_provider=self.meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    async def until(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of a name, once so many have ended."""
        while len(found := self.spans(name)) < count:
            await self.exporter.next()
        return found

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def its(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def context_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("mode", [ConsumeMode.CONCURRENT, ConsumeMode.ORDERED])
def test_a_trace_goes_from_the_producer_through_the_broker_to_the_handler_and_on(
    mode: ConsumeMode, in_thread: bool, perseid_broker: EmbeddedBroker, recorder: Recorder
) -> None:
    namesrv, seen = perseid_broker.namesrv, []

    async def test() -> None:
        async with Producer(namesrv, "onward", options=ProducerOptions(hooks=[recorder.hook()])) as onward:
            loop = asyncio.get_running_loop()

            async def handle(message: ReceivedMessage) -> None:
                seen.append((message.body, baggage.get_baggage("tenant"), threading.current_thread().name))
                await onward.send(Message("second", b"next"))

            def handle_in_thread(message: ReceivedMessage) -> None:
                """The nested send is of the thread's context."""
                asyncio.run_coroutine_threadsafe(handle(message), loop).result(20)
                seen.append((b"in the thread", None, threading.current_thread().name))

            token = attach(baggage.set_baggage("tenant", "a"))
            with recorder.tracer.start_as_current_span("request"):
                await onward.send(Message("first", b"hello", tag="red", keys=["k1", "k2"]))
            detach(token)
            options = PushOptions(hooks=[recorder.hook()])
            async with PushConsumer(
                namesrv, "g", {"first": "*"}, handle_in_thread if in_thread else handle, mode=mode,
                from_where="first", options=options,
            ):  # fmt: skip
                await recorder.until("process first")

    run(test())
    request, send = recorder.span("request"), recorder.span("send first")
    process, onward = recorder.span("process first"), recorder.span("send second")
    assert parent_of(send) == context_of(request)
    assert parent_of(process) == context_of(send) == links_of(process)[0]
    assert parent_of(onward) == context_of(process)
    assert (send.kind, process.kind, onward.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.PRODUCER)
    assert seen[0][:2] == (b"hello", "a"), "the baggage travels, too"
    assert not in_thread or seen[1][2].startswith("handle g")
    assert (its(send)["messaging.message.id"], its(send)["messaging.message.body.size"]) == (
        its(process)["messaging.message.id"], 5
    )  # fmt: skip
    for span, name in ((send, "send"), (process, "process")):
        assert its(span)["messaging.system"] == "rocketmq" and its(span)["messaging.destination.name"] == "first"
        assert its(span)["messaging.operation.name"] == its(span)["messaging.operation.type"] == name
        assert its(span)["messaging.rocketmq.message.tag"] == "red" and its(span)["messaging.client.id"]
        assert its(span)["messaging.rocketmq.message.keys"] == ("k1", "k2")
        assert its(span)["messaging.destination.partition.id"] == its(send)["messaging.destination.partition.id"]
    assert its(send)["server.address"] == "127.0.0.1" and its(send)["server.port"] == int(perseid_broker.address[10:])
    assert its(process)["messaging.consumer.group.name"] == "g"
    assert its(process)["messaging.rocketmq.consumption_model"] == "clustering"


def test_each_message_of_a_batch_has_a_context_that_the_send_links_to(
    perseid_broker: EmbeddedBroker, recorder: Recorder
) -> None:
    namesrv = perseid_broker.namesrv

    async def test() -> None:
        async with Producer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as producer:
            with recorder.tracer.start_as_current_span("request"):
                await producer.send_batch([Message("t", b"1"), Message("t", b"22")])
        pulls = PullOptions(hooks=[recorder.hook()])
        async with PullConsumer(namesrv, "g", from_where="first", options=pulls) as consumer:
            consumer.assign(await consumer.queues("t"))
            found: list[ReceivedMessage] = []
            while len(found) < 2:
                found += await consumer.poll()
            assert (await consumer.pull(found[0].queue, 0)).messages
            assert [len(some) async for some in consumer.read(found[0].queue, 0, 2)] == [2]

    run(test())
    one, two = recorder.spans("create t")
    send, request = recorder.span("send t"), recorder.span("request")
    assert [span.kind for span in (one, two, send)] == [SpanKind.PRODUCER, SpanKind.PRODUCER, SpanKind.CLIENT]
    assert links_of(send) == [context_of(one), context_of(two)] and parent_of(send) == context_of(request)
    assert its(send)["messaging.batch.message_count"] == 2 and its(one)["messaging.message.body.size"] == 1
    received = recorder.spans("receive t")
    assert len(received) >= 3 and all(span.kind is SpanKind.CLIENT for span in received)
    links = [link for span in received for link in links_of(span)]
    assert set(links) == {context_of(one), context_of(two)} and len(links) == 6


def test_other_ways_to_send_are_traced(perseid_broker: EmbeddedBroker, recorder: Recorder) -> None:
    namesrv = perseid_broker.namesrv

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def commit(half: Any) -> TransactionState:
        return TransactionState.COMMIT

    async def test() -> None:
        async with TransactionProducer(
            namesrv, "tx", check, options=ProducerOptions(hooks=[recorder.hook()])
        ) as producer:
            await producer.send_in_transaction(Message("half", b"x"), commit)
            await producer.send_oneway(Message("oneway", b"x"))
            await producer.send(Message("later", b"x", delay_level=3))
        options = OrderedProducerOptions(hooks=[recorder.hook()])
        async with OrderedProducer(namesrv, options=options) as ordered:
            await asyncio.gather(*(ordered.send(Message("ordered", b"x"), "k") for _ in range(3)))

    run(test())
    types = {name: its(recorder.spans(f"send {name}")[0])["messaging.rocketmq.message.type"] for name in (
        "half", "oneway", "later", "ordered"
    )}  # fmt: skip
    assert types == {"half": "transaction", "oneway": "normal", "later": "delay", "ordered": "normal"}
    assert its(recorder.span("send later"))["messaging.rocketmq.message.delay_time_level"] == 3
    assert len(recorder.spans("send ordered")) == 3
    with (
        BlockingProducer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as blocking,
        recorder.tracer.start_as_current_span("a thread's request"),
    ):
        blocking.send(Message("blocking", b"x"))
    assert parent_of(recorder.span("send blocking")) == context_of(recorder.span("a thread's request"))


def test_a_popped_message_is_handled_in_its_trace(perseid_broker: EmbeddedBroker, recorder: Recorder) -> None:
    namesrv = perseid_broker.namesrv

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise KeyError("no such thing")

    async def test() -> None:
        async with Producer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as producer:
            await producer.send(Message("t", b"good"))
            await producer.send(Message("t", b"bad"))
        pops = PopOptions(hooks=[recorder.hook()])
        async with PopConsumer(namesrv, "g", "t", options=pops) as consumer:
            found: list[Any] = []
            while len(found) < 2:
                found += await consumer.receive()
            for message in found:
                await consumer.change_invisible(message, 10)
            running = asyncio.ensure_future(consumer.run(handle))
            await recorder.until("process t", 2)
            running.cancel()

    run(test())
    sends = {context_of(span) for span in recorder.spans("send t")}
    assert {link for span in recorder.spans("receive t") for link in links_of(span)} == sends
    ends = {}
    for span in recorder.spans("process t"):
        assert parent_of(span) in sends and its(span)["perseid.message.reconsume_times"] >= 1
        ends[its(span).get("error.type")] = span.status.status_code
    assert ends == {None: StatusCode.UNSET, "KeyError": StatusCode.ERROR}


def test_a_loop_over_a_consumer_works_in_the_trace_of_each_message(
    perseid_broker: EmbeddedBroker, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    namesrv = perseid_broker.namesrv

    async def test() -> None:
        async with Producer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as producer:
            await producer.send(Message("t", b"1"))
            await producer.send(Message("t", b"2"))
            options, seen = PushOptions(hooks=[recorder.hook()]), 0
            async with Consumer(namesrv, "g", {"t": "*"}, from_where="first", options=options) as consumer:
                async for message in consumer:
                    await producer.send(Message("next", message.body))
                    seen += 1
                    if seen == 2:
                        break
                assert consumer.metrics.succeeded == consumer.metrics.latency.count == 1
            assert not trace.get_current_span().get_span_context().is_valid

    run(test())
    finished, left = recorder.spans("process t")
    assert [parent_of(span) for span in recorder.spans("send next")] == [context_of(finished), context_of(left)]
    assert "error.type" not in its(finished) and left.status.status_code is StatusCode.ERROR
    assert not caplog.records, "a context is given back by the task that took it"


def test_a_loop_in_a_thread_works_in_the_trace_of_each_message(
    perseid_broker: EmbeddedBroker, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    namesrv = perseid_broker.namesrv
    with BlockingProducer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as producer:
        for _ in range(2):
            producer.send(Message("t", b"x"))
        options, seen = PushOptions(hooks=[recorder.hook()]), 0
        with BlockingConsumer(namesrv, "g", {"t": "*"}, from_where="first", options=options) as consumer:
            for message in consumer:
                producer.send(Message("next", message.body))
                seen += 1
                if seen == 2:
                    consumer.done(message)
                    break
            assert not trace.get_current_span().get_span_context().is_valid
    handled = {context_of(span) for span in recorder.spans("process t")}
    assert {parent_of(span) for span in recorder.spans("send next")} == handled and len(handled) == 2
    assert not caplog.records


def test_messages_of_a_batch_that_a_producer_made_keep_their_traces(
    perseid_broker: EmbeddedBroker, recorder: Recorder
) -> None:
    async def test() -> list[ReceivedMessage]:
        options = ProducerOptions(hooks=[recorder.hook()], linger_ms=20)
        async with Producer(perseid_broker.namesrv, options=options) as producer:

            async def one(number: int) -> None:
                with recorder.tracer.start_as_current_span(f"request {number}"):
                    await producer.send(Message("t", b"%d" % number))

            await asyncio.gather(*(one(number) for number in range(3)))
            assert producer.metrics.sent == 3 and producer.metrics.latency.count == 1, "they left as one"
        async with Consumer(perseid_broker.namesrv, "g", {"t": "*"}, from_where="first") as consumer:
            found: list[ReceivedMessage] = []
            async for message in consumer:
                found.append(message)
                if len(found) == 3:
                    break
        return found

    found = {message.body: message.properties["traceparent"] for message in run(test())}
    sends = {parent_of(span): span for span in recorder.spans("send t")}
    for number in range(3):
        send = sends[context_of(recorder.span(f"request {number}"))]
        assert send.context is not None and f"{send.context.span_id:016x}" in found[b"%d" % number]
        assert its(send)["server.address"] == "127.0.0.1"


def test_failures_say_why(recorder: Recorder) -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2] += [refuse(ResponseCode.SYSTEM_BUSY)] * 2
            options = ProducerOptions(hooks=[recorder.hook()], retries=1)
            async with Producer(server.address, options=options) as producer:
                with pytest.raises(SendFailed):
                    await producer.send(Message("t", b"x"))
                with pytest.raises(InvalidMessage):
                    await producer.send(Message("t", b""))
            pulls = PullOptions(hooks=[recorder.hook()])
            async with PullConsumer(server.address, "g", options=pulls) as consumer:
                (queue, *_) = await consumer.queues("t")
                server.script[RequestCode.PULL_MESSAGE] += [refuse(ResponseCode.NO_PERMISSION)]
                with pytest.raises(PerseidError):
                    await consumer.pull(queue, 0)

    run(test())
    refused, invalid = recorder.spans("send t")
    assert its(refused)["error.type"] == "SYSTEM_BUSY" and refused.status.status_code is StatusCode.ERROR
    assert [event.name for event in refused.events] == ["attempt failed"] * 2
    assert its(invalid)["error.type"] == "InvalidMessage" and not invalid.events
    assert its(recorder.span("receive t"))["error.type"] == "NO_PERMISSION"
    (sent,) = recorder.points()["messaging.client.sent.messages"]
    assert sent.value == 1 and sent.attributes["error.type"] == "SYSTEM_BUSY", "the invalid one was not sent"


@pytest.mark.parametrize("name", ["traceparent", "TRACE_CONTEXT"])
def test_a_context_that_another_client_has_set_is_taken(
    name: str, perseid_broker: EmbeddedBroker, recorder: Recorder
) -> None:
    """As OpenTelemetry's instrumentation of Java's clients sets it (MapSetter: the property `traceparent`), and where
    clients of RocketMQ 5 have put it."""
    foreign = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def test() -> None:
        async with Producer(perseid_broker.namesrv) as producer:
            await producer.send(Message("t", b"x", properties={name: foreign}))
        async with PushConsumer(
            perseid_broker.namesrv, "g", {"t": "*"}, lambda message: None, from_where="first",
            options=PushOptions(hooks=[recorder.hook()]),
        ):  # fmt: skip
            await recorder.until("process t")

    run(test())
    assert parent_of(recorder.span("process t")) == (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


def test_a_context_that_the_caller_has_set_stays(perseid_broker: EmbeddedBroker, recorder: Recorder) -> None:
    own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def test() -> None:
        options = ProducerOptions(hooks=[recorder.hook()])
        async with Producer(perseid_broker.namesrv, options=options) as producer:
            packed = producer.pack(Message("t", b"x", properties={"traceparent": own}))
            assert f"traceparent\x01{own}\x02" in packed.properties
            await producer.send_packed(packed)

    run(test())
    assert links_of(recorder.span("send t")) == [(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)]


def test_a_message_without_a_context_begins_a_trace_of_its_own(
    perseid_broker: EmbeddedBroker, recorder: Recorder
) -> None:
    async def test() -> None:
        async with Producer(perseid_broker.namesrv) as producer:
            await producer.send(Message("t", b"x"))
        with recorder.tracer.start_as_current_span("the consumer's start"):
            consumer = PushConsumer(
                perseid_broker.namesrv, "g", {"t": "*"}, lambda message: False, from_where="first",
                options=PushOptions(hooks=[recorder.hook()]),
            )  # fmt: skip
            async with consumer:
                await recorder.until("process t")

    run(test())
    process = recorder.span("process t")
    assert parent_of(process) is None and not process.links
    assert its(process)["error.type"] == "RetryLater" and process.status.status_code is StatusCode.ERROR


def test_names_are_those_of_the_conventions(perseid_broker: EmbeddedBroker, recorder: Recorder) -> None:
    namesrv = perseid_broker.namesrv

    async def test() -> None:
        async with Producer(namesrv, options=ProducerOptions(hooks=[recorder.hook()])) as producer:
            await producer.send(Message("t", b"x", deliver_at_ms=1))
            await producer.send_batch([Message("t", b"1"), Message("t", b"2")])
        async with PushConsumer(
            namesrv, "g", {"t": "*"}, lambda message: None, from_where="first",
            options=PushOptions(hooks=[recorder.hook()]),
        ):  # fmt: skip
            await recorder.until("process t", 3)

    run(test())
    modules = (messaging_attributes, server_attributes, error_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    used = {name for span in recorder.exporter.get_finished_spans() for name in its(span)}
    used |= {name for points in recorder.points().values() for point in points for name in point.attributes}
    assert "messaging.rocketmq.message.delivery_timestamp" in used
    assert not {name for name in used if not name.startswith("perseid.")} - known
    metrics = {value for value in vars(messaging_metrics).values() if isinstance(value, str)}
    points = recorder.points()
    assert points.keys() <= metrics and len(points) == 4
    assert sum(point.value for point in points["messaging.client.sent.messages"]) == 3
    assert sum(point.value for point in points["messaging.client.consumed.messages"]) == 3
    assert sum(point.count for point in points["messaging.client.operation.duration"]) == 2
    assert sum(point.count for point in points["messaging.process.duration"]) == 3
    assert points["messaging.process.duration"][0].explicit_bounds[0] == 0.005


def test_one_serves_one_client(perseid_broker: EmbeddedBroker, recorder: Recorder) -> None:
    hook = recorder.hook()

    async def test() -> None:
        options = ProducerOptions(hooks=[hook])
        async with Producer(perseid_broker.namesrv, options=options):
            with pytest.raises(PerseidError, match="make one for each"):
                await Producer(perseid_broker.namesrv, options=options).start()
        async with Producer(perseid_broker.namesrv, options=options):
            pass

    run(test())


def test_without_a_tracer_provider_the_global_one_is_used(perseid_broker: EmbeddedBroker) -> None:
    """And it is one that does nothing, unless the application sets another: no context travels."""

    async def test() -> None:
        options = ProducerOptions(hooks=[OpenTelemetry()])
        async with Producer(perseid_broker.namesrv, options=options) as producer:
            assert "traceparent" not in producer.pack(Message("t", b"x")).properties
            await producer.send(Message("t", b"x"))

    run(test())
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_missing_package_is_one_line_with_the_command() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import perseid.client.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert "perseid.client.otel needs opentelemetry" in last, done.stderr
    assert last.endswith("pip install 'perseid[otel]'")


def test_the_client_does_not_import_it() -> None:
    code = "import sys, perseid.client, perseid.client.blocking; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
