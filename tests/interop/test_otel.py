"""Traces that go on between a stock Java client and ours, in the property `traceparent`."""

from __future__ import annotations

import asyncio

import pytest
import rig
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perseid.client import Message, Producer, ProducerOptions, PushConsumer, PushOptions, ReceivedMessage
from perseid.client.otel import OpenTelemetry

pytestmark = pytest.mark.interop

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_trace_goes_on_from_java_to_us_and_back(
    java: rig.Client, cluster: rig.Cluster, topic: str, name: str
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    java.send(topic, ["from Java"], props={"traceparent": f"00-{TRACE}-{SPAN}-01"})

    async def test() -> None:
        handled = asyncio.Event()
        async with Producer(
            cluster.namesrv, options=ProducerOptions(hooks=[OpenTelemetry(provider)])
        ) as producer:

            async def handle(message: ReceivedMessage) -> None:
                if message.body == b"from Java":
                    await producer.send(Message(topic, b"from us"))
                    handled.set()

            options = PushOptions(hooks=[OpenTelemetry(provider)])
            async with PushConsumer(
                cluster.namesrv, f"g_{name}", {topic: "*"}, handle, from_where="first", options=options
            ):
                await handled.wait()

    rig.run(test())
    spans = exporter.get_finished_spans()
    process = next(span for span in spans if span.name == f"process {topic}")
    send = next(span for span in spans if span.name == f"send {topic}")
    assert process.parent is not None and process.context is not None and send.context is not None
    assert (f"{process.parent.trace_id:032x}", f"{process.parent.span_id:016x}") == (TRACE, SPAN)
    assert send.parent is not None and send.parent.span_id == process.context.span_id
    back = {message["body"]: message["props"] for message in java.consume(topic, name, 2)}
    assert back["from us"]["traceparent"] == f"00-{TRACE}-{send.context.span_id:016x}-01"
