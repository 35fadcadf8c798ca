"""Lite topics: stock Java's pops and mqadmin on Java's broker and on ours, and folders that pass on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.client import Begin, LiteConsumer, Message, PoppedMessage, Producer
from perseid.testing.ports import free_port
from perseid.wire.hashing import java_hash
from perseid.wire.lite_sharding import bucket

pytestmark = pytest.mark.interop

LMQ: dict[str, object] = {"enableLmq": "true", "enableMultiDispatch": "true"}
INVISIBLE_MS = 60_000
"""Of what is done with while it is out: a busy machine takes its time."""
SHORT_MS = 10_000
"""Of what is to come again."""
CTL = 200071


class Lite:
    """A broker with lite topics of a parent, and one group's clients."""

    def __init__(
        self, java: rig.Client, cluster: rig.Cluster, folder: Path, impl: str, name: str, **settings: object
    ) -> None:
        self.cluster, self.parent, self.group = cluster, f"P_{name}", f"g_{name}"
        self.broker = rig.broker(impl, folder, cluster.namesrv, **LMQ, **settings, liteEventCheckInterval=1_000)
        self.java = replace(java, opened=[])
        self.start()
        made = self.mqadmin(
            "updateTopic", "-t", self.parent, "-r", "4", "-w", "4", "-a", "+message.type=LITE,+lite.topic.expiration=60"
        )
        assert "success" in made, made
        self.make_group(self.group)
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": self.parent}).code == 0, 60)

    def make_group(self, name: str, *, consume: bool = True, **attributes: str) -> None:
        given = {"lite.bind.topic": self.parent, **{key.replace("_", "."): value for key, value in attributes.items()}}
        body = {
            "groupName": name, "consumeEnable": consume, "attributes": {f"+{key}": v for key, v in given.items()},
        }  # fmt: skip
        answer = rig.call(self.broker.address, 200, {}, json.dumps(body).encode())
        assert answer.code == 0, answer

    def start(self) -> None:
        self.broker.start()
        self.java.cluster = replace(self.cluster, broker=self.broker.address)
        rig.await_registered(self.cluster.namesrv, self.broker.folder.name)

    def hand_over(self, impl: str) -> None:
        self.broker.stop()
        self.broker = rig.Process("broker", impl, self.broker.folder, self.broker.properties)
        self.start()
        rig.until("route", lambda: rig.call(self.cluster.namesrv, 105, {"topic": self.parent}).code == 0, 60)

    def mqadmin(self, command: str, *args: str) -> str:
        return self.java.mqadmin(command, *(("-b", self.broker.address) if command in AT_A_BROKER else ()), *args)

    def send(self, lite: str, *bodies: str) -> None:
        self.java.send(self.parent, list(bodies), props={"__LITE_TOPIC": lite})
        self.await_ends(**{lite: len(bodies)})

    def await_ends(self, **ends: int) -> None:
        """So many messages are there to be read."""
        for lite, end in ends.items():
            name = f"%LMQ%${self.parent}${lite}"
            rig.until(f"{end} in {name}", lambda name=name, end=end: self.end(name) >= end, 30)

    def end(self, name: str) -> int:
        return int(rig.call(self.broker.address, 30, {"topic": name, "queueId": 0}).ext["offset"])

    def change(self, action: str, *names: str, client: str = "c1", **more: Any) -> rig.Answer:
        group = more.pop("group", self.group)
        one = {"action": action, "clientId": client, "group": group, "topic": self.parent, "liteTopicSet": list(names)}
        body = json.dumps({"subscriptionSet": [one | more]}).encode()
        return rig.call(self.broker.address, CTL, {}, body)

    def subscribe(self, *names: str, action: str = "PARTIAL_ADD", **more: Any) -> None:
        rig.until("the sharding is known", lambda: self.change(action, *names, **more).code == 0, 30)

    def pop(self, client: str = "c1", **more: Any) -> list[dict[str, Any]]:
        found = self.java(
            "pop.lite", client=client, group=more.pop("group", self.group), topic=self.parent,
            broker=self.broker.address, brokerName=self.broker.folder.name,
            invisibleMs=more.pop("invisibleMs", INVISIBLE_MS), **more,
        )  # fmt: skip
        assert found["status"] in ("FOUND", "POLLING_NOT_FOUND", "NO_NEW_MSG"), found
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    def until(self, wanted: int, **more: Any) -> list[dict[str, Any]]:
        got: list[dict[str, Any]] = []

        def enough() -> bool:
            got.extend(self.pop(waitMs=1_000, **more))
            return len(got) >= wanted

        rig.until(f"{wanted} messages", enough, 40)
        return got

    def ack(self, message: dict[str, Any], lite: str, group: str | None = None) -> str:
        return str(self.java(
            "pop.ack", topic=self.parent, group=group or self.group, broker=self.broker.address,
            handle=message["handle"], lite=lite,
        ))  # fmt: skip


AT_A_BROKER = ("updateTopic", "getBrokerLiteInfo")


@pytest.fixture(params=["java", "perseid"], ids=["on_java", "on_perseid"])
def impl(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lite(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, impl: str) -> Iterator[Lite]:
    found = Lite(java, cluster, workshop / f"lite-{name}", impl, name)
    yield found
    found.broker.kill()


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [m["body"] for m in messages]


@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_pops_in_order(lite: Lite) -> None:
    lite.send("a", "a0", "a1", "a2")
    lite.send("b", "b0")
    lite.subscribe("a")
    first = lite.until(2, count=2, invisibleMs=SHORT_MS)
    assert bodies(first) == ["a0", "a1"] and lite.pop() == []
    assert lite.ack(first[0], "a") == "OK"
    assert lite.pop() == [], "a1 is out"
    again = lite.until(2)
    # Java's orderCountInfo names a1 alone, and its own client reads nothing out of it
    popped_before = 0 if lite.broker.impl == "java" else 1
    assert [(m["body"], m["reconsumeTimes"]) for m in again] == [("a1", popped_before), ("a2", 0)]
    for message in again:
        assert lite.ack(message, "a") == "OK"
    lite.send("a", "a3")
    assert bodies(lite.until(1)) == ["a3"]


@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_what_clients_read(lite: Lite) -> None:
    lite.send("a", "a0")
    lite.send("b", "b0")
    lite.subscribe("a", "b", action="COMPLETE_ADD")
    assert sorted(bodies(lite.until(2))) == ["a0", "b0"]
    lite.subscribe("b", action="PARTIAL_REMOVE")
    said = lite.mqadmin("getLiteClientInfo", *lite_args(lite), "-c", "c1", "-s")
    assert "#LiteTopicCount" in said
    assert re.search(rf"%LMQ%\${lite.parent}\$a\b", said) and not re.search(r"\$b\b", said), said
    lite.make_group("closed", consume=False)
    refused = lite.change("PARTIAL_ADD", "a", group="closed", client="other")
    assert refused.code == 604
    assert rig.call(lite.broker.address, CTL, {}, b"").code == 604
    wild = f"w_{lite.group}"
    lite.make_group(wild, lite_sub_wildcard="true")
    lite.subscribe(action="COMPLETE_ADD", client="w", group=wild)
    lite.send("c", "c0")
    assert "c0" in bodies(lite.until(1, client="w", group=wild))


@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_our_client(lite: Lite) -> None:
    """Ours sends and reads; stock Java's producer beside it."""

    async def gather(consumer: LiteConsumer, count: int) -> list[PoppedMessage]:
        got: list[PoppedMessage] = []
        while len(got) < count:
            got += await consumer.receive()
        return got

    async def test() -> None:
        namesrv = lite.cluster.namesrv
        one = LiteConsumer(namesrv, lite.group, lite.parent, invisible_ms=INVISIBLE_MS)
        async with Producer(namesrv) as producer, one:
            for body in ("a0", "a1", "b0"):
                await producer.send(Message(lite.parent, body.encode(), lite_topic=body[0]))
            await asyncio.to_thread(lite.await_ends, a=2, b=1)
            await one.subscribe("a", "b", begin=Begin.first())
            got = await gather(one, 3)
            assert sorted((m.lite_topic, m.body) for m in got) == [("a", b"a0"), ("a", b"a1"), ("b", b"b0")]
            assert [m.body for m in got if m.lite_topic == "a"] == [b"a0", b"a1"]
            later = await one.change_invisible(next(m for m in got if m.body == b"a1"), 3_000)
            await one.ack_all(m for m in got if m.body != b"a1")
            again = await gather(one, 1)
            assert [m.body for m in again] == [b"a1"] and again[0].offset_msg_id == later.offset_msg_id
            await one.ack_all(again)
            await one.unsubscribe("b")
            await asyncio.to_thread(lite.send, "b", "b1")
            await asyncio.to_thread(lite.send, "a", "a2")
            after = await gather(one, 1)
            assert [m.body for m in after] == [b"a2"]
            await one.ack_all(after)
            assert await one.receive(timeout_ms=1_000) == []
        wild = f"w_{lite.group}"
        await asyncio.to_thread(lite.make_group, wild, lite_sub_wildcard="true")
        async with LiteConsumer(namesrv, wild, lite.parent, None) as everything:
            await asyncio.to_thread(lite.send, "c", "c0")
            seen: set[bytes] = set()
            while b"c0" not in seen:
                seen |= {m.body for m in await everything.receive()}

    lite.subscribe("warm", client="warm")
    rig.run(test())


def lite_args(lite: Lite) -> tuple[str, ...]:
    return ("-p", lite.parent, "-g", lite.group)


def plain(text: str) -> list[str]:
    """What mqadmin printed, without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d[ ,]\d\d:\d\d:\d\d[.,:]?\d*|\b1\d{12}\b|\(\d+ s ago\)", "TIME", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]
    # Java makes queues of its own topics before they have messages: they are in #CQTableSize
    # and never says when a client was given something: the last column of getLiteClientInfo
    lines = [re.sub(r"(\b\d+ TIME) TIME$", r"\1 N/A", line) for line in lines]
    return [re.sub(r"( default 20000 \d+ \d+ \d+) \d+ ", r"\1 N ", line) for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_mqadmin_prints_the_same(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str) -> None:
    """One broker after the other in the same folder's place, so that names are the same."""
    printed: dict[str, list[list[str]]] = {}
    same = {"listenPort": free_port((0, -2, 1))}
    for impl in ("java", "perseid"):
        lite = Lite(java, cluster, workshop / f"{impl}-{name}" / f"b_{name}", impl, name, **same)
        try:
            lite.send("a", "a0", "a1")
            lite.send("b", "b0", "b1", "b2")
            lite.subscribe("a", "b")
            got = lite.until(5)
            assert lite.ack(next(m for m in got if m["body"] == "a0"), "a") == "OK"
            printed[impl] = [plain(lite.mqadmin(*command)) for command in (
                ("getBrokerLiteInfo", "-d"),
                ("getParentTopicInfo", "-p", lite.parent),
                ("getLiteTopicInfo", "-p", lite.parent, "-l", "a", "-s"),
                ("getLiteTopicInfo", "-p", lite.parent, "-l", "none"),
                ("getLiteClientInfo", *lite_args(lite), "-c", "c1"),
                ("getLiteClientInfo", *lite_args(lite), "-c", "unknown"),
                ("getLiteGroupInfo", *lite_args(lite), "-k", "5"),
                ("getLiteGroupInfo", *lite_args(lite), "-l", "a"),
                ("triggerLiteDispatch", *lite_args(lite)),
                ("triggerLiteDispatch", *lite_args(lite), "-c", "c1"),
            )]  # fmt: skip
        finally:
            lite.broker.kill()
    assert printed["perseid"] == printed["java"]


@ways.pass_on("java_to_perseid")
def test_lite_topics_pass_on_with_their_folder(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, writer: str, reader: str
) -> None:
    lite = Lite(java, cluster, workshop / f"lite-{name}", writer, name)
    try:
        lite.send("a", "a0", "a1", "a2")
        lite.subscribe("a")
        got = lite.until(3, invisibleMs=SHORT_MS)
        assert lite.ack(got[0], "a") == "OK"
        lite.hand_over(reader)
        lite.send("a", "a3")
        lite.subscribe("a", action="COMPLETE_ADD")
        again = lite.until(3)
        assert bodies(again) == ["a1", "a2", "a3"]
        for message in again:
            assert lite.ack(message, "a") == "OK"
        lite.hand_over(writer)
        lite.subscribe("a", action="COMPLETE_ADD")
        lite.send("a", "a4")
        assert bodies(lite.until(1)) == ["a4"]
        assert lite.end(f"%LMQ%${lite.parent}$a") == 5
    finally:
        lite.broker.kill()


def test_guava_says_the_same(java_agent: rig.Agent) -> None:
    """The bucket of each hash, by the original's own library."""
    texts = [f"lite-{number}" for number in range(300)] + ["", "ü", "x" * 200]
    for count in (1, 2, 3, 8, 100):
        theirs = java_agent("consistentHash", texts=texts, buckets=count)
        assert [bucket(java_hash(text), count) for text in texts] == theirs
