"""Consumers with dedupe=True on our own broker, over messages that a stamped writer sent twice."""

import asyncio

from perseid.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullOptions,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
)
from perseid.client.stamps import STAMP, home_of, id_prefix, layout_of
from perseid.testing.embedded import EmbeddedBroker

from .fake import run
from .stamped import forwarded

QUEUE = MessageQueue("t", "embedded", 0)


def stamped(batch: int, sequence: int, since: int, *, plan: int = 0) -> Message:
    layout, home = layout_of([QUEUE]), home_of(QUEUE)
    text = f"q:{batch}:0:{layout}:{home}:{since}:{sequence}:{plan:02x}{batch % 256:02x}{sequence % 65536:04x}"
    unique = f"{id_prefix(('q', batch, '0', layout), home)}{sequence:012X}"
    body = b"%d.%d" % (batch, sequence) + (b" of plan %d" % plan if plan else b"")
    return Message("t", body, properties={"UNIQ_KEY": unique, STAMP: text})


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
        async with PullConsumer(perseid_broker.namesrv, "g", options=PullOptions(dedupe=dedupe)) as consumer:
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

        async with PushConsumer(namesrv, "g", {"t": "*"}, handle, options=PushOptions(dedupe=True, concurrency=1)):
            async with asyncio.timeout(60):
                await done.wait()
        assert got == wanted, "by offset: a message that is handed out again is no repeat"
        assert retried == {b"1.3"}

    run(test())


def test_consumers_hand_out_whatever_is_no_repeat(perseid_broker: EmbeddedBroker) -> None:
    """A handler that edits and forwards, dead letters put back, a restored checkpoint, a stranger's stamps."""
    namesrv = perseid_broker.namesrv

    async def test() -> None:
        await written_twice(namesrv)
        options = PullOptions(dedupe=True)
        async with PullConsumer(namesrv, "first", options=options) as consumer, Producer(namesrv) as producer:
            messages = [m async for found in consumer.read(QUEUE, 15, 25) for m in found]
            await producer.send_batch([forwarded(m, b"edited " + m.body) for m in messages[:3]], queue=QUEUE)
            await producer.send_batch([forwarded(m, ORIGIN_MESSAGE_ID="x") for m in messages[:3]], queue=QUEUE)
            await producer.send_batch([forwarded(m, UNIQ_KEY="x" + m.msg_id) for m in messages[:3]], queue=QUEUE)
            await producer.send_batch([stamped(0, n, 0, plan=1) for n in range(3)], queue=QUEUE)
            await producer.send_batch([stamped(0, n, 0, plan=1) for n in range(3)], queue=QUEUE)
            await producer.send_batch([stamped(2**62, 2**62, 2**62), stamped(0, 2**62, 0)], queue=QUEUE)
            await producer.send_batch([stamped(2, n, 25) for n in range(3)], queue=QUEUE)
        wanted = [b"edited 1.%d" % n for n in range(3)] + 2 * [b"1.%d" % n for n in range(3)]
        wanted += [b"0.%d of plan 1" % n for n in range(3)]
        wanted += [b"%d.%d" % (2**62, 2**62), b"0.%d" % 2**62, *(b"2.%d" % n for n in range(3))]
        async with PullConsumer(namesrv, "second", options=PullOptions(dedupe=True)) as consumer:
            for begin, before in ((0, WHOLE), (25, [])):
                got = [m.body async for found in consumer.read(QUEUE, begin, 45) for m in found]
                assert got == before + wanted
        polled: list[bytes] = []
        enough = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            polled.append(message.body)
            if message.body == b"2.2":
                enough.set()

        options = PushOptions(dedupe=True, concurrency=1)
        async with PushConsumer(namesrv, "third", {"t": "*"}, handle, from_where="first", options=options):
            async with asyncio.timeout(60):
                await enough.wait()
        assert polled == WHOLE + wanted

    run(test())
