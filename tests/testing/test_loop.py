"""Each kind of asyncio client unchanged in virtual time, and what the event loop refuses."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseid.client import (
    Admin,
    Begin,
    ClientError,
    ConsumeMode,
    LiteConsumer,
    Message,
    OrderedProducer,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    run_until_signal,
)
from perseid.client.blocking import BlockingProducer
from perseid.client.connection import Connections
from perseid.client.surroundings import here, now_ms
from perseid.testing.cluster import VirtualCluster
from perseid.testing.loop import VirtualTimeError, WaitedInVain
from perseid.testing.machines import SMALL_STORE
from perseid.wire.bodies import SubscriptionGroupConfig

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RETRIES = 16


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    with VirtualCluster() as cluster:
        cluster.run(create(cluster, "orders"))
        yield cluster


async def create(cluster: VirtualCluster, *topics: str) -> None:
    async with Admin(cluster.namesrv) as admin:
        for topic in topics:
            await admin.create_topic(topic, 1)


def received() -> asyncio.Queue[ReceivedMessage]:
    return asyncio.Queue()


# ---- clients ----


def test_a_handler_that_fails_is_tried_for_hours_and_then_the_message_is_a_dead_letter(cluster: VirtualCluster) -> None:
    tried: list[int] = []
    given_up = asyncio.Event()

    def fails(message: ReceivedMessage) -> None:
        """A plain function: it would have a thread of its own in real time."""
        assert threading.current_thread() is threading.main_thread()
        tried.append(message.reconsume_times)
        if len(tried) > RETRIES:
            given_up.set()
        raise ValueError("the payment service is down")

    async def main() -> tuple[bytes, int]:
        async with (
            Producer(cluster.namesrv) as producer,
            PushConsumer(cluster.namesrv, "billing", {"orders": "*"}, fails, from_where="first"),
        ):
            began = now_ms()
            await producer.send(Message("orders", b"order 1"))
            await given_up.wait()
            took_ms = now_ms() - began
        async with PullConsumer(cluster.namesrv, "undertaker", from_where="first") as dead:
            dead.assign(await dead.queues("%DLQ%billing"))
            return (await dead.poll(timeout_ms=60_000))[0].body, took_ms

    body, took_ms = cluster.run(main(), limit_s=6 * 3600)
    assert body == b"order 1" and tried == list(range(RETRIES + 1))
    assert 4.5 * HOUR_MS < took_ms < 5.5 * HOUR_MS


def test_a_message_for_the_day_after_tomorrow(cluster: VirtualCluster) -> None:
    """What waits polls its broker all the time, so it waits for the last hour alone: that is quicker."""

    async def main() -> int:
        arrived = received()
        async with Producer(cluster.namesrv) as producer:
            began = now_ms()
            await producer.send(Message("orders", b"pay!", delay_ms=2 * DAY_MS))
        await asyncio.sleep((2 * DAY_MS - HOUR_MS) / 1000)
        async with PushConsumer(cluster.namesrv, "reminders", {"orders": "*"}, arrived.put, from_where="first"):
            await asyncio.wait_for(arrived.get(), 2 * HOUR_MS / 1000)
            return now_ms() - began

    assert 2 * DAY_MS <= cluster.run(main()) < 2 * DAY_MS + 5_000


def test_ordered_messages_stay_in_order_while_one_is_tried_again(cluster: VirtualCluster) -> None:
    async def main() -> list[bytes]:
        handled: list[bytes] = []
        all_there = asyncio.Event()
        failures = 3

        async def handle(message: ReceivedMessage) -> bool:
            nonlocal failures
            if message.body == b"2" and failures:
                failures -= 1
                return False
            handled.append(message.body)
            if len(handled) == 5:
                all_there.set()
            return True

        async with (
            OrderedProducer(cluster.namesrv) as producer,
            PushConsumer(
                cluster.namesrv, "billing", {"orders": "*"}, handle, mode=ConsumeMode.ORDERED, from_where="first"
            ),
        ):
            for number in range(5):
                await producer.send(Message("orders", b"%d" % number), key="customer 7")
            await all_there.wait()
        return handled

    assert cluster.run(main()) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_is_asked_about_until_its_outcome_is_known(cluster: VirtualCluster) -> None:
    async def main() -> tuple[bytes, int]:
        arrived, checks = received(), 0

        def check(message: ReceivedMessage) -> TransactionState:
            nonlocal checks
            checks += 1
            return TransactionState.COMMIT if checks == 3 else TransactionState.UNKNOWN

        async with (
            TransactionProducer(cluster.namesrv, "shop", check) as producer,
            PushConsumer(cluster.namesrv, "billing", {"orders": "*"}, arrived.put, from_where="first"),
        ):
            await producer.send_in_transaction(Message("orders", b"order 1"), lambda half: TransactionState.UNKNOWN)
            return (await arrived.get()).body, checks

    assert cluster.run(main()) == (b"order 1", 3)


def test_a_message_that_was_popped_and_not_acknowledged_comes_again(cluster: VirtualCluster) -> None:
    async def main() -> list[int]:
        async with (
            Producer(cluster.namesrv) as producer,
            PopConsumer(cluster.namesrv, "billing", "orders", invisible_ms=60_000) as consumer,
        ):
            await producer.send(Message("orders", b"order 1"))
            times: list[int] = []
            while len(times) < 2:
                times += [message.reconsume_times for message in await consumer.receive()]
            return times

    assert cluster.run(main()) == [0, 1]


def test_pull_request_and_reply_lite_and_admin(cluster: VirtualCluster) -> None:
    async def main() -> tuple[list[bytes], bytes, list[str]]:
        async with (
            Producer(cluster.namesrv) as producer,
            PullConsumer(cluster.namesrv, "readers", from_where="first") as reader,
            Admin(cluster.namesrv) as admin,
        ):
            await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
            reader.assign(await reader.queues("orders"))
            bodies = [message.body for message in await reader.poll(timeout_ms=HOUR_MS)]

            async def answer(message: ReceivedMessage) -> None:
                await producer.reply(message, b"yes, " + message.body)

            async with PushConsumer(cluster.namesrv, "service", {"questions": "*"}, answer, from_where="first"):
                await admin.create_topic("questions", 1)
                reply = await producer.request(Message("questions", b"customer 7"), timeout_ms=60_000)
            return bodies, reply.body, await admin.user_topics()

    bodies, reply, topics = cluster.run(main())
    assert bodies == [b"1", b"2"] and reply == b"yes, customer 7"
    assert {"orders", "questions"} <= set(topics)


def test_lite_topics() -> None:
    cluster = VirtualCluster(store=replace(SMALL_STORE, enable_lmq=True, enable_multi_dispatch=True))
    group = SubscriptionGroupConfig(group_name="chatters", attributes={"+lite.bind.topic": "chats"})

    async def main() -> bytes:
        async with Admin(cluster.namesrv) as admin:
            await admin.create_topic("chats", 1, attributes={"message.type": "LITE"})
            await admin.create_group(group)
        async with (
            Producer(cluster.namesrv) as producer,
            LiteConsumer(cluster.namesrv, "chatters", "chats") as consumer,
        ):
            await consumer.subscribe("anna", begin=Begin.first())
            await producer.send(Message("chats", b"hello", lite_topic="anna"))
            while True:
                for message in await consumer.receive():
                    return message.body

    with cluster:
        assert cluster.run(main()) == b"hello"


def test_broadcast_offsets_are_kept_in_a_folder_of_this_cluster(cluster: VirtualCluster) -> None:
    async def main() -> bytes:
        arrived = received()
        async with (
            Producer(cluster.namesrv) as producer,
            PushConsumer(
                cluster.namesrv, "screens", {"orders": "*"}, arrived.put, mode=ConsumeMode.BROADCAST, from_where="first"
            ),
        ):
            await producer.send(Message("orders", b"1"))
            return (await arrived.get()).body

    assert cluster.run(main()) == b"1"
    folder = cluster.loop.surroundings.home()
    assert list(folder.glob("offsets/*/screens.json"))
    cluster.close()
    assert not folder.exists()


# ---- time ----


def test_clocks_of_clients_are_virtual_within_a_run_and_outside_of_one(cluster: VirtualCluster) -> None:
    outside = now_ms()

    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began, began_at = now_ms(), loop.time()
        await asyncio.sleep(3600)
        return now_ms() - began, loop.time() - began_at

    took_ms, took_s = cluster.run(main())
    assert took_ms == HOUR_MS and took_s == pytest.approx(3600) and now_ms() - outside >= HOUR_MS
    assert now_ms() == cluster.now and here().simulated
    cluster.close()
    assert not here().simulated and abs(now_ms() - outside) > HOUR_MS


def test_what_a_run_leaves_behind_goes_on_while_time_passes(cluster: VirtualCluster) -> None:
    handled: list[bytes] = []
    consumer = PushConsumer(
        cluster.namesrv, "billing", {"orders": "*"}, lambda message: handled.append(message.body), from_where="first"
    )
    cluster.run(consumer.start())

    async def send() -> None:
        async with Producer(cluster.namesrv) as producer:
            await producer.send(Message("orders", b"later", delay_ms=HOUR_MS))

    cluster.run(send())
    cluster.advance(minutes=59)
    assert handled == []
    cluster.advance(minutes=2)
    assert handled == [b"later"]
    cluster.run(consumer.stop())


def test_a_wait_in_vain_ends_and_says_what_waits(cluster: VirtualCluster) -> None:
    ended: list[str] = []

    async def main() -> None:
        async with PushConsumer(cluster.namesrv, "billing", {"orders": "*"}, ended.append):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("main")

    with pytest.raises(WaitedInVain, match="has not gone on for 600 s of virtual time") as caught:
        cluster.run(main(), limit_s=600)
    assert f"the test: {__file__}" in str(caught.value) and "handle billing 0 and 19 like it" in str(caught.value)
    assert ended == ["main"]
    assert not [task for task in asyncio.all_tasks(cluster.loop) if not task.done()]


def test_many_short_waits_are_none_in_vain(cluster: VirtualCluster) -> None:
    async def main() -> None:
        for _ in range(50):
            await asyncio.sleep(500)

    cluster.run(main(), limit_s=600)


def test_an_endless_loop_ends(cluster: VirtualCluster) -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - the mistake that is to be found
            await asyncio.sleep(0)

    with pytest.raises(WaitedInVain, match="no time has passed: an endless loop"):
        cluster.run(main())


def test_plain_calls_are_refused_within_a_coroutine(cluster: VirtualCluster) -> None:
    async def main() -> None:
        cluster.advance(hours=1)

    with pytest.raises(VirtualTimeError, match="in a coroutine write `await asyncio"):
        cluster.run(main())

    async def nested() -> None:
        cluster.run(asyncio.sleep(1))

    with pytest.raises(VirtualTimeError, match="a coroutine is running"):
        cluster.run(nested())


# ---- the world ----


def test_connections_of_other_places_are_refused(cluster: VirtualCluster) -> None:
    async def main() -> None:
        connections = Connections(lambda connection, command: None)
        await connections.get("db.example.com:5432")

    with pytest.raises(ClientError, match=r"db\.example\.com:5432: in virtual time only the cluster's nodes"):
        cluster.run(main())


async def serve() -> None:
    await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


async def spawn() -> None:
    await asyncio.create_subprocess_exec("true")


async def dial_tls() -> None:
    await asyncio.open_connection("192.0.2.11", 9876, ssl=True)


async def from_a_thread() -> None:
    loop, errors = asyncio.get_running_loop(), []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(lambda: None)
        except VirtualTimeError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    raise errors[0]


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (serve, "a server of your own: there is none in virtual time"),
        (spawn, "a subprocess: there is none in virtual time"),
        (dial_tls, "TLS: there is none in virtual time"),
        (from_a_thread, "virtual time has one thread"),
    ],
)
def test_what_waits_for_the_real_world_is_refused(cluster: VirtualCluster, does, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(VirtualTimeError, match=says):
        cluster.run(does())


def test_blocking_clients_are_refused(cluster: VirtualCluster) -> None:
    with pytest.raises(ClientError, match="in virtual time use the asyncio ones"):
        BlockingProducer(cluster.namesrv).start()


def test_a_function_for_a_thread_runs_in_this_one_and_its_error_is_raised(cluster: VirtualCluster) -> None:
    async def main() -> str:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert cluster.run(main()) == threading.current_thread().name


def test_a_signal_reaches_the_application_and_not_the_process(cluster: VirtualCluster) -> None:
    async def main() -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        cluster.signal(signal.SIGTERM)
        await stopped.wait()

    before = signal.getsignal(signal.SIGTERM)
    cluster.run(main())
    assert signal.getsignal(signal.SIGTERM) is before
    cluster.loop.remove_signal_handler(signal.SIGTERM)
    with pytest.raises(VirtualTimeError, match="nothing on this event loop handles it"):
        cluster.signal(signal.SIGTERM)


def test_a_task_that_an_application_left_running_ends_with_the_cluster(cluster: VirtualCluster) -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        cluster.tasks = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    cluster.run(main())
    cluster.close()
    assert ended == ["cancelled"]
    with pytest.raises(VirtualTimeError, match="was closed"):
        cluster.run(forever())


def test_a_service_drains_when_it_is_told_to_stop(cluster: VirtualCluster) -> None:
    handled: list[bytes] = []

    async def slow(message: ReceivedMessage) -> None:
        await asyncio.sleep(5)
        handled.append(message.body)

    async def main() -> int:
        consumer = PushConsumer(cluster.namesrv, "billing", {"orders": "*"}, slow, from_where="first")
        asyncio.get_running_loop().call_later(3, cluster.signal, signal.SIGTERM)
        async with Producer(cluster.namesrv) as producer:
            await producer.send(Message("orders", b"order 1"))
        return await run_until_signal(consumer)

    assert cluster.run(main()) == 0 and handled == [b"order 1"]
