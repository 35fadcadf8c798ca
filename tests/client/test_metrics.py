"""What clients count, against a server whose answers are known."""

from __future__ import annotations

import asyncio

import pytest

from perseid.client import (
    ConsumeMode,
    Consuming,
    Hook,
    InvalidMessage,
    Latency,
    Message,
    OrderedProducer,
    PopConsumer,
    PopOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
    SendFailed,
)
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.client.metrics import BOUNDS_MS
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import FakeServer, refuse, run, serve_late


def test_a_histogram_counts_each_time_in_its_bucket() -> None:
    latency = Latency()
    assert (latency.count, latency.mean_ms, latency.percentile_ms(0.99), repr(latency)) == (0, 0, 0, "Latency(nothing)")
    for took in (0, 1, 2, 3, 60_000, 60_001):
        latency.record(took)
    buckets = latency.buckets
    assert (buckets["1 ms"], buckets["2 ms"], buckets["5 ms"], buckets["60000 ms"], buckets["more"]) == (2, 1, 1, 1, 1)
    assert sum(buckets.values()) == latency.count == 6 and len(buckets) == len(BOUNDS_MS) + 1
    assert latency.mean_ms == 120_007 / 6
    bounds = [latency.percentile_ms(share) for share in (0.01, 0.33, 0.5, 0.6, 0.83, 1)]
    assert bounds == [1, 1, 2, 5, 60_000, float("inf")]
    copy = latency.copy()
    latency.record(1)
    assert copy.count == 6 and repr(copy).startswith("Latency(1 ms: 2, 2 ms: 1")


def test_a_producer_counts_what_was_acknowledged_and_what_was_not() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server:
            gate = asyncio.Event()
            options = ProducerOptions(retries=1)
            async with Producer(server.address, options=options) as producer:
                assert producer.metrics.connections == 0
                await producer.send(Message("t", b"123"))
                await producer.send_batch([Message("t", b"1"), Message("t", b"2")])
                await producer.send_oneway(Message("t", b"1"))
                await server.until(lambda: server.count(RequestCode.SEND_MESSAGE_V2) == 2)
                first = producer.metrics
                assert (first.sent, first.oneway, first.failed, first.retried, first.in_flight) == (3, 1, 0, 0, 0)
                assert first.sent_bytes >= 5 and first.connections == 1 and first.latency.count == 2
                server.script[RequestCode.SEND_MESSAGE_V2] += [refuse(ResponseCode.SYSTEM_BUSY)] * 2
                with pytest.raises(SendFailed):
                    await producer.send(Message("t", b"x"))
                with pytest.raises(InvalidMessage):
                    await producer.send(Message("t", b""))
                server.script[RequestCode.SEND_MESSAGE_V2] += [serve_late(gate)]
                sending = asyncio.ensure_future(producer.send(Message("t", b"late")))
                await server.until(lambda: producer.metrics.in_flight)
                gate.set()
                await sending
                now = producer.metrics
                assert (now.sent, now.failed, now.retried, now.in_flight) == (4, 1, 1, 0)
                assert now.latency.count == 3 and first.latency.count == 2 and first.sent == 3, "a copy stays as it is"

    run(test())


def test_an_ordered_producer_counts_what_waits() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address) as producer:
            gate = asyncio.Event()
            await producer.send(Message("t", b"x"), "k")
            server.script[RequestCode.SEND_MESSAGE_V2] += [serve_late(gate)]
            sends = [producer.send(Message("t", b"%d" % n), "k") for n in range(5)]
            sends[0].add_done_callback(lambda _: server.changed())
            assert (producer.metrics.in_flight, producer.metrics.buffered) == (0, 5)
            server.script[RequestCode.SEND_BATCH_MESSAGE] += [serve_late(gate)]
            await server.until(lambda: producer.metrics.in_flight)
            assert producer.metrics.in_flight + producer.metrics.buffered == 5
            gate.set()
            await asyncio.gather(*sends)
            now = producer.metrics
            assert (now.sent, now.failed, now.in_flight, now.buffered) == (6, 0, 0, 0)
            assert now.batches == now.latency.count == 2 and now.sent_bytes > 6 and now.connections == 1

    run(test())


@pytest.mark.parametrize("mode", [ConsumeMode.CONCURRENT, ConsumeMode.ORDERED])
def test_a_push_consumer_counts_what_it_handles(mode: ConsumeMode, perseid_broker: EmbeddedBroker) -> None:
    """It lags by what was sent and is not done."""
    namesrv = perseid_broker.namesrv
    perseid_broker.create_topic("t", 1)

    async def test() -> None:
        release, changed = asyncio.Event(), asyncio.Event()
        failures = [b"2"]

        async def handle(message: ReceivedMessage) -> None:
            changed.set()
            await release.wait()
            if message.body in failures:
                failures.remove(message.body)
                raise RetryLater("once", after_ms=10, delay_level=1)

        async with Producer(namesrv) as producer:
            for n in range(4):
                await producer.send(Message("t", b"%d" % n))
        options = PushOptions(concurrency=1)
        consumer = PushConsumer(namesrv, "g", {"t": "*"}, handle, mode=mode, from_where="first", options=options)
        async with consumer, asyncio.timeout(20):
            await changed.wait()
            now = consumer.metrics
            assert (now.in_flight, now.in_flight + now.buffered, now.lag, now.succeeded) == (1, now.pulled, 4, 0)
            assert now.rebalances >= 1 and now.connections >= 1 and now.pulled_bytes >= now.pulled * 91
            release.set()
            while consumer.metrics.succeeded < 4:
                changed.clear()
                await changed.wait()
            now = consumer.metrics
            assert (now.failed, now.sent_back, now.latency.count) == (1, int(mode is ConsumeMode.CONCURRENT), 5)
            assert now.pulled == 4 + now.sent_back

    run(test())


def test_pull_and_pop_consumers_count_what_they_get(perseid_broker: EmbeddedBroker) -> None:
    namesrv = perseid_broker.namesrv
    perseid_broker.create_topic("t", 1)

    async def test() -> None:
        handled = asyncio.Event()

        class Ends(Hook):
            def after_consume(self, consuming: Consuming) -> None:
                handled.set()

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"1":
                raise KeyError("fails")

        async with Producer(namesrv) as producer:
            await producer.send_batch([Message("t", b"0"), Message("t", b"1"), Message("t", b"2")])
        async with PullConsumer(namesrv, "g", from_where="first") as pulls:
            (queue,) = await pulls.queues("t")
            pulls.assign([queue])
            assert len(await pulls.poll(1)) == 1
            now = pulls.metrics
            assert (now.pulled, now.buffered, now.lag) == (3, 2, 2) and now.pulled_bytes > 3 * 91
            await pulls.pull(queue, 1)
            assert [len(some) async for some in pulls.read(queue, 0, 3)] == [3]
            assert pulls.metrics.pulled == 3 + 2 + 3
        options = PopOptions(hooks=[Ends()])
        async with PopConsumer(namesrv, "g", "t", options=options) as pops, asyncio.timeout(20):
            first, *others = await pops.receive(3)
            await pops.ack(first)
            for message in others:
                await pops.change_invisible(message, 10)
            running = asyncio.ensure_future(pops.run(handle))
            while pops.metrics.latency.count < 2:
                handled.clear()
                await handled.wait()
            now = pops.metrics
            running.cancel()
            assert (now.pulled, now.succeeded, now.failed, now.in_flight) == (5, 1, 1, 0)
            assert now.acknowledged >= 1 and now.connections >= 1

    run(test())


def test_blocking_clients_have_them_too(perseid_broker: EmbeddedBroker) -> None:
    with BlockingProducer(perseid_broker.namesrv) as producer, BlockingPullConsumer(perseid_broker.namesrv) as pulls:
        producer.send(Message("t", b"x"))
        assert producer.metrics.sent == 1 and pulls.metrics.pulled == 0
