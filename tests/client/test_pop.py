"""The consumer that pops, on our own broker: real sockets, the real store."""

from __future__ import annotations

import asyncio

import pytest

from perseid.client import (
    Admin,
    ClientError,
    Message,
    NotStarted,
    PopConsumer,
    PopOptions,
    PoppedMessage,
    Producer,
    ServerRefused,
)
from perseid.client.blocking import BlockingPopConsumer, BlockingProducer
from perseid.testing.embedded import EmbeddedBroker

from .fake import run

LONG_MS, SHORT_MS = 60_000, 500
"""Of what is done with while it is out, however slow the machine is; of what is to come again."""


async def stock(namesrv: str, count: int, queues: int = 2, topic: str = "t", tag: str = "") -> None:
    async with Admin(namesrv) as admin, Producer(namesrv) as producer:
        await admin.create_topic(topic, queues)
        for number in range(count):
            await producer.send(Message(topic, b"m%d" % number, tag=tag or None))


async def gather(consumer: PopConsumer, count: int) -> list[PoppedMessage]:
    got: list[PoppedMessage] = []
    while len(got) < count:
        got += await consumer.receive()
    return got


def test_what_is_received_is_acknowledged_or_comes_again(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await stock(namesrv, 6, queues=1)
        async with (
            PopConsumer(namesrv, "g", "t", invisible_ms=LONG_MS) as consumer,
            PopConsumer(namesrv, "g", "t", invisible_ms=SHORT_MS) as forgetful,
        ):
            got = await consumer.receive(4)
            assert [m.body for m in got] == [b"m%d" % n for n in range(4)]
            await consumer.ack(got[0])
            await consumer.ack_all(got[1:3])
            kept = await consumer.change_invisible(got[3], 2 * LONG_MS)
            assert kept.visible_at > got[3].visible_at
            forgotten = await forgetful.receive(2)
            assert [m.body for m in forgotten] == [b"m4", b"m5"]
            again = await gather(consumer, 2)
            assert sorted(m.body for m in again) == [b"m4", b"m5"]
            assert {(m.reconsume_times, m.topic) for m in again} == {(1, "t")}
            assert all(m.handle.pop_time >= forgotten[0].visible_at for m in again)
            await consumer.ack_all([*again, kept])
            assert await consumer.receive(timeout_ms=1_500) == []
            with pytest.raises(ServerRefused, match="not popped any more"):
                await consumer.change_invisible(kept, 1_000)

    run(test())


def test_in_order_and_how_often(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await stock(namesrv, 3, queues=1)
        async with PopConsumer(namesrv, "g", "t", invisible_ms=LONG_MS, options=PopOptions(ordered=True)) as consumer:
            first = await consumer.receive(2)
            assert [m.body for m in first] == [b"m0", b"m1"]
            assert await consumer.receive(timeout_ms=200) == []
            await consumer.ack(first[0])
            await consumer.change_invisible(first[1], SHORT_MS)
            again = await gather(consumer, 2)
            assert [(m.body, m.reconsume_times) for m in again] == [(b"m1", 1), (b"m2", 0)]
            await consumer.ack_all(again)

    run(test())


def test_tags_are_looked_at_twice(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await stock(namesrv, 2, tag="Aa")
        await stock(namesrv, 1, tag="BB")
        async with (
            PopConsumer(namesrv, "g", "t", expression="BB", invisible_ms=2_000) as consumer,
            PopConsumer(namesrv, "g", "t", invisible_ms=LONG_MS) as everything,
        ):
            got = await gather(consumer, 1)
            assert [m.tag for m in got] == ["BB"]
            again = await gather(everything, 1)
            assert [(m.tag, m.reconsume_times) for m in again] == [("BB", 1)]
            await everything.ack_all(again)
            assert await everything.receive(timeout_ms=1_000) == [], "those with the same code are acknowledged"

    run(test())


def test_a_loop_handles_each_message_until_it_succeeds(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await stock(namesrv, 8)
        seen: list[tuple[bytes, int]] = []
        done = asyncio.Event()

        async def handle(message: PoppedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if len(seen) == 9:
                done.set()
            if message.body == b"m3" and message.reconsume_times == 0:
                raise ValueError("once")

        async with PopConsumer(namesrv, "g", "t", invisible_ms=3_000) as consumer:
            loop = asyncio.ensure_future(consumer.run(handle, concurrency=4))
            await done.wait()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
        assert sorted(seen) == sorted([*((b"m%d" % n, 0) for n in range(8)), (b"m3", 1)])

    run(test())


def test_what_is_out_stays_out_over_a_restart_of_the_broker(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await stock(namesrv, 4)
        async with PopConsumer(namesrv, "g", "t", invisible_ms=4_000) as consumer:
            got = await gather(consumer, 4)
            kept = await consumer.change_invisible(got[0], LONG_MS)
            await asyncio.to_thread(perseid_broker.stop)
            await asyncio.to_thread(perseid_broker.start)
            while True:
                try:
                    await consumer.ack(kept)
                    break
                except ClientError:
                    continue
            again: list[PoppedMessage] = []
            while len(again) < 3:
                try:
                    again += await consumer.receive()
                except ClientError:
                    continue
            assert sorted(m.body for m in again) == sorted(m.body for m in got[1:])
            assert all(m.reconsume_times == 1 and m.handle.pop_time >= got[1].visible_at for m in again)

    run(test())


def test_what_can_not_be(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        with pytest.raises(ClientError, match="first"):
            PopConsumer("h:1", "g", "t", from_where="middle")
        with pytest.raises(ClientError, match="topic"):
            PopConsumer("h:1", "g")
        with pytest.raises(NotStarted):
            await PopConsumer("h:1", "g", "t").receive()

    run(test())


def test_a_topic_that_does_not_exist_yet_is_waited_for(
    perseid_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            PopConsumer(perseid_broker.namesrv, "g", "TBW102_later") as consumer,
            Producer(perseid_broker.namesrv) as producer,
        ):
            for _ in range(2):
                assert await consumer.receive(timeout_ms=0) == []
            waits = asyncio.create_task(consumer.receive(timeout_ms=LONG_MS))
            await producer.send(Message("TBW102_later", b"x"))
            [message] = await waits
            assert message.body == b"x"
        told = [record.getMessage() for record in caplog.records if "looked for each second" in record.getMessage()]
        assert told == [
            "group g: no route for topic 'TBW102_later': it does not exist; create it: perseid topic create"
            " TBW102_later; it is looked for each second"
        ]

    run(test())


def test_without_asyncio(perseid_broker: EmbeddedBroker) -> None:
    with BlockingProducer(perseid_broker.namesrv) as producer:
        producer.send(Message("TBW102_made", b"x"))
    with BlockingPopConsumer(perseid_broker.namesrv, "g", "TBW102_made", invisible_ms=LONG_MS) as consumer:
        [message] = consumer.receive()
        message = consumer.change_invisible(message, 300)
        [again] = consumer.receive()
        assert again.body == b"x"
        consumer.ack(again)
        consumer.ack_all([again])
        assert consumer.receive(timeout_ms=1_000) == []
