"""Consumers with dedupe=True on our own broker, over messages that a stamped writer sent twice."""

import asyncio

from perseid.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
)
from perseid.client.stamps import STAMP, home_of, layout_of
from perseid.testing.embedded import EmbeddedBroker

from .fake import run

QUEUE = MessageQueue("t", "embedded", 0)


def stamped(batch: int, sequence: int, since: int) -> Message:
    text = f"q:{batch}:0:{layout_of([QUEUE])}:{home_of(QUEUE)}:{since}:{sequence}:{batch:04x}{sequence:04x}"
    return Message("t", b"%d.%d" % (batch, sequence), properties={STAMP: text})


async def written_twice(namesrv: str) -> None:
    """Offsets 0 to 4: half of batch 0; 5 to 14: all of it; 15 to 24 batch 1."""
    async with Admin(namesrv) as admin, Producer(namesrv) as producer:
        await admin.create_topic("t", 1)
        await producer.send_batch([stamped(0, n, 0) for n in range(5)], queue=QUEUE)
        await producer.send_batch([stamped(0, n, 0) for n in range(10)], queue=QUEUE)
        await producer.send_batch([stamped(1, n, 15) for n in range(10)], queue=QUEUE)


WHOLE = [b"%d.%d" % (batch, n) for batch in range(2) for n in range(10)]


def test_a_pull_consumer_drops_repeats_also_when_it_begins_in_the_middle(perseid_broker: EmbeddedBroker) -> None:
    async def bodies(begin: int, *, dedupe: bool) -> list[bytes]:
        async with PullConsumer(perseid_broker.namesrv, "g", dedupe=dedupe) as consumer:
            consumer.assign([QUEUE])
            consumer.seek(QUEUE, begin)
            polled: list[bytes] = []
            while consumer.position(QUEUE) != 25:
                polled += [m.body for m in await consumer.poll(timeout_ms=200)]
            assert polled == [m.body async for found in consumer.read(QUEUE, begin, 25) for m in found]
            return polled

    async def test() -> None:
        await written_twice(perseid_broker.namesrv)
        assert len(await bodies(0, dedupe=False)) == 25
        assert await bodies(0, dedupe=True) == WHOLE
        assert await bodies(3, dedupe=True) == WHOLE[3:]
        assert await bodies(7, dedupe=True) == WHOLE[5:], (
            "offsets 7 to 9 are repeats of what stands before the beginning"
        )
        assert await bodies(15, dedupe=True) == WHOLE[10:]

    run(test())


def test_a_push_consumer_drops_repeats_over_its_restart_and_keeps_its_own_retries(
    perseid_broker: EmbeddedBroker,
) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        await written_twice(namesrv)
        async with PullConsumer(namesrv, "g") as consumer:
            await consumer.pull(QUEUE, 0)  # makes the group
            await consumer.commit(QUEUE, 8)  # as if an earlier member had got so far
        got: dict[int, bytes] = {}
        retried: set[bytes] = set()
        wanted = {offset: WHOLE[offset - 5] for offset in range(10, 25) if offset != 18}
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            if message.topic == "t" and message.reconsume_times:
                retried.add(message.body)
            elif message.body == b"1.3":
                raise RetryLater("once more", delay_level=1)
            else:
                got[message.queue_offset] = message.body
            if retried and wanted.keys() <= got.keys():
                done.set()

        async with PushConsumer(namesrv, "g", {"t": "*"}, handle, dedupe=True, concurrency=1):
            async with asyncio.timeout(60):
                await done.wait()
        assert got == wanted, "by offset: a message that is handed out again is no repeat"
        assert retried == {b"1.3"}

    run(test())
