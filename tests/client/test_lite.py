"""The consumer of lite topics, on our own broker: real sockets, the real store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.client import (
    Admin,
    Begin,
    ClientError,
    ConnectFailed,
    InvalidMessage,
    LiteConsumer,
    Message,
    MessageQueue,
    NotStarted,
    PopConsumer,
    PoppedMessage,
    Producer,
    ServerRefused,
    Session,
)
from perseid.client.blocking import BlockingLiteConsumer
from perseid.client.producer import _by_lite_topic
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker
from perseid.wire.bodies import SubscriptionGroupConfig
from perseid.wire.lite_sharding import place_of

from .fake import run

PARENT, GROUP = "chats", "servers"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """With lite topics."""
    store = replace(SMALL_STORE, enable_lmq=True, enable_multi_dispatch=True)
    with EmbeddedBroker(tmp_path / "lite", store=store) as made:
        yield made


async def prepare(namesrv: str, group: str = GROUP, *, consume: bool = True, **attributes: str) -> None:
    given = {"+lite.bind.topic": PARENT} | {f"+{name.replace('_', '.')}": said for name, said in attributes.items()}
    async with Admin(namesrv) as admin:
        await admin.create_topic(PARENT, 2, attributes={"message.type": "LITE"})
        await admin.create_group(SubscriptionGroupConfig(group_name=group, attributes=given, consume_enable=consume))


async def stock(namesrv: str, *sent: str) -> None:
    """`a0` goes to the lite topic a."""
    async with Producer(namesrv) as producer:
        for body in sent:
            await producer.send(Message(PARENT, body.encode(), lite_topic=body[0]))


@asynccontextmanager
async def reading(namesrv: str, *names: str, **options: Any) -> Any:
    """A consumer that has subscribed, from the first message on."""
    async with LiteConsumer(namesrv, options.pop("group", GROUP), PARENT, **options) as consumer:
        if names:
            await consumer.subscribe(*names, begin=Begin.first())
        yield consumer


async def gather(consumer: LiteConsumer, count: int) -> list[PoppedMessage]:
    got: list[PoppedMessage] = []
    while len(got) < count:
        got += await consumer.receive()
    return got


def said(messages: list[PoppedMessage]) -> list[tuple[str | None, bytes, int]]:
    return [(m.lite_topic, m.body, m.reconsume_times) for m in messages]


def test_each_lite_topic_is_read_in_its_order(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv)
        await stock(broker.namesrv, "a0", "b0", "a1", "c0", "a2")
        async with (
            reading(broker.namesrv, "a", "b", invisible_ms=500) as forgetful,
            reading(broker.namesrv, "a", "b", invisible_ms=60_000) as consumer,
        ):
            assert consumer.lite_topics == ["a", "b"]
            got = sorted(said(await forgetful.receive()))
            assert got == [("a", b"a0", 0), ("a", b"a1", 0), ("a", b"a2", 0), ("b", b"b0", 0)]
            again = {m.body: m for m in await gather(consumer, 4)}
            await consumer.ack(again[b"a0"])
            await consumer.ack_all([again[b"b0"]])
            kept = [await consumer.change_invisible(again[body], 500) for body in (b"a1", b"a2")]
            assert kept[0].lite_topic == "a" and kept[0].visible_at < again[b"a0"].visible_at
            rest = await gather(consumer, 2)
            assert said(rest) == [("a", b"a1", 2), ("a", b"a2", 2)]
            await consumer.ack_all(rest)
            assert await consumer.receive(timeout_ms=500) == []

    run(test())


@pytest.mark.parametrize(
    ("begin", "first"), [(Begin.first(), b"a0"), (Begin.offset(4), b"a4"), (Begin.next(), b"a9"), (None, b"a0")]
)
def test_where_a_group_begins(broker: EmbeddedBroker, begin: Any, first: bytes) -> None:
    async def test() -> None:
        await prepare(broker.namesrv)
        await stock(broker.namesrv, *(f"a{n}" for n in range(5)))
        async with LiteConsumer(broker.namesrv, GROUP, PARENT) as consumer:
            await consumer.subscribe("a", begin=begin)
            if first == b"a9":
                assert await consumer.receive(timeout_ms=300) == []
                await stock(broker.namesrv, "a9")
            got = await gather(consumer, 1)
            assert got[0].body == first
            await consumer.ack_all(got)
            await consumer.subscribe("a", begin=Begin.back(1))
            assert [m.body for m in await gather(consumer, 1)] == [got[-1].body]

    run(test())


def test_what_is_read_changes_and_outlives_a_restart_of_the_broker(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv)
        async with reading(broker.namesrv, "a", "b") as consumer:
            await consumer.unsubscribe("b")
            await stock(broker.namesrv, "a0", "b0")
            got = await gather(consumer, 1)
            assert said(got) == [("a", b"a0", 0)] and await consumer.receive(timeout_ms=300) == []
            await consumer.ack_all(got)
            broker.stop()
            broker.start()
            await stock(broker.namesrv, "a1", "b1")
            got = []
            while not got:
                try:
                    got = await consumer.receive(timeout_ms=2_000)
                except ClientError:
                    continue  # the pop that broke off
            assert said(got) == [("a", b"a1", 0)], "the broker was told again"

    run(test())


def test_a_broker_that_is_not_there_is_told_later(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    change, away = LiteConsumer._change, True

    async def changes(self: LiteConsumer, name: str, *args: Any) -> None:
        if away:
            raise ConnectFailed(name, "away")
        await change(self, name, *args)

    monkeypatch.setattr(LiteConsumer, "_change", changes)

    async def test() -> None:
        nonlocal away
        await prepare(broker.namesrv)
        await stock(broker.namesrv, "a0", "b0")
        async with LiteConsumer(broker.namesrv, GROUP, PARENT, ["a"]) as consumer:
            await consumer.subscribe("b")
            with pytest.raises(ConnectFailed):
                await consumer.subscribe("c", begin=Begin.first())
            with pytest.raises(ConnectFailed):
                await consumer.receive(timeout_ms=500)
            assert consumer.lite_topics == ["a", "b"]
            away = False
            assert sorted(said(await gather(consumer, 2))) == [("a", b"a0", 0), ("b", b"b0", 0)]
            away = True
            await consumer.unsubscribe("a", "b")
            away = False
            assert await consumer.receive(timeout_ms=300) == []
            await stock(broker.namesrv, "a1")
            assert await consumer.receive(timeout_ms=300) == [] and consumer.lite_topics == []

    run(test())


def test_a_wildcard_group_reads_all(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv, "all", lite_sub_wildcard="true")
        async with LiteConsumer(broker.namesrv, "all", PARENT, None) as consumer:
            assert consumer.lite_topics is None
            await stock(broker.namesrv, "x0", "y0")
            assert sorted(said(await gather(consumer, 2))) == [("x", b"x0", 0), ("y", b"y0", 0)]
            with pytest.raises(ClientError, match="reads all lite topics"):
                await consumer.subscribe("x")

    run(test())


def test_an_exclusive_group_has_one_reader_of_a_lite_topic(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv, "alone", lite_sub_model="Exclusive")
        session = Session(broker.namesrv)
        async with (
            reading(broker.namesrv, "a", "b", group="alone", session=session) as first,
            reading(broker.namesrv, "a", group="alone") as second,
        ):
            while "a" in (first.lite_topics or ()):
                await first.receive(timeout_ms=100)
            await stock(broker.namesrv, "a0", "b0")
            assert said(await gather(second, 1)) == [("a", b"a0", 0)]
            assert said(await gather(first, 1)) == [("b", b"b0", 0)] and first.lite_topics == ["b"]

    run(test())


def test_without_asyncio(broker: EmbeddedBroker) -> None:
    run(prepare(broker.namesrv))
    with BlockingLiteConsumer(broker.namesrv, GROUP, PARENT) as consumer:
        consumer.subscribe("a", "b")
        run(stock(broker.namesrv, "a0"))
        (got,) = consumer.receive()
        consumer.ack(got)
        consumer.unsubscribe("a")
        run(stock(broker.namesrv, "a1"))
        assert got.body == b"a0" and consumer.receive(timeout_ms=300) == []


def test_a_pop_of_the_parent_is_no_pop_of_lite_topics(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv)
        await stock(broker.namesrv, "a0")
        async with PopConsumer(broker.namesrv, "g", PARENT) as consumer:
            (got,) = await consumer.receive()
            assert got.lite_topic is None
            await consumer.ack(got)

    run(test())


def test_what_is_refused(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        await prepare(broker.namesrv)
        await prepare(broker.namesrv, "closed", consume=False)
        with pytest.raises(ClientError, match="give a list"):
            LiteConsumer(broker.namesrv, GROUP, PARENT, "a")
        with pytest.raises(NotStarted):
            await LiteConsumer(broker.namesrv, GROUP, PARENT).subscribe("a")
        with pytest.raises(ServerRefused, match="not allowed to consume"):
            async with LiteConsumer(broker.namesrv, "closed", PARENT, ["a"]):
                pass
        async with reading(broker.namesrv) as consumer:
            with pytest.raises(ClientError, match="at least one name"):
                await consumer.subscribe()
            with pytest.raises(ClientError, match="none that is empty"):
                await consumer.subscribe("a", "")
            assert consumer.lite_topics == []
        async with Producer(broker.namesrv) as producer:
            with pytest.raises(InvalidMessage, match="can't be batched"):
                await producer.send_batch([Message(PARENT, b"x", lite_topic="a")])
            with pytest.raises(InvalidMessage, match="lite_topic="):
                await producer.send(Message(PARENT, b"x", properties={"__LITE_TOPIC": "a"}))

    run(test())


def test_a_message_goes_where_the_brokers_look_for_it() -> None:
    queues = [MessageQueue(PARENT, name, number) for name in "abc" for number in range(3)]
    for number in range(50):
        select = _by_lite_topic(Message(PARENT, b"x", lite_topic=f"room-{number}"))
        assert select is not None
        assert select(queues).broker_name == place_of(f"room-{number}", [queue.broker_name for queue in queues])
    assert _by_lite_topic(Message(PARENT, b"x")) is None
