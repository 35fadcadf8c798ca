"""`async for message in consumer`: what is done, what comes again, how loops end."""

from __future__ import annotations

import asyncio

import pytest

from perseid.base.errors import PerseidError
from perseid.client import (
    ClientError,
    ConsumeMode,
    Consumer,
    Consuming,
    Hook,
    Message,
    NotStarted,
    Producer,
    PullConsumer,
    PushOptions,
    ReceivedMessage,
    assigned_queue,
    assignment,
)
from perseid.testing.cluster import VirtualCluster
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest

from .fake import FakeServer, run


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_queue, "LOCK_PAUSE_MS", 5)
    monkeypatch.setattr(assignment, "AGAIN_MS", 5)
    monkeypatch.setattr(assignment, "COMMIT_INTERVAL_MS", 5)


def filled(count: int, queues: int = 1) -> FakeServer:
    server = FakeServer({"t": queues})
    for number in range(count):
        server.store("t", number % queues, b"%03d" % number, {"TAGS": "ab"[number // queues % 2]})
    return server


def consumer(server: FakeServer, **options: object) -> Consumer:
    return Consumer(server.address, "g", {"t": "*"}, from_where="first", **options)  # type: ignore[arg-type]


def test_a_message_is_done_when_the_loop_asks_for_the_next_one() -> None:
    async def test() -> None:
        async with filled(50, 2) as server, consumer(server) as messages:
            seen = []
            async for message in messages:
                seen.append(message.body)
                if len(seen) == 50:
                    messages.done(message)
                    break
            assert sorted(seen) == [b"%03d" % n for n in range(50)]
            await messages.stop()
            assert {k[2]: v for k, v in server.committed.items() if k[1] == "t"} == {0: 25, 1: 25}
            assert messages.metrics.succeeded == 50 and server.sent_back == []

    run(test())


@pytest.mark.parametrize("mode", [ConsumeMode.CONCURRENT, ConsumeMode.ORDERED])
def test_a_message_that_the_loop_broke_off_at_is_not_committed(mode: ConsumeMode) -> None:
    async def test() -> None:
        async with filled(5) as server:
            async with consumer(server, mode=mode) as messages:
                async for message in messages:
                    if message.body == b"002":
                        break
            assert server.committed["g", "t", 0] == 2 and server.sent_back == []
            async with consumer(server, mode=mode) as messages:
                assert (await anext(aiter(messages))).body == b"002", "it comes again at once"

    run(test())


def test_a_message_whose_exception_leaves_the_loop_comes_again_later() -> None:
    async def test() -> None:
        async with filled(3) as server:
            with pytest.raises(ZeroDivisionError):
                async with consumer(server) as messages:
                    async for message in messages:
                        if message.body == b"001":
                            raise ZeroDivisionError
            assert [back.offset for back in server.sent_back] == [2000]
            assert server.committed["g", "t", 0] == 2, "the retry queue has it"
            assert messages.metrics.failed == 1

    run(test())


def test_a_new_loop_of_the_same_task_gives_back_what_the_old_one_left() -> None:
    async def test() -> None:
        async with filled(4) as server, consumer(server) as messages:
            seen = []
            for _ in range(2):
                try:
                    async for message in messages:
                        seen.append(message.body)
                        if message.body == b"001":
                            raise ValueError
                        if message.body == b"003":
                            messages.done(message)
                            break
                except ValueError:
                    pass
            await server.until(lambda: server.sent_back)
            assert seen == [b"000", b"001", b"002", b"003"]

    run(test())


def test_a_loop_may_put_a_message_off_and_go_on() -> None:
    async def test() -> None:
        async with filled(3) as server, consumer(server) as messages:
            async for message in messages:
                if message.body == b"001":
                    messages.retry_later(message, delay_level=3)
                    with pytest.raises(ClientError, match="is not being handled"):
                        messages.done(message)
                if message.body == b"002":
                    messages.done(message)
                    break
            await server.until(lambda: server.sent_back)
            assert server.sent_back[0].delay_level == 3

    run(test())


def test_an_ordered_message_that_is_put_off_is_tried_in_its_place() -> None:
    async def test() -> None:
        async with filled(4) as server, consumer(server, mode=ConsumeMode.ORDERED) as messages:
            seen = []
            async for message in messages:
                seen.append((message.body, message.reconsume_times))
                if len(seen) == 2:
                    messages.retry_later(message, after_ms=10)
                if message.body == b"003":
                    break
            assert seen == [(b"000", 0), (b"001", 0), (b"001", 1), (b"002", 0), (b"003", 0)]

    run(test())


def test_several_tasks_share_the_messages_and_stop_lets_them_finish() -> None:
    async def test() -> None:
        async with filled(40, 4) as server:
            seen: list[bytes] = []
            messages = consumer(server, options=PushOptions(concurrency=4))
            await messages.start()
            gate = asyncio.Event()

            async def loop() -> int:
                count = 0
                async for message in messages:
                    count += 1
                    seen.append(message.body)
                    server.changed()
                    if len(seen) > 36:
                        await gate.wait()
                return count

            tasks = [asyncio.create_task(loop()) for _ in range(4)]
            await server.until(lambda: len(seen) == 40)
            stopping = asyncio.create_task(messages.stop())
            await server.until(lambda: messages.stopping)
            gate.set()
            await stopping
            assert sum(await asyncio.gather(*tasks)) == 40
            assert sorted(seen) == sorted(set(seen))
            assert {v for k, v in server.committed.items() if k[1] == "t"} == {10}

    run(test())


def test_what_a_task_had_when_it_ended_comes_again() -> None:
    async def test() -> None:
        async with filled(3) as server, consumer(server) as messages:

            async def fails() -> None:
                async for _ in messages:
                    raise ValueError("the task's own")

            with pytest.raises(ValueError, match="own"):
                await asyncio.create_task(fails())
            await server.until(lambda: len(server.sent_back) == 1)

            taken = asyncio.Event()

            async def waits() -> None:
                async for _ in messages:
                    taken.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(waits())
            await taken.wait()
            task.cancel()
            await server.until(lambda: len(server.sent_back) == 2)
            assert (await anext(aiter(messages))).body == b"002"

    run(test())


def test_stop_waits_neither_for_untaken_messages_nor_for_the_callers_own() -> None:
    async def test() -> None:
        async with filled(30) as server:
            messages = consumer(server)
            await messages.start()
            async for _ in messages:
                async with asyncio.timeout(5):
                    await messages.stop()
            assert server.committed.get(("g", "t", 0), 0) == 0

    run(test())


def test_a_loop_that_takes_too_long_gets_its_message_again() -> None:
    async def test() -> None:
        options = PushOptions(consume_timeout_ms=20)
        async with filled(1) as server, consumer(server, options=options) as messages:
            async for message in messages:
                await server.until(lambda: server.sent_back)
                with pytest.raises(ClientError, match="consume_timeout_ms=20"):
                    messages.done(message)
                break

    run(test())


def test_a_queue_that_went_away_is_not_handed_out_any_more() -> None:
    async def test() -> None:
        async with filled(40, 4) as server:
            notice = NotifyConsumerIdsChangedRequest(consumer_group="g")

            def tell() -> None:
                server.ask_clients(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice)

            options = {"mode": ConsumeMode.ORDERED}
            async with consumer(server, **options) as one:
                assert (await anext(aiter(one))).queue_offset == 0
                await server.until(lambda: len(one._offered) == 3)
                async with consumer(server, **options) as two:
                    tell()
                    await server.until(lambda: len([q for q in two.queues if q.topic == "t"]) == 2)
                    ours = {queue for queue in one.queues if queue.topic == "t"}
                    assert {delivery.message.queue for delivery in one._offered} <= ours

    run(test())


def test_an_ordered_message_waits_for_the_lock_of_its_queue() -> None:
    async def test() -> None:
        async with filled(1) as server, consumer(server, mode=ConsumeMode.ORDERED) as messages:
            await server.until(lambda: messages._offered)
            queue = next(h for q, h in messages.assignment.queues.items() if q.topic == "t")
            queue.lock_until = 0.0
            waiting = asyncio.ensure_future(messages.take("a loop"))
            beats = server.count(RequestCode.HEART_BEAT)
            await messages.session.heartbeat()
            await server.until(lambda: server.count(RequestCode.HEART_BEAT) > beats)
            assert not waiting.done()
            await messages.assignment.renew_locks()
            message = await waiting
            assert message is not None and message.body == b"000"

    run(test())


def test_hooks_surround_the_body_of_the_loop() -> None:
    class Notes(Hook):
        def __init__(self) -> None:
            self.told: list[tuple[str | None, bytes, object]] = []

        def before_consume(self, consuming: Consuming) -> None:
            self.told.append((consuming.outcome, consuming.message.body, None))

        def after_consume(self, consuming: Consuming) -> None:
            self.told.append((consuming.outcome, consuming.message.body, consuming.error and type(consuming.error)))

    hook = Notes()

    async def test() -> None:
        async with filled(2) as server:
            with pytest.raises(KeyError):
                async with consumer(server, options=PushOptions(hooks=[hook])) as messages:
                    async for message in messages:
                        if message.body == b"001":
                            raise KeyError

    run(test())
    assert hook.told == [
        (None, b"000", None), ("SUCCESS", b"000", None), (None, b"001", None), ("EXCEPTION", b"001", KeyError),
    ]  # fmt: skip


def test_a_consumer_that_was_not_started_says_so() -> None:
    async def test() -> None:
        with pytest.raises(NotStarted, match="async with Consumer"):
            async for _ in Consumer("127.0.0.1:1", "g", {"t": "*"}):
                pass

    run(test())


def test_on_a_real_broker_the_failed_message_comes_back(perseid_broker: EmbeddedBroker) -> None:
    namesrv = perseid_broker.namesrv

    async def read(count: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        async with Consumer(namesrv, "g", {"orders": "*"}, from_where="first") as messages, asyncio.timeout(30):
            async for message in messages:
                found.append(message)
                if message.body == b"3" and not message.reconsume_times:
                    messages.retry_later(message, delay_level=1)
                if len(found) == count:
                    messages.done(message)
                    break
        return found

    async def test() -> None:
        async with Producer(namesrv) as producer:
            for number in range(10):
                await producer.send(Message("orders", b"%d" % number))
        found = await read(11)
        assert sorted(m.body for m in found) == sorted([*(b"%d" % n for n in range(10)), b"3"])
        assert (found[-1].body, found[-1].topic, found[-1].reconsume_times) == (b"3", "orders", 1)

    run(test())


@pytest.mark.parametrize("mode", [ConsumeMode.CONCURRENT, ConsumeMode.ORDERED])
def test_loops_that_fail_get_every_message_through_a_failover(mode: ConsumeMode) -> None:
    """In virtual time: batches are sent to a set of brokers whose master dies; loops fail at each seventh message."""
    count = 300

    async def test(cluster: VirtualCluster) -> tuple[set[bytes], list[bytes]]:
        acknowledged: set[bytes] = set()
        done: list[bytes] = []

        async def send(number: int) -> None:
            body = b"%03d" % number
            while body not in acknowledged:
                try:
                    await producer.send(Message("orders", body), key=str(number % 8))
                    acknowledged.add(body)
                except PerseidError:
                    await asyncio.sleep(0.2)

        async def loop(consumer: Consumer) -> None:
            failed: set[bytes] = set()
            while True:
                try:
                    async for message in consumer:
                        if int(message.body) % 7 == 0 and message.body not in failed:
                            failed.add(message.body)
                            raise ValueError("each seventh fails once")
                        done.append(message.body)
                        if len(set(done)) == count:
                            consumer.done(message)
                            finished.set()
                    return
                except ValueError:
                    pass

        finished = asyncio.Event()
        async with Producer(cluster.namesrv, linger_ms=5, timeout_ms=1000) as producer:
            one = Consumer(cluster.namesrv, "g", {"orders": "*"}, from_where="first", mode=mode)
            two = Consumer(cluster.namesrv, "g", {"orders": "*"}, from_where="first", mode=mode)
            async with one, two, asyncio.TaskGroup() as group:
                for consumer in (one, one, two):
                    group.create_task(loop(consumer))
                for start in range(0, count, 100):
                    await asyncio.gather(*(send(number) for number in range(start, start + 100)))
                    if start == 100:
                        cluster.kill("master")
                await finished.wait()
                await one.stop()
                await two.stop()
        return acknowledged, done

    with VirtualCluster(replicas=3) as cluster:
        acknowledged, done = cluster.run(test(cluster), limit_s=3600)
    assert acknowledged == set(done) == {b"%03d" % number for number in range(count)}


def test_a_message_that_never_works_out_becomes_a_dead_letter() -> None:
    """In virtual time: it takes hours."""

    async def test(cluster: VirtualCluster) -> tuple[list[int], bytes]:
        tried: list[int] = []
        async with Producer(cluster.namesrv) as producer:
            await producer.send(Message("orders", b"poison"))
        while len(tried) < 4:
            try:
                async with Consumer(
                    cluster.namesrv, "g", {"orders": "*"}, from_where="first", max_reconsume_times=3
                ) as consumer:
                    async for message in consumer:
                        tried.append(message.reconsume_times)
                        raise ValueError("poison")
            except ValueError:
                pass
        async with PullConsumer(cluster.namesrv, "undertaker", from_where="first") as dead:
            dead.assign(await dead.queues("%DLQ%g"))
            return tried, (await dead.poll(timeout_ms=60_000))[0].body

    with VirtualCluster() as cluster:
        assert cluster.run(test(cluster), limit_s=3600) == ([0, 1, 2, 3], b"poison")
