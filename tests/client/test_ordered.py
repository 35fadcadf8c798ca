"""Order, whatever fails: batches of a queue never overtake one another."""

import asyncio

import pytest

from perseid.client import (
    BufferFull,
    InvalidMessage,
    Message,
    NotStarted,
    OrderedProducer,
    OrderedProducerOptions,
    SendFailed,
    ordered,
)
from perseid.client.model import key_hash
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2

from .fake import Answer, FakeServer, Script, hang_up, refuse, run, serve_late, silence

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "RETRY_FIRST_MS", 1)
    monkeypatch.setattr(ordered, "RETRY_MAX_MS", 5)


def in_order(server: FakeServer, topic: str = "t") -> list[bytes]:
    """The first copy of each stored message, queue by queue; fails when one is out of order."""
    firsts: list[bytes] = []
    for (name, _), queue in server.queues.items():
        if name == topic:
            bodies = list(dict.fromkeys(bytes(m.body) for m in queue.records))
            assert bodies == sorted(bodies), "a message was overtaken"
            firsts += bodies
    return firsts


def body(number: int) -> bytes:
    return b"%06d" % number


def test_messages_are_batched_by_queue_and_stay_in_order() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, OrderedProducer(server.address) as producer:
            for i in range(2000):
                await producer.put(Message("t", body(i)), f"key{i % 50}")
            await producer.flush()
            assert sorted(in_order(server)) == [body(i) for i in range(2000)]
            for i in range(50):
                stored = server.bodies("t", key_hash(f"key{i}") % 4)
                assert body(i) in stored, "the queue is that of the key's hash"
            assert producer.metrics.sent == 2000
            assert producer.metrics.batches < 200
            assert producer.unacknowledged == 0

    run(test())


def test_one_batch_is_in_flight_for_each_queue() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FakeServer({"t": 2}) as server, OrderedProducer(server.address) as producer:
            server.script[SEND] += [serve_late(gate)] * 2
            first = [producer.send(Message("t", body(i)), "ab"[i]) for i in range(2)]
            await server.until(lambda: server.count(SEND) == 2)
            later = [producer.send(Message("t", body(i)), "ab"[i % 2]) for i in range(2, 10)]
            await producer.session.heartbeat()
            assert server.count(BATCH) == 0
            gate.set()
            results = await asyncio.gather(*first, *later)
            assert server.count(BATCH) == 2
            assert sorted(r.queue_offset for r in results) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
            assert len({r.msg_id for r in results}) == 10

    run(test())


@pytest.mark.parametrize("trouble", [hang_up, silence, refuse(ResponseCode.SYSTEM_BUSY), refuse(1500)])
def test_trouble_never_reorders(trouble: Script) -> None:
    async def test() -> None:
        options = OrderedProducerOptions(timeout_ms=40)
        async with FakeServer({"t": 3}) as server, OrderedProducer(server.address, options=options) as producer:
            for number in range(12):
                server.script[BATCH] += [trouble] if number % 3 == 0 else [_serve]
            for i in range(3000):
                await producer.put(Message("t", body(i)), str(i % 7))
                if i % 100 == 0:
                    await producer.session.heartbeat()
            await producer.flush()
            assert sorted(in_order(server)) == [body(i) for i in range(3000)]
            assert producer.metrics.retried >= 1
            assert producer.metrics.outages >= 1

    run(test())


def _serve(command: Command) -> None:
    return None


def test_a_batch_whose_answer_was_lost_is_stored_twice_with_the_same_ids() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address) as producer:

            def store_then_hang_up(command: Command) -> Answer:
                server._on_send_message_v2(server.peers[0], command)
                return Answer(hang_up=True)

            server.script[BATCH].append(store_then_hang_up)
            for i in range(5):
                await producer.put(Message("t", body(i)), "k")
            await producer.flush()
            for i in range(5, 8):
                await producer.put(Message("t", body(i)), "k")
            await producer.flush()
            assert server.bodies("t") == [body(i) for i in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7)]
            raw = [m.properties for m in server.queues["t", 0].records]
            assert raw[:5] == raw[5:10]

    run(test())


def test_a_broker_that_is_away_for_a_while_is_waited_for() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, OrderedProducer(server.address) as producer:
            for i in range(500):
                await producer.put(Message("t", body(i)), str(i % 5))
            await producer.flush()
            await server.stop()
            for i in range(500, 1500):
                await producer.put(Message("t", body(i)), str(i % 5))
            await wait_for_retries(producer, 10)
            await server.start()
            await producer.flush()
            assert sorted(in_order(server)) == [body(i) for i in range(1500)]
            assert producer.metrics.outages == 1
            assert producer.metrics.longest_outage_ms == producer.metrics.outage_ms

    run(test())


async def wait_for_retries(producer: OrderedProducer, count: int) -> None:
    """Let the loop turn until so many retries happened (each takes a few milliseconds)."""
    again = asyncio.Event()
    while producer.metrics.retried < count:
        again.clear()
        asyncio.get_running_loop().call_later(0.001, again.set)
        await again.wait()


def test_after_the_deadline_the_queue_fails_as_a_whole_and_others_go_on() -> None:
    async def test() -> None:
        options = OrderedProducerOptions(deadline_ms=60)
        async with FakeServer({"t": 2}) as server, OrderedProducer(server.address, options=options) as producer:

            def queue_1_is_busy(command: Command) -> Answer | None:
                header = command.header(SendMessageRequestV2)
                return Answer(ResponseCode.SYSTEM_BUSY) if header.queue_id == 1 else None

            for code in (SEND, BATCH):
                server.script[code] += [queue_1_is_busy] * 1000
            keys = {key_hash(k) % 2: k for k in "abcdef"}
            bad = [producer.send(Message("t", body(i)), keys[1]) for i in range(3)]
            good = [producer.send(Message("t", body(i)), keys[0]) for i in range(3)]
            results = await asyncio.gather(*bad, return_exceptions=True)
            assert {type(r) for r in results} == {SendFailed}
            assert "not acknowledged within 60 ms" in str(results[0])
            assert [r.queue_offset for r in await asyncio.gather(*good)] == [0, 1, 2]
            assert producer.metrics.failed == 3

    run(test())


def test_flush_raises_for_messages_without_a_future() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address) as producer:
            server.script[SEND].append(refuse(ResponseCode.MESSAGE_ILLEGAL, "too odd"))
            await producer.put(Message("t", b"x"), "k")
            with pytest.raises(SendFailed, match=r"t/fake-a/0: it was refused .*too odd"):
                await producer.flush()
            await producer.put(Message("t", b"y"), "k")
            await producer.flush()
            assert server.bodies("t") == [b"y"]

    run(test())


def test_single_and_delayed_messages_travel_alone() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address) as producer:
            for i in range(4):
                await producer.put(Message("t", body(i), delay_level=1 if i == 2 else 0), "k")
            await producer.flush()
            assert [c.code for c in server.seen if c.code in (SEND, BATCH)] == [BATCH, SEND, SEND]
            assert server.bodies("t") == [body(i) for i in range(4)]

    run(test())


def test_batches_are_bounded_in_number_and_bytes() -> None:
    async def test() -> None:
        options = OrderedProducerOptions(max_batch_messages=10, max_batch_bytes=5000)
        async with (
            FakeServer({"t": 1}) as server,
            OrderedProducer(server.address, options=options) as producer,
        ):
            for i in range(40):
                await producer.put(Message("t", body(i)), "k")
            for i in range(40, 44):
                await producer.put(Message("t", body(i) + b"x" * 3000), "k")
            await producer.flush()
            assert server.count(BATCH) == 4
            assert server.count(SEND) == 4

    run(test())


def test_a_full_buffer_refuses_send_and_holds_put_back() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        options = OrderedProducerOptions(buffer_messages=5)
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address, options=options) as producer:
            server.script[SEND] += [serve_late(gate)]
            server.script[BATCH] += [serve_late(gate)]
            futures = [producer.send(Message("t", body(i)), "k") for i in range(5)]
            with pytest.raises(BufferFull, match="5 messages"):
                producer.send(Message("t", b"x"), "k")
            putting = asyncio.ensure_future(producer.put(Message("t", body(5)), "k"))
            await server.until(lambda: server.count(SEND) + server.count(BATCH))
            assert not putting.done()
            gate.set()
            await putting
            await asyncio.gather(*futures)
            await producer.flush()
            assert server.bodies("t") == [body(i) for i in range(6)]

    run(test())


def test_what_no_broker_takes_is_refused_at_once() -> None:
    async def test() -> None:
        options = OrderedProducerOptions(max_body_bytes=10)
        async with FakeServer({"t": 1}) as server, OrderedProducer(server.address, options=options) as producer:
            await producer.put(Message("t", b"fine"), "k")
            for message in (
                Message("t", b""),
                Message("t", b"x" * 11),
                Message("a b", b"x"),
                Message("t", b"x", properties={"p": "v" * 33000}),
            ):
                with pytest.raises(InvalidMessage):
                    await producer.put(message, "k")
            await producer.flush()
            assert server.bodies("t") == [b"fine"]

    run(test())


def test_a_topic_without_route_fails_after_the_deadline() -> None:
    async def test() -> None:
        options = OrderedProducerOptions(deadline_ms=30)
        async with FakeServer() as server, OrderedProducer(server.address, options=options) as producer:
            future = producer.send(Message("t", b"x"), "k")
            with pytest.raises(SendFailed, match="no queue of topic t was found within 30 ms"):
                await future

    run(test())


def test_leaving_sends_what_is_left_but_an_error_drops_it() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with OrderedProducer(server.address) as producer:
                await producer.put(Message("t", b"x"), "k")
            assert server.bodies("t") == [b"x"]
            server.script[SEND].append(silence)
            with pytest.raises(KeyError):
                async with OrderedProducer(server.address) as producer:
                    future = producer.send(Message("t", b"y"), "k")
                    raise KeyError
            with pytest.raises(SendFailed, match="stopped before"):
                await future
            with pytest.raises(NotStarted):
                producer.send(Message("t", b"z"), "k")

    run(test())


def test_a_failing_queue_is_tried_as_soon_as_the_route_names_another_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "RETRY_FIRST_MS", 60_000)
    monkeypatch.setattr(ordered, "RETRY_MAX_MS", 60_000)
    monkeypatch.setattr(ordered, "ROUTE_FIRST_MS", 1)

    async def test() -> None:
        async with FakeServer({"t": 1}) as names, FakeServer({"t": 1}) as other:
            first = names.address

            def move(command: Command) -> Answer:
                names.address = other.address  # what the route says from now on
                return Answer(ResponseCode.SYSTEM_ERROR, remark="no longer the master")

            names.script[RequestCode.SEND_MESSAGE_V2].append(move)
            async with OrderedProducer(first) as producer:
                await producer.put(Message("t", b"one"), "k")
                await producer.flush()
                assert producer.metrics.retried == 1
            assert other.bodies("t") == [b"one"] and not names.bodies("t")
            names.address = first

    run(test())
