"""Our clients on a Java 5.5.0 cluster: what they send is taken, what they promise holds there too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
from broker_settings import set_for_a_while

from perseid.client import (
    Admin,
    ConsumeMode,
    Consumer,
    Json,
    Message,
    NoRoute,
    OrderedProducer,
    PopConsumer,
    PopOptions,
    PoppedMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
    SendStatus,
    ServerRefused,
    Sql,
)
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.client.pulling import Offsets, Puller
from perseid.client.subscription import Subscription

pytestmark = pytest.mark.interop


class Inbox:
    """A handler that keeps what it gets; `fails(message)` says which ones fail."""

    def __init__(self, fails: Callable[[ReceivedMessage], bool] = lambda message: False) -> None:
        self.messages: list[ReceivedMessage] = []
        self.failed: list[ReceivedMessage] = []
        self._fails = fails
        self._arrived = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        if self._fails(message):
            self.failed.append(message)
            self._arrived.set()
            raise RetryLater("as the test says", delay_level=1)
        self.messages.append(message)
        self._arrived.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def test_all_kinds_of_sends_are_stored_and_read_back(java_cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        async with Admin(java_cluster.namesrv) as admin, Producer(java_cluster.namesrv) as producer:
            await admin.create_topic(name, 2)
            one = await producer.send(Message(name, b"one", tag="a", keys=["k1", "k2"], properties={"p": "ü"}, flag=3))
            large = await producer.send(Message(name, b"z" * 9000))
            batch = await producer.send_batch([Message(name, b"b%d" % i, keys=f"b{i}") for i in range(4)], key="k")
            await producer.send_oneway(Message(name, b"thrown"))
            assert {r.status for r in (one, large, *batch)} == {SendStatus.SEND_OK}
            assert [r.queue_offset - batch[0].queue_offset for r in batch] == [0, 1, 2, 3]
            async with PullConsumer(java_cluster.namesrv, f"g_{name}", from_where="first") as consumer:
                queues = await consumer.queues(name)
                consumer.assign(queues)
                got: dict[bytes, ReceivedMessage] = {}
                while len(got) < 7:
                    got |= {m.body: m for m in await consumer.poll(timeout_ms=20_000)}
                await consumer.commit()
                assert sum([await consumer.committed(q) or 0 for q in queues]) == 7
            first = got[b"one"]
            assert (first.msg_id, first.offset_msg_id, first.flag) == (one.msg_id, one.offset_msg_id, 3)
            assert (first.tag, first.keys, first.properties["p"]) == ("a", ["k1", "k2"], "ü")
            assert b"z" * 9000 in got, "inflated again"
            assert [got[b"b%d" % i].offset_msg_id for i in range(4)] == [r.offset_msg_id for r in batch]
            assert (await admin.view_message(one.offset_msg_id)).body == b"one"
            found = await admin.query_messages(name, "b2")
            assert [m.body for m in found] == [b"b2"]

    rig.run(test())


def test_sends_that_linger_and_a_loop_over_messages(java_cluster: rig.Cluster, name: str) -> None:
    """Concurrent sends leave as batches; a serializer's property and body come back; the loop commits what is done."""
    numbers = Json(int)

    async def test() -> None:
        async with Admin(java_cluster.namesrv) as admin:
            await admin.create_topic(name, 2)
        async with Producer(java_cluster.namesrv, linger_ms=5) as producer:
            sends = (producer.send(numbers.message(name, number, keys=f"k{number}")) for number in range(50))
            results = await asyncio.gather(*sends)
            assert {result.status for result in results} == {SendStatus.SEND_OK} and producer.metrics.batches < 50
        got: dict[int, ReceivedMessage] = {}
        async with Consumer(java_cluster.namesrv, f"g_{name}", {name: "*"}, from_where="first") as consumer:
            async for message in consumer:
                got[message.decode(numbers)] = message
                if len(got) == 50:
                    consumer.done(message)
                    break
        assert {got[number].offset_msg_id for number in range(50)} == {result.offset_msg_id for result in results}
        assert {message.properties["contentType"] for message in got.values()} == {"application/json"}
        async with PullConsumer(java_cluster.namesrv, f"g_{name}") as consumer:
            assert sum([await consumer.committed(queue) or 0 for queue in await consumer.queues(name)]) == 50

    rig.run(test())


def test_ordered_streams_survive_a_killed_broker(workshop: Path, name: str) -> None:
    cluster = rig.cluster(name, "java", "java", workshop)
    try:
        _stream_over_a_kill(cluster, f"t_{name}")
    finally:
        cluster.stop()


def _stream_over_a_kill(cluster: rig.Cluster, topic: str) -> None:
    count, keys = 20_000, 50

    async def test() -> None:
        async with Admin(cluster.namesrv) as admin:
            await admin.create_topic(topic, 4)
        async with OrderedProducer(cluster.namesrv) as producer:
            restarted: asyncio.Future[None] | None = None
            for number in range(count):
                await producer.put(Message(topic, b"%06d" % number), f"key{number % keys}")
                if number == count // 2:
                    restarted = asyncio.ensure_future(asyncio.to_thread(_restart, cluster))
            await producer.flush()
            assert restarted is not None
            await restarted
            assert producer.metrics.sent == count
            assert producer.metrics.outages >= 1
        await asyncio.to_thread(rig.until, "all dispatched", lambda: _stored(cluster, topic) >= count, 60)
        async with PullConsumer(cluster.namesrv, "check") as consumer:
            seen: set[int] = set()
            for queue in await consumer.queues(topic):
                last: dict[int, int] = {}
                async for part in consumer.read(queue, 0, await consumer.max_offset(queue)):
                    for message in part:
                        number = int(message.body)
                        if number not in seen:
                            assert last.get(number % keys, -1) < number, "a message was overtaken"
                            last[number % keys] = number
                            seen.add(number)
            assert len(seen) == count, "an acknowledged message is missing"

    rig.run(test())


def _restart(cluster: rig.Cluster) -> None:
    cluster.broker_process.kill()
    cluster.broker_process.start()


def _stored(cluster: rig.Cluster, topic: str) -> int:
    """Messages that can be read. A Java name server may forget a restarted broker until it registers again."""
    with BlockingAdmin(cluster.namesrv) as admin:
        try:
            return sum(row.max_offset for row in admin.topic_stats(topic))
        except NoRoute:
            return 0


def test_a_group_shares_retries_and_commits(java_cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        namesrv, group = java_cluster.namesrv, f"g_{name}"
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, 4)
            for number in range(40):
                await producer.send(Message(name, b"%03d" % number, tag="ab"[number % 2]))
            inbox = Inbox(lambda m: m.body == b"006" and m.reconsume_times < 2)
            one = PushConsumer(namesrv, group, {name: "a"}, inbox, from_where="first")
            two = PushConsumer(namesrv, group, {name: "a"}, inbox, from_where="first")
            async with one:
                await inbox.until(lambda: len(set(inbox.bodies)) == 20)
                assert set(inbox.bodies) == {b"%03d" % n for n in range(0, 40, 2)}
                assert [m.reconsume_times for m in inbox.failed] == [0, 1]
                again = next(m for m in inbox.messages if m.body == b"006")
                assert (again.topic, again.queue.topic, again.reconsume_times) == (name, f"%RETRY%{group}", 2)
                async with two:
                    fresh = [b"new%d" % n for n in range(40)]
                    while len([q for q in two.queues if q.topic == name]) != 2:
                        await producer.send(Message(name, b"probe", tag="b"))
                    for body in fresh:
                        await producer.send(Message(name, body, tag="a"))
                    await inbox.until(lambda: set(fresh) <= set(inbox.bodies))
                    assert two.metrics.succeeded > 0
                    connection = await admin.consumer_connections(group)
                    assert {c.client_id for c in connection.connection_set} == {
                        one.session.client_id,
                        two.session.client_id,
                    }
            assert sum(row.lag for row in await admin.consume_stats(group, name)) == 0
            with pytest.raises(ServerRefused, match="206"):
                await admin.consumer_connections(group)

    rig.run(test())


def test_dead_letters_of_both_modes(java_cluster: rig.Cluster, name: str) -> None:
    async def test(mode: ConsumeMode) -> None:
        namesrv, group = java_cluster.namesrv, f"g{int(mode.is_ordered)}_{name}"
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, 1)
            for body in (b"fine", b"bad", b"good"):
                await producer.send(Message(name, body, keys="k"))
            inbox = Inbox(lambda m: m.body == b"bad")
            options = PushOptions(max_reconsume_times=1, suspend_ms=10)
            async with (
                PushConsumer(
                    namesrv, group, {name: "*"}, inbox, from_where="first", mode=mode, options=options,
                ),
                PullConsumer(namesrv, f"dlq_{group}", from_where="first") as letters,
            ):  # fmt: skip
                await inbox.until(lambda: len(inbox.failed) == 2 and len(inbox.messages) == 2)
                queues = await _queues(letters, f"%DLQ%{group}")
                letters.assign(queues)
                (letter,) = await letters.poll(timeout_ms=60_000)
            assert (letter.body, letter.keys, letter.properties["RETRY_TOPIC"]) == (b"bad", ["k"], name)
            if mode.is_ordered:
                assert inbox.bodies == [b"fine", b"good"]
        async with Admin(namesrv) as admin:
            await admin.delete_topic(name)

    rig.run(test(ConsumeMode.CONCURRENT))
    rig.run(test(ConsumeMode.ORDERED))


async def _queues(consumer: PullConsumer, topic: str) -> list[Any]:
    """The queues of a topic that a broker is about to make."""
    while True:
        try:
            return await consumer.queues(topic)
        except NoRoute:
            await consumer.session.heartbeat()


def test_ordered_consumers_keep_the_order_while_members_come_and_go(java_cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        namesrv, group = java_cluster.namesrv, f"g_{name}"
        async with Admin(namesrv) as admin, OrderedProducer(namesrv) as producer:
            await admin.create_topic(name, 4)
            inbox = Inbox()

            def consumer() -> PushConsumer:
                return PushConsumer(namesrv, group, {name: "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED)

            async with consumer():
                for number in range(3000):
                    await producer.put(Message(name, b"%05d" % number), str(number % 20))
                await inbox.until(lambda: len(inbox.messages) > 1000)
                async with consumer() as two:
                    for number in range(3000, 6000):
                        await producer.put(Message(name, b"%05d" % number), str(number % 20))
                    await producer.flush()
                    await inbox.until(lambda: len(set(inbox.bodies)) > 5000)
                    assert two.queues or len(inbox.messages) >= 6000
                await inbox.until(lambda: len(set(inbox.bodies)) == 6000)
            for queue in range(4):
                firsts = dict.fromkeys(m.queue_offset for m in inbox.messages if m.queue.queue_id == queue)
                assert list(firsts) == sorted(firsts), "a message was handled before one that is older"

    rig.run(test())


def test_broadcasting_and_a_reset_by_an_operator(java_cluster: rig.Cluster, name: str, tmp_path: Path) -> None:
    async def test() -> None:
        namesrv, group = java_cluster.namesrv, f"g_{name}"
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, 2)
            for number in range(10):
                await producer.send(Message(name, b"%d" % number))
            for folder in ("one", "two"):
                inbox = Inbox()
                options = PushOptions(offsets_folder=tmp_path / folder)
                async with PushConsumer(
                    namesrv, f"b_{name}", {name: "*"}, inbox, from_where="first",
                    mode=ConsumeMode.BROADCAST, options=options,
                ):  # fmt: skip
                    await inbox.until(lambda i=inbox: len(i.messages) == 10)
            inbox = Inbox()
            async with PushConsumer(namesrv, group, {name: "*"}, inbox, from_where="first") as push:
                await inbox.until(lambda: len(inbox.messages) == 10)
                await push.assignment.persist()
                await admin.reset_offset(group, name, 0)
                await producer.send(Message(name, b"wake"))
                await producer.send(Message(name, b"wake"))
                await inbox.until(lambda: len(inbox.messages) >= 22)
            assert sorted(set(inbox.bodies)) == sorted({b"%d" % n for n in range(10)} | {b"wake"})

    rig.run(test())


def test_the_first_offsets_of_a_group_are_all_kept(java_cluster: rig.Cluster, name: str) -> None:
    """Java's broker may lose one of two first ones that come at once."""

    async def kept(producer: Producer, group: str) -> set[int | None]:
        offsets, queues = Offsets(producer.session), (await producer.session.routes.get(name)).write_queues()
        everything = Subscription.parse(name, "*", 1)
        await Puller(producer.session, group).pull(queues[0], 0, everything, max_messages=1, hold_ms=0)  # makes it
        said = await offsets.commit_all(group, dict.fromkeys(queues, 5))
        assert said == dict.fromkeys(queues)
        return {await offsets.committed(group, queue, zero_if_young=False) for queue in queues}

    async def run() -> None:
        async with Producer(java_cluster.namesrv, f"p_{name}") as producer:
            for number in range(300):
                assert await kept(producer, f"{number}_{name}") == {5}

    with BlockingAdmin(java_cluster.namesrv) as admin:
        admin.create_topic(name, 16)
    asyncio.run(run())


@pytest.fixture
def sql_on(java_cluster: rig.Cluster) -> Iterator[None]:
    """The broker filters by properties."""
    with set_for_a_while(java_cluster, "enablePropertyFilter", "true", "false"):
        yield


@pytest.mark.usefixtures("sql_on")
def test_sql_is_checked_before_a_consumer_starts(java_cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        namesrv = java_cluster.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, 2)
            for number in range(10):
                await producer.send(Message(name, b"%d" % number, properties={"price": str(number)}))
            inbox = Inbox()
            async with PushConsumer(namesrv, f"g_{name}", {name: Sql("price > 6")}, inbox, from_where="first"):
                await inbox.until(lambda: len(inbox.messages) == 3)
            with pytest.raises(Exception, match="does not take the expression"):
                await PushConsumer(namesrv, f"g_{name}", {name: Sql("price > ")}, inbox).start()

    rig.run(test())


def test_administration(java_cluster: rig.Cluster, name: str) -> None:
    with BlockingAdmin(java_cluster.namesrv) as admin, BlockingProducer(java_cluster.namesrv) as producer:
        cluster = admin.cluster_info()
        assert cluster.brokers[java_cluster.broker_name] == {0: java_cluster.broker}
        admin.create_topic(name, 3)
        assert name in admin.topic_list()
        producer.send(Message(name, b"x"))
        rig.until("the dispatched message", lambda: sum(row.max_offset for row in admin.topic_stats(name)) == 1)
        assert admin.broker_runtime_info(java_cluster.broker)["brokerVersionDesc"] == "V5_5_0"
        with BlockingPullConsumer(java_cluster.namesrv, from_where="first") as consumer:
            consumer.assign(consumer.queues(name))
            assert [m.body for m in consumer.poll(timeout_ms=10_000)] == [b"x"]
        admin.delete_topic(name)
        with pytest.raises(NoRoute):
            admin.topic_route(name)


def test_mqadmin_sees_our_consumer(java_cluster: rig.Cluster, java_agent: rig.Agent, name: str) -> None:
    client = rig.Client(java_agent, java_cluster)
    group = f"g_{name}"

    async def test() -> None:
        async with Admin(java_cluster.namesrv) as admin, Producer(java_cluster.namesrv) as producer:
            await admin.create_topic(name, 2)
            inbox = Inbox()
            async with PushConsumer(java_cluster.namesrv, group, {name: "*"}, inbox, from_where="first") as push:
                result = await producer.send(Message(name, b"x"))
                await inbox.until(lambda: inbox.messages)
                status = await asyncio.to_thread(
                    client.mqadmin, "consumerStatus", "-g", group, "-i", push.session.client_id, "-s"
                )
                assert "CONSUME_PASSIVELY" in status
                assert name in status
                direct = await asyncio.to_thread(
                    client.mqadmin, "queryMsgById", "-i", result.offset_msg_id,
                    "-g", group, "-d", push.session.client_id, "-t", name,
                )  # fmt: skip
                assert "CR_SUCCESS" in direct
                await inbox.until(lambda: len(inbox.messages) == 2)

    try:
        rig.run(test())
    finally:
        client.close()


def test_the_consumer_that_pops(java_cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        namesrv = java_cluster.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, 2)
            for number in range(8):
                await producer.send(Message(name, b"m%d" % number))

        async def gather(consumer: PopConsumer, count: int) -> list[PoppedMessage]:
            got: list[PoppedMessage] = []
            while len(got) < count:
                got += await consumer.receive()
            return got

        async with PopConsumer(namesrv, f"g_{name}", name, invisible_ms=6_000) as consumer:
            got = await gather(consumer, 8)
            assert sorted(m.body for m in got) == [b"m%d" % n for n in range(8)]
            await consumer.ack(got[0])
            await consumer.ack_all(got[1:4])
            kept = await consumer.change_invisible(got[4], 60_000)
            again = await gather(consumer, 3)
            assert sorted(m.body for m in again) == sorted(m.body for m in got[5:])
            assert {(m.reconsume_times, m.topic) for m in again} == {(1, name)}
            await consumer.ack_all([*again, kept])
        in_order = PopOptions(ordered=True)
        async with PopConsumer(namesrv, f"o_{name}", name, invisible_ms=60_000, options=in_order) as consumer:
            one = await consumer.receive(1)
            for message in one:
                await consumer.ack(message)
            rest = await gather(consumer, 8 - len(one))
            assert sorted(m.body for m in (*one, *rest)) == [b"m%d" % n for n in range(8)]

    asyncio.run(test())
