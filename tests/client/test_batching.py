"""`linger_ms`: what leaves together, what leaves alone, and what each caller is told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perseid.client import (
    BufferFull,
    ClientError,
    Hook,
    InvalidMessage,
    Message,
    MessageQueue,
    NotStarted,
    Producer,
    ProducerOptions,
    SendCall,
    SendFailed,
    SendResult,
    ServerRefused,
)
from perseid.client.batching import batchable
from perseid.client.blocking import BlockingProducer
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import BROKER, FakeServer, refuse, run, serve_late, silence
from .test_hooks import stored

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
LONG_MS = 60_000
"""Longer than a test: what leaves has not waited for it."""


def lingering(server: FakeServer, linger_ms: float = 1, **options: object) -> Producer:
    return Producer(server.address, options=ProducerOptions(linger_ms=linger_ms, **options))  # type: ignore[arg-type]


async def collected(sends: list[asyncio.Future[SendResult]]) -> None:
    """Let calls of `send()` run until their messages wait in a batch."""
    assert not (await asyncio.wait(sends, timeout=0))[0]


def test_sends_of_one_topic_leave_as_one_and_each_gets_its_result() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4, "u": 1}) as server, lingering(server) as producer:
            sends = [producer.send(Message("tu"[n % 2], b"%d" % n, tag="a")) for n in range(20)]
            results = await asyncio.gather(*sends)
            assert (server.count(BATCH), server.count(SEND)) == (2, 0)
            for topic, start in (("t", 0), ("u", 1)):
                mine = results[start::2]
                assert [r.queue_offset for r in mine] == list(range(10))
                assert len({r.queue for r in mine}) == 1 and len({r.msg_id for r in mine}) == 10
                assert server.bodies(topic) == [b"%d" % n for n in range(start, 20, 2)]

    run(test())


def test_one_alone_leaves_as_a_plain_message_after_its_time() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, lingering(server) as producer:
            await producer.send(Message("t", b"x"))
            assert (server.count(BATCH), server.count(SEND)) == (0, 1)

    run(test())


def test_a_full_batch_leaves_at_once() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with lingering(server, LONG_MS, max_batch_messages=5) as producer:
                await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(10)))
                assert server.count(BATCH) == 2
            async with lingering(server, LONG_MS, max_batch_bytes=2500) as producer:
                sends = [asyncio.ensure_future(producer.send(Message("t", b"x" * 900))) for _ in range(3)]
                await asyncio.gather(*sends[:2])
                assert server.count(BATCH) == 3 and not sends[2].done(), "the third did not fit"
                await producer.flush()
                assert sends[2].done()

    run(test())


def test_messages_for_certain_queues_share_a_batch_for_each() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, lingering(server) as producer:
            one, two = MessageQueue("t", BROKER, 1), MessageQueue("t", BROKER, 2)
            sends = [producer.send(Message("t", b"%d" % n), queue=one if n < 3 else two) for n in range(6)]
            keyed = [producer.send(Message("t", b"k"), key="TagA") for _ in range(2)]
            results = await asyncio.gather(*sends, *keyed)
            assert [r.queue.queue_id for r in results] == [1, 1, 1, 2, 2, 2, 3, 3]
            assert server.count(BATCH) == 3

    run(test())


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"x", delay_level=1),
        Message("t", b"x", delay_ms=1000),
        Message("t", b"x", priority=1),
        Message("t", b"x", wait_stored=False),
        Message("t", b"x" * 5000),
        Message("%RETRY%g", b"x"),
        Message("t", b"x", lite_topic="l"),
    ],
    ids=["delay level", "delay", "priority", "wait", "compressed", "retry", "lite"],
)
def test_what_cannot_be_batched_leaves_alone_and_at_once(message: Message) -> None:
    assert not batchable(message, ProducerOptions())

    async def test() -> None:
        async with FakeServer({"t": 1, "%RETRY%g": 1}) as server, lingering(server, LONG_MS) as producer:
            await producer.send(message)
            assert (server.count(BATCH), server.count(SEND)) == (0, 1)

    run(test())


def test_a_send_with_a_timeout_of_its_own_does_not_wait() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, lingering(server, LONG_MS) as producer:
            await producer.send(Message("t", b"x"), timeout_ms=5000)

    run(test())


def test_a_bad_message_is_refused_where_it_is_sent_and_the_others_leave() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, lingering(server) as producer:
            sends = [producer.send(Message("t", body)) for body in (b"a", b"", b"b")]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(outcomes[1], InvalidMessage) and server.bodies("t") == [b"a", b"b"]

    run(test())


def test_a_batch_is_tried_again_as_it_is_and_its_failure_reaches_each() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, lingering(server) as producer:
            server.script[BATCH].append(refuse(ResponseCode.SYSTEM_BUSY))
            await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(3)))
            assert server.count(BATCH) == 2 and server.bodies("t") == [b"x"] * 3
            server.script[BATCH].append(refuse(ResponseCode.MESSAGE_ILLEGAL))
            sends = (producer.send(Message("t", b"x")) for _ in range(3))
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ServerRefused] * 3
            assert (producer.metrics.sent, producer.metrics.failed, producer.metrics.retried) == (3, 3, 1)
            await producer.flush()

    run(test())


def test_stop_sends_what_is_collected_and_takes_nothing_more() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            producer = lingering(server, LONG_MS)
            await producer.start()
            gate = asyncio.Event()
            server.script[BATCH].append(serve_late(gate))
            sends = [asyncio.ensure_future(producer.send(Message("t", b"x"))) for _ in range(3)]
            await collected(sends)
            stopping = asyncio.ensure_future(producer.stop())
            await server.until(lambda: server.count(BATCH))
            with pytest.raises(NotStarted, match="being stopped"):
                await producer.send(Message("t", b"late"))
            gate.set()
            await stopping
            assert len(await asyncio.gather(*sends)) == 3
            with pytest.raises(ClientError, match="not running"):
                await producer.flush()
            async with producer:
                again = asyncio.ensure_future(producer.send(Message("t", b"again")))
                await collected([again])
            await again

    run(test())


def test_a_stop_that_is_cancelled_fails_what_was_not_acknowledged_and_closes() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            producer = lingering(server, LONG_MS)
            await producer.start()
            server.script[BATCH].append(silence)
            sends = [asyncio.ensure_future(producer.send(Message("t", b"x"))) for _ in range(2)]
            await collected(sends)
            stopping = asyncio.ensure_future(producer.stop())
            await server.until(lambda: server.count(BATCH))
            stopping.cancel()
            outcomes = await asyncio.gather(stopping, *sends, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, SendFailed, SendFailed]
            assert not producer.session.running

    run(test())


def test_a_full_buffer_is_waited_for_until_the_timeout() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with lingering(server, buffer_messages=2) as producer:
                await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(9)))
            options = {"buffer_bytes": 300, "timeout_ms": 50, "retries": 0}
            async with lingering(server, **options) as producer:  # type: ignore[arg-type]
                server.script[SEND].append(silence)
                sends = [producer.send(Message("t", b"x" * 300)) for _ in range(2)]
                outcomes = await asyncio.gather(*sends, return_exceptions=True)
                assert {type(outcome) for outcome in outcomes} <= {SendFailed, BufferFull}
                assert isinstance(outcomes[0], SendFailed)
            async with lingering(server, LONG_MS, buffer_messages=1, timeout_ms=10) as producer:
                first = asyncio.ensure_future(producer.send(Message("t", b"x")))
                await collected([first])
                with pytest.raises(BufferFull, match=r"1 messages .*, and no room came within 10 ms"):
                    await producer.send(Message("t", b"y"))
                await producer.flush()
                await first

    run(test())


def test_hooks_hear_of_each_message_and_what_a_cancelled_caller_gave_is_not_sent() -> None:
    class Tenant(Hook):
        def __init__(self) -> None:
            self.calls: list[SendCall] = []

        def on_sent(self, call: SendCall) -> None:
            self.calls.append(call)

    async def test() -> None:
        hook = Tenant()
        async with FakeServer({"t": 1}) as server, lingering(server, LONG_MS, hooks=[hook]) as producer:
            sends = [asyncio.ensure_future(producer.send(Message("t", b"%d" % n))) for n in range(3)]
            await collected(sends)
            assert (producer.metrics.buffered, producer.metrics.batches) == (3, 0)
            sends[1].cancel()
            await asyncio.wait([sends[1]])
            await producer.flush()
            assert server.bodies("t") == [b"0", b"2"]
            with pytest.raises(InvalidMessage):
                await producer.send(Message("t", b""))
            cancelled, first, last, invalid = hook.calls
            assert isinstance(cancelled.error, asyncio.CancelledError) and isinstance(invalid.error, InvalidMessage)
            assert (producer.metrics.buffered, producer.metrics.batches, producer.metrics.sent) == (0, 1, 2)
            for call in (first, last):
                assert call.results is not None and [r.msg_id for r in call.results] == list(call.ids)

    run(test())


def test_on_a_real_broker_and_from_threads(perseid_broker: EmbeddedBroker) -> None:
    namesrv = perseid_broker.namesrv

    async def test() -> None:
        async with Producer(namesrv, options=ProducerOptions(linger_ms=2)) as producer:
            messages = [Message("t", b"%d" % n, tag="a", keys=f"k{n}") for n in range(500)]
            results = await asyncio.gather(*map(producer.send, messages))
        found = await stored(namesrv, "t", 500)
        assert {m.msg_id: (m.body, m.offset_msg_id) for m in found} == {
            result.msg_id: (message.body, result.offset_msg_id)
            for message, result in zip(messages, results, strict=True)
        }
        assert all(m.tag == "a" and m.keys == [f"k{int(m.body)}"] for m in found)

    run(test())
    with BlockingProducer(namesrv, options=ProducerOptions(linger_ms=2)) as blocking:
        threads = [threading.Thread(target=lambda: blocking.send(Message("u", b"x"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        blocking.flush()
    assert len(run(stored(namesrv, "u", 8))) == 8
