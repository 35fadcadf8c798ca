"""The clients on a static topic of two brokers of ours, whose logical queues are moved while they are at work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.badinput.rig import Peer
from tests.broker.static_cluster import TOPIC, Statics
from typer.testing import CliRunner

from perseid.broker.config import BrokerConfig
from perseid.cli import topics
from perseid.client import (
    Admin,
    ConsumeMode,
    Message,
    MessageQueue,
    OrderedProducer,
    Producer,
    PullConsumer,
    PullOptions,
    PushConsumer,
    ReceivedMessage,
)
from perseid.net.driver import Driver
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.command import Command

from .fake import run

MOCK = "__syslo__global__"
LAST = b"last"
AFTER = 100
"""Messages before the first move, and behind the last one."""
HOLD_MS = 500
"""Of a pull that is at the old leader when a queue moves: it ends there."""


class Second(EmbeddedBroker):
    """A broker that registers with the first one's name server, too."""

    def __init__(self, first: EmbeddedBroker, data: Path) -> None:
        super().__init__(data, broker=BrokerConfig(broker_name="b", broker_cluster_name="C"))
        self._first = first

    def _build(self, *sockets: Any) -> tuple[Any, list[Driver]]:
        node, drivers = super()._build(*sockets)
        settings = node.parts.settings
        settings.current = replace(settings.current, namesrv_addr=f"{self._first.namesrv};{self.namesrv}")
        return node, drivers


class Real(Statics):
    """Brokers over sockets."""

    def __init__(self, **brokers: EmbeddedBroker) -> None:
        self.brokers = brokers

    @property
    def namesrv(self) -> str:
        return self.brokers["a"].namesrv

    def names(self) -> list[str]:
        return list(self.brokers)

    def call(self, name: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        with Peer(self.brokers[name].address) as peer:
            return peer.call(code, header, body)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Real]:
    """Logical queues 0 and 2 on a, 1 and 3 on b."""
    with (
        EmbeddedBroker(tmp_path / "a", broker=BrokerConfig(broker_name="a", broker_cluster_name="C")) as a,
        Second(a, tmp_path / "b") as b,
    ):
        real = Real(a=a, b=b)
        real.create("a", "b", "a", "b")
        yield real


async def routed(admin: Admin, *leaders: str) -> None:
    """Wait until the name server says who leads."""
    wanted = {(MOCK, number): name for number, name in enumerate(leaders)}
    async with asyncio.timeout(30):
        while True:
            await admin.session.routes.refresh(TOPIC, at_once=True)
            route = admin.session.routes.known(TOPIC)
            if route is not None and route.leaders == wanted:
                return


def test_sends_reads_and_offsets_follow_a_queue(pair: Real) -> None:
    async def test() -> None:
        async with Admin(pair.namesrv) as admin, Producer(pair.namesrv) as producer:
            await routed(admin, "a", "b", "a", "b")
            queues = await producer.queues(TOPIC)
            assert queues == [MessageQueue(TOPIC, MOCK, n) for n in range(4)]
            for n in range(40):
                sent = await producer.send(Message(TOPIC, b"%d" % n), queue=queues[n % 4])
                assert (sent.queue, sent.queue_offset) == (queues[n % 4], n // 4)
            brief = PullOptions(hold_ms=HOLD_MS)
            async with PullConsumer(pair.namesrv, "g", from_where="first", options=brief) as consumer:
                consumer.assign([queues[1]])
                got = list(await consumer.poll())
                await consumer.commit()
                begin = await asyncio.to_thread(pair.remap, 1, "b", "a")
                await routed(admin, "a", "a", "a", "b")
                for n in range(40, 44):
                    sent = await producer.send(Message(TOPIC, b"%d" % n), queue=queues[1])
                    assert sent.queue_offset == begin + n - 40, "an old route is no obstacle"
                async with asyncio.timeout(60):
                    while len(got) < 14:
                        got += await consumer.poll()
                assert [m.body for m in got] == [b"%d" % n for n in (*range(1, 40, 4), *range(40, 44))]
                assert [m.queue_offset for m in got] == [*range(10), *range(begin, begin + 4)]
                assert {m.queue for m in got} == {queues[1]}
                await consumer.commit()
            async with PullConsumer(pair.namesrv, "g") as consumer:
                consumer.assign([queues[1]])
                await producer.send(Message(TOPIC, b"44"), queue=queues[1])
                async with asyncio.timeout(60):
                    while not (later := await consumer.poll()):
                        pass
                assert [m.body for m in later] == [b"44"], "the group goes on where it was"

    run(test())


def test_nothing_is_lost_or_doubled_while_queues_are_moved(pair: Real) -> None:
    """A stream in order per key, a group that reads it, and each queue moved there and back meanwhile."""

    async def test() -> None:
        got: list[bytes] = []
        sent = moved_at = 0
        last = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.body)
            if message.body == LAST:
                last.set()

        async with (
            Admin(pair.namesrv) as admin,
            OrderedProducer(pair.namesrv) as producer,
            PushConsumer(pair.namesrv, "push", {TOPIC: "*"}, handle, from_where="first", mode=ConsumeMode.ORDERED),
        ):
            await routed(admin, "a", "b", "a", "b")

            def move() -> None:
                for queue_id, old, new in ((0, "a", "b"), (1, "b", "a"), (0, "b", "a")):
                    pair.remap(queue_id, old, new)

            moving: asyncio.Task[None] | None = None
            while moving is None or not moving.done() or moved_at + AFTER > sent:
                await producer.put(Message(TOPIC, b"%06d" % sent), str(sent % 8))
                sent += 1
                if sent % 20 == 0:
                    await producer.flush()
                if sent == AFTER:
                    moving = asyncio.create_task(asyncio.to_thread(move))
                elif moving is not None and not moving.done():
                    moved_at = sent
            await moving
            for key in range(8):  # the last one of a queue comes behind all others
                last.clear()
                await producer.put(Message(TOPIC, LAST), str(key))
                await producer.flush()
                async with asyncio.timeout(120):
                    await last.wait()
        numbers = [body for body in got if body != LAST]
        assert sorted(numbers) == [b"%06d" % n for n in range(sent)]
        for key in range(8):
            mine = [body for body in numbers if int(body) % 8 == key]
            assert mine == sorted(mine), f"key {key} is in order"

    run(test())


def test_the_admin_shows_logical_queues(pair: Real) -> None:
    async def test() -> None:
        async with Admin(pair.namesrv) as admin:
            await routed(admin, "a", "b", "a", "b")
            route = await admin.topic_route(TOPIC)
            assert [str(queue) for queue in route.logical_queues] == [f"{TOPIC}/{MOCK}/{n}" for n in range(4)]
            mapping = await admin.static_topic(TOPIC)
            assert mapping is not None and {i: [one.bname for one in items] for i, items in mapping.items()} == {
                0: ["a"], 1: ["b"], 2: ["a"], 3: ["b"],
            }  # fmt: skip
            begin = await asyncio.to_thread(pair.remap, 3, "b", "a")
            mapping = await admin.static_topic(TOPIC)
            assert mapping is not None
            assert [(one.bname, one.logic_offset) for one in mapping[3]] == [("b", 0), ("a", begin)]
            await admin.create_topic("plain", 1)
            assert await admin.static_topic("plain") is None

    run(test())


def test_the_command_shows_logical_queues(pair: Real) -> None:
    app = typer.Typer()
    topics.register(app)

    async def ready() -> None:
        async with Admin(pair.namesrv) as admin:
            await routed(admin, "a", "b", "a", "b")

    run(ready())
    begin = pair.remap(3, "b", "a")
    shown = CliRunner().invoke(app, ["topic", "route", TOPIC, "-n", pair.namesrv])
    assert shown.exit_code == 0 and f"0: b 1, {begin}: a 2" in shown.output, shown.output
    shown = CliRunner().invoke(app, ["topic", "route", TOPIC, "-n", pair.namesrv, "--json"])
    rows = json.loads(shown.stdout)["logicalQueues"]
    assert [row["queue"] for row in rows] == [0, 1, 2, 3]
    assert rows[3]["items"] == [
        {"broker": "b", "queue": 1, "logicOffset": 0}, {"broker": "a", "queue": 2, "logicOffset": begin},
    ]  # fmt: skip
