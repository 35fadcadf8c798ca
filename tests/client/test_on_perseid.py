"""The clients on our own broker: real sockets, the real store."""

import asyncio
import time
from pathlib import Path

import pytest

from perseid.broker.config import BrokerConfig
from perseid.client import (
    Admin,
    ConsumeMode,
    InvalidMessage,
    Message,
    MessageQueue,
    OrderedProducer,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
    SendStatus,
    ServerRefused,
    TransactionProducer,
    TransactionState,
)
from perseid.client.blocking import BlockingProducer
from perseid.testing.embedded import EmbeddedBroker

from .fake import run


def test_every_kind_of_send_is_read_back(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic("t", 2)
            one = await producer.send(Message("t", b"one", tag="a", keys="k", properties={"p": "v"}))
            batch = await producer.send_batch([Message("t", b"b%d" % i) for i in range(3)])
            large = await producer.send(Message("t", b"z" * 9000))
            assert {r.status for r in (one, large, *batch)} == {SendStatus.SEND_OK}
            async with PullConsumer(namesrv, "g", from_where="first") as consumer:
                consumer.assign(await consumer.queues("t"))
                got: dict[bytes, ReceivedMessage] = {}
                while len(got) < 5:
                    got |= {m.body: m for m in await consumer.poll()}
                await consumer.commit()
            assert got.keys() == {b"one", b"b0", b"b1", b"b2", b"z" * 9000}
            assert (got[b"one"].msg_id, got[b"one"].offset_msg_id) == (one.msg_id, one.offset_msg_id)
            assert (got[b"one"].tag, got[b"one"].keys, got[b"one"].properties["p"]) == ("a", ["k"], "v")
            assert (await admin.view_message(one.offset_msg_id)).body == b"one"

    run(test())


def test_an_ordered_stream_survives_a_restart_of_the_broker(perseid_broker: EmbeddedBroker) -> None:
    count, keys = 4000, 20

    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Admin(namesrv) as admin, OrderedProducer(namesrv) as producer:
            await admin.create_topic("t", 4)
            for number in range(count):
                await producer.put(Message("t", b"%05d" % number), str(number % keys))
                if number == count // 2:
                    await asyncio.to_thread(perseid_broker.stop)
                    restarting = asyncio.ensure_future(asyncio.to_thread(perseid_broker.start))
            await producer.flush()
            await restarting
            async with PullConsumer(namesrv, "check") as consumer:
                seen: dict[int, None] = {}
                for queue in await consumer.queues("t"):
                    async for part in consumer.read(queue, 0, await consumer.max_offset(queue)):
                        seen |= dict.fromkeys(int(m.body) for m in part)
            assert set(seen) == set(range(count))
            for key in range(keys):
                firsts = [number for number in seen if number % keys == key]
                assert firsts == sorted(firsts), "a message was overtaken"

    run(test())


def test_a_group_consumes_retries_and_leaves(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"again" and message.reconsume_times == 0:
                raise RetryLater(delay_level=1)
            got.put_nowait(message)

        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic("t", 2)
            for body in (b"one", b"again", b"two"):
                await producer.send(Message("t", body))
            for mode in (ConsumeMode.CONCURRENT, ConsumeMode.ORDERED):
                group = f"g{mode.value}"
                async with PushConsumer(namesrv, group, {"t": "*"}, handle, from_where="first", mode=mode):
                    messages = [await got.get() for _ in range(3)]
                assert {m.body: m.reconsume_times for m in messages} == {b"one": 0, b"two": 0, b"again": 1}

    run(test())


def test_the_blocking_face(perseid_broker: EmbeddedBroker) -> None:
    with BlockingProducer(perseid_broker.namesrv) as producer:
        assert producer.send(Message("new", b"x")).status is SendStatus.SEND_OK


def test_messages_for_a_time(tmp_path: Path) -> None:
    async def test(namesrv: str) -> None:
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic("t", 1)
            start = time.time() * 1000
            soon = await producer.send(Message("t", b"soon", delay_ms=1_200))
            gone = await producer.send(Message("t", b"gone", deliver_at_ms=int(start) + 3_000))
            assert await producer.recall("t", gone.recall_handle) == gone.msg_id
            last = await producer.send(Message("t", b"last", deliver_at_ms=int(start) + 3_500))
            assert soon.recall_handle and last.recall_handle != gone.recall_handle
            async with PullConsumer(namesrv, "g", from_where="first") as consumer:
                consumer.assign(await consumer.queues("t"))
                got: list[ReceivedMessage] = []
                while len(got) < 2:
                    got += await consumer.poll()
            assert [m.body for m in got] == [b"soon", b"last"]
            assert [m.msg_id for m in got] == [soon.msg_id, last.msg_id]
            assert got[0].store_timestamp - start >= 1_150 and got[1].store_timestamp - start >= 3_450
            with pytest.raises(ServerRefused) as refused:
                await producer.recall("t", last.recall_handle)
            assert refused.value.code == 604
            with pytest.raises(InvalidMessage, match="recall handle"):
                await producer.recall("t", "nonsense")
            with pytest.raises(ServerRefused) as refused:
                await producer.send(Message("t", b"x", delay_ms=4 * 86_400_000))
            assert refused.value.code == 13

    with EmbeddedBroker(tmp_path, broker=BrokerConfig(broker_name="e", recall_message_enable=True)) as broker:
        run(test(broker.namesrv))


def test_messages_with_a_priority(perseid_broker: EmbeddedBroker) -> None:
    namesrv = perseid_broker.namesrv
    urgent = Message("t", b"urgent", priority=9)

    async def test() -> None:
        async with (
            Admin(namesrv) as admin, Producer(namesrv) as producer, OrderedProducer(namesrv) as ordered,
            TransactionProducer(namesrv, "p", lambda half: TransactionState.COMMIT) as transactions,
        ):  # fmt: skip
            await admin.create_topic("t", 4, attributes={"message.type": "PRIORITY"})
            assert (await producer.send(Message("t", b"usual", priority=1))).queue.queue_id == 1
            assert (await producer.send(urgent)).queue == MessageQueue("t", "embedded", 3)
            async with PopConsumer(namesrv, "g", "t") as popper:
                assert [m.body for m in await popper.receive()] == [b"urgent", b"usual"]
            for send in (
                lambda: producer.send(urgent, key="k"),
                lambda: producer.send_oneway(urgent, key="k"),
                lambda: producer.send_batch([urgent]),
                lambda: ordered.send(urgent, "k"),
                lambda: transactions.begin(urgent),
            ):
                with pytest.raises(InvalidMessage, match=r"priority=9: a message .* can't have one"):
                    await send()

    run(test())


@pytest.mark.parametrize(
    "times", [{"delay_ms": 5, "delay_level": 1}, {"delay_ms": 5, "deliver_at_ms": 7}, {"delay_ms": -1}]
)
def test_times_that_no_broker_takes(times: dict[str, int]) -> None:
    with pytest.raises(InvalidMessage):
        Message("t", b"x", **times).check()  # type: ignore[arg-type]
