"""Traces and metrics."""

import contextvars

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from perseid.client import (
    Consumer,
    Hook,
    Message,
    Outgoing,
    Producer,
    ProducerMetrics,
    ProducerOptions,
    PushOptions,
)
from perseid.client.otel import OpenTelemetry


# --8<-- [start:setup]
def set_up(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
# --8<-- [end:setup]


# --8<-- [start:send]
async def order(namesrv: str, provider: TracerProvider, body: bytes) -> None:
    options = ProducerOptions(hooks=[OpenTelemetry(provider)])
    async with Producer(namesrv, options=options) as producer:
        with provider.get_tracer("shop").start_as_current_span("order"):
            await producer.send(Message("orders", body))
# --8<-- [end:send]


# --8<-- [start:consume]
async def bill(namesrv: str, provider: TracerProvider, billed: list[bytes]) -> None:
    options = PushOptions(hooks=[OpenTelemetry(provider)])
    async with Consumer(namesrv, "billing", {"orders": "*"}, from_where="first", options=options) as consumer:
        async for message in consumer:
            with provider.get_tracer("shop").start_as_current_span("charge"):
                billed.append(message.body)
# --8<-- [end:consume]


# --8<-- [start:measure]
async def send_and_measure(namesrv: str, bodies: list[bytes]) -> ProducerMetrics:
    async with Producer(namesrv) as producer:
        for body in bodies:
            await producer.send(Message("readings", body))
        metrics = producer.metrics
    print(metrics.sent, "stored,", metrics.failed, "failed,", metrics.retried, "retries")
    print("99 of 100 within", metrics.latency.percentile_ms(0.99), "ms")
    return metrics
# --8<-- [end:measure]


# --8<-- [start:hook]
tenant = contextvars.ContextVar("tenant", default="none")


class Tenant(Hook):
    def on_send(self, outgoing: Outgoing) -> None:
        outgoing.properties["tenant"] = tenant.get()


async def send_as(namesrv: str, name: str) -> None:
    async with Producer(namesrv, options=ProducerOptions(hooks=[Tenant()])) as producer:
        tenant.set(name)
        await producer.send(Message("visits", b"hello"))
# --8<-- [end:hook]
