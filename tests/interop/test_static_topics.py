"""Static topics on clusters of two brokers, Java's and ours in each mixture: made and moved by stock `mqadmin`, written
and read by stock Java clients, and the mapping that a folder hands on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.broker.static_topics.mappings import TopicMappings
from perseid.client import Admin, Message, Producer, PullConsumer, ReceivedMessage
from perseid.wire import fastjson
from perseid.wire.bodies import TopicConfigAndQueueMapping, TopicConfigSerializeWrapper, TopicRouteData

pytestmark = pytest.mark.interop

MOCK = "__syslo__global__"
QUEUES = 4
FIELDS = ("topic", "scope", "totalQueues", "bname", "epoch", "dirty", "currIdMap")


class Pair:
    """Brokers a and b of two kinds at one name server, and the stock Java clients."""

    def __init__(self, kinds: tuple[str, str, str], folder: Path, agent: rig.Agent) -> None:
        names, *brokers = kinds
        self.processes = [rig.namesrv(names, folder / "namesrv").start()]
        self.namesrv = self.processes[0].address
        self.brokers: dict[str, rig.Process] = {}
        try:
            for name, kind in zip("ab", brokers, strict=True):
                patient = {"waitTimeMillsInSendQueue": 10_000} if kind == "java" else {}
                broker = rig.broker(kind, folder / f"{folder.name}-{name}", self.namesrv, **patient)
                self.brokers[name] = broker
                self.processes.append(broker.start())
            for name in "ab":
                rig.await_registered(self.namesrv, self.name(name))
        except BaseException:
            self.stop()
            raise
        cluster = rig.Cluster(
            folder.name, self.namesrv, self.brokers["a"].address, self.name("a"), folder, self.processes[0],
            self.brokers["a"],
        )  # fmt: skip
        self.java = rig.Client(agent, cluster)

    def name(self, broker: str) -> str:
        return self.brokers[broker].folder.name

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()

    def mqadmin(self, *args: str) -> str:
        printed = self.java.mqadmin(*args)
        assert "Exception" not in printed, printed
        return printed

    def create(self, topic: str, queues: int = QUEUES) -> None:
        self.mqadmin("updateStaticTopic", "-t", topic, "-qn", str(queues), "-c", "InteropCluster")
        self.await_leaders(topic, queues)

    def remap(self, topic: str, *brokers: str) -> None:
        names = ",".join(self.name(one) for one in brokers)
        self.mqadmin("remappingStaticTopic", "-t", topic, "-b", names)
        rig.until(f"only {names} lead", lambda: set(self.leaders(topic).values()) == {self.name(b) for b in brokers})

    def mappings(self, topic: str) -> dict[str, Any]:
        answer = rig.call(self.namesrv, 105, {"topic": topic, "acceptStandardJsonOnly": "true"})
        return dict(fastjson.loads(answer.body)["topicQueueMappingByBroker"]) if answer.code == 0 else {}

    def leaders(self, topic: str) -> dict[int, str]:
        rows = sorted(self.mappings(topic).values(), key=lambda row: row["epoch"])
        return {int(queue): row["bname"] for row in rows for queue in row["currIdMap"]}

    def await_leaders(self, topic: str, queues: int) -> None:
        rig.until(f"{queues} queues have leaders", lambda: self.leaders(topic).keys() == set(range(queues)))

    def config(self, broker: str, topic: str) -> dict[str, Any]:
        answer = rig.call(self.brokers[broker].address, 351, {"topic": topic, "lo": "true"})
        assert answer.code == 0, answer
        return dict(fastjson.loads(answer.body))

    def send(self, topic: str, first: int, count: int) -> list[dict[str, Any]]:
        """One message to each logical queue in turn; a route that is not fresh yet has the send repeated."""
        sent = []
        for n in range(first, first + count):
            queue = {"topic": topic, "broker": MOCK, "queueId": n % QUEUES}

            def stored(n: int = n, queue: dict[str, Any] = queue) -> Any:
                (one,) = self.java("send", messages=[{"topic": topic, "body": f"m{n}", "queue": queue}])
                return one if one.get("status") == "SEND_OK" else None

            one = stored()
            if one is None:
                self.java("producers.stop")  # a new one asks for the route
                one = rig.until(f"m{n} is taken", stored, 40)
            sent.append(one)
        return sent


KINDS = {
    "perseid": ("perseid", "perseid", "perseid"),
    "mixed": ("perseid", "perseid", "java"),
    "mixed_java_names": ("java", "java", "perseid"),
    "java_at_ours": ("perseid", "java", "java"),
    "java": ("java", "java", "java"),
}
MIXED = [name for name in KINDS if name.startswith("mixed")]
SLAVES = {
    f"{pair}-{slave}": ways.Each((pair, slave))
    for pair, slave in (("perseid", "perseid"), ("perseid", "java"), ("java", "perseid"))
}


@pytest.fixture(params=ways.in_ci((kind for kind in KINDS if kind != "java"), "mixed"))
def pair(request: pytest.FixtureRequest, workshop: Path, java_agent: rig.Agent, name: str) -> Iterator[Pair]:
    made = Pair(KINDS[request.param], workshop / f"static-{request.param}-{len(name)}{name[-2:]}", java_agent)
    yield made
    made.java.close()
    made.java("producers.stop")
    made.stop()


def in_order(got: list[dict[str, Any]]) -> None:
    """Each logical queue's messages came in the order in which they were sent, at offsets that rise."""
    queues: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in got:
        assert one["broker"] == MOCK
        queues[one["queueId"]].append((int(one["body"][1:]), one["queueOffset"]))
    for queue_id, found in queues.items():
        assert all(number % QUEUES == queue_id for number, _ in found), queue_id
        assert found == sorted(found) and len({offset for _, offset in found}) == len(found), queue_id


def test_queues_are_moved_between_brokers_of_each_kind(pair: Pair, name: str) -> None:
    """A consumer that is at work all the time, and one that comes in the end: each message once, in order."""
    topic, group = f"s_{name}", f"g_{name}"
    pair.create(topic)
    led = Counter(pair.leaders(topic).values())
    assert led == {pair.name("a"): 2, pair.name("b"): 2}
    sent = pair.send(topic, 0, 40)
    assert [one["queueOffset"] for one in sent] == [n // QUEUES for n in range(40)]
    assert {one["queueId"] for one in sent} == set(range(QUEUES))
    handle = pair.java("push.start", topic=topic, group=group, ordered=True)
    pair.java.collect(handle, 40)

    pair.remap(topic, "a")
    sent = pair.send(topic, 40, 20)
    assert {one["queueOffset"] >= 10_000 for one in sent} == {True, False}, "two queues were moved"
    pair.java.collect(handle, 60, 150)
    pair.remap(topic, "b")
    pair.send(topic, 60, 20)
    pair.java.collect(handle, 80, 150)
    pair.remap(topic, "a", "b")
    pair.send(topic, 80, 20)
    got = pair.java.collect(handle, 100, 150)
    pair.java("push.stop", handle=handle)
    assert Counter(one["body"] for one in got) == Counter(f"m{n}" for n in range(100))
    in_order(got)

    late = pair.java.consume(topic, f"late_{name}", 100, 150, ordered=True)
    assert Counter(one["body"] for one in late) == Counter(f"m{n}" for n in range(100))
    in_order(late)
    assert {(o["queueId"], o["queueOffset"]) for o in late} == {(o["queueId"], o["queueOffset"]) for o in got}

    pair.send(topic, 100, 8)  # the first group goes on where it was
    more = pair.java.consume(topic, group, 8, 150, ordered=True)
    assert sorted(one["body"] for one in more) == sorted(f"m{n}" for n in range(100, 108))
    assert MOCK in pair.mqadmin("topicStatus", "-t", topic)


@pytest.mark.parametrize("pair", ways.in_ci(MIXED, "mixed"), indirect=True)
def test_both_kinds_say_the_same(pair: Pair, name: str) -> None:
    """Mappings at name servers and in brokers have the same members, and stock `mqadmin` adds queues."""
    topic = f"s_{name}"
    pair.create(topic, 2)
    pair.create(topic, 5)
    rows = pair.mappings(topic)
    assert rows.keys() == {pair.name("a"), pair.name("b")}
    for row in rows.values():
        assert set(row) == set(FIELDS)
    one, other = (pair.config(broker, topic) for broker in "ab")
    assert one.keys() == other.keys()
    assert one["mappingDetail"].keys() == other["mappingDetail"].keys()
    assert one["mappingDetail"]["epoch"] == other["mappingDetail"]["epoch"]
    item = {"bname", "endOffset", "gen", "logicOffset", "queueId", "startOffset", "timeOfEnd", "timeOfStart"}
    for config in (one, other):
        assert all(set(part) == item for items in config["mappingDetail"]["hostedQueues"].values() for part in items)
    for address in (pair.brokers["a"].address, pair.brokers["b"].address):
        answer = rig.call(address, 30, {"topic": topic, "queueId": 77})
        assert answer.code == 501, answer
        body = fastjson.loads(rig.call(address, 21).body)
        assert topic in body["topicQueueMappingDetailMap"]


@pytest.mark.long
@pytest.mark.parametrize("pair", ["java"], indirect=True)
def test_bodies_and_file_are_java_s_byte_for_byte(pair: Pair, name: str) -> None:
    """What Java's brokers and name server answer and write, read and written by us."""
    topic = f"s_{name}"
    pair.create(topic)
    pair.send(topic, 0, 4)
    pair.remap(topic, "b")
    for standard in (True, False):
        header = {"topic": topic, "acceptStandardJsonOnly": str(standard).lower()}
        body = rig.call(pair.namesrv, 105, header, version=513 if standard else 300).body
        route = TopicRouteData.from_json(body)
        assert route.topic_queue_mapping_by_broker and route.to_json(standard=standard) == body
    for broker in pair.brokers.values():
        body = rig.call(broker.address, 351, {"topic": topic, "lo": "true"}).body
        config = TopicConfigAndQueueMapping.from_json(body)
        assert config.mapping_detail is not None and config.to_json() == body
        body = rig.call(broker.address, 21).body
        assert TopicConfigSerializeWrapper.from_json(body).to_json() == body
        text = (broker.folder / "store" / "config" / "topicQueueMapping.json").read_bytes()
        mappings = TopicMappings(broker.folder.name)
        mappings.load(text)
        assert mappings.to_json() == text


@pytest.mark.parametrize("pair", ways.in_ci(MIXED, "mixed"), indirect=True)
def test_a_folder_hands_the_mapping_on(pair: Pair, name: str) -> None:
    """A broker's folder is opened by the other kind, and back: the same mapping, and all messages."""
    topic = f"s_{name}"
    pair.create(topic)
    pair.send(topic, 0, 12)
    pair.remap(topic, "b")
    pair.send(topic, 12, 12)
    before = pair.config("b", topic)
    kinds = [pair.brokers["b"].impl]
    kinds.append("perseid" if kinds[0] == "java" else "java")
    for kind in (kinds[1], kinds[0]):
        old = pair.brokers["b"]
        old.stop()
        path = old.folder / "store" / "config" / "topicQueueMapping.json"
        assert topic in fastjson.loads(path.read_text())["topicQueueMappingInfoMap"]
        pair.brokers["b"] = rig.Process("broker", kind, old.folder, old.properties)
        pair.processes.append(pair.brokers["b"].start())
        rig.until("b leads again", lambda: set(pair.leaders(topic).values()) == {pair.name("b")}, 60)
        rig.await_registered(pair.namesrv, pair.name("b"))
        rig.until("b answers", lambda: pair.config("b", topic) == before, 60)
        pair.java("producers.stop")
    got = pair.java.consume(topic, f"g_{name}", 24, 150, ordered=True)
    assert Counter(one["body"] for one in got) == Counter(f"m{n}" for n in range(24))
    in_order(got)
    assert json.dumps(pair.config("b", topic), sort_keys=True) == json.dumps(before, sort_keys=True)


@pytest.mark.parametrize(("pair", "slave"), ways.in_ci(SLAVES, "perseid-java"), indirect=["pair"])
def test_a_slave_has_its_masters_topic(pair: Pair, name: str, slave: str) -> None:
    """Ours has the mapping too; Java's copies no mappings, not from a Java master either."""
    topic = f"s_{name}"
    pair.create(topic)
    master = pair.brokers["a"]
    properties = {**master.properties, "brokerRole": "SLAVE", "brokerId": 1}
    for key in ("listenPort", "storePathRootDir", "storePathCommitLog"):
        properties.pop(key)
    copy = rig.broker(slave, master.folder.parent / f"slave-{slave}", pair.namesrv, **properties)
    pair.processes.append(copy.start())
    rig.until("the topic is there", lambda: rig.call(copy.address, 351, {"topic": topic}).code == 0, 120)
    if slave == "perseid":

        def mapped() -> bool:
            answer = rig.call(copy.address, 351, {"topic": topic, "lo": "true"})
            return fastjson.loads(answer.body) == pair.config("a", topic)

        rig.until("the mapping is there", mapped, 60)


@pytest.mark.parametrize("pair", ["java", "mixed"], indirect=True)
def test_our_clients_follow_queues_on_javas_brokers(pair: Pair, name: str) -> None:
    topic = f"s_{name}"
    pair.create(topic)

    async def send(producer: Producer, first: int) -> None:
        queues = await producer.queues(topic)
        assert [(queue.broker_name, queue.queue_id) for queue in queues] == [(MOCK, n) for n in range(QUEUES)]
        for n in range(first, first + 12):
            await producer.send(Message(topic, b"%d" % n), queue=queues[n % QUEUES])

    async def test() -> None:
        async with Producer(pair.namesrv) as producer, Admin(pair.namesrv) as admin:
            await send(producer, 0)
            for n, broker in enumerate("ab", 1):
                await asyncio.to_thread(pair.remap, topic, broker)
                await send(producer, 12 * n)
            items = await admin.static_topic(topic)
            assert items is not None and {parts[-1].bname for parts in items.values()} == {pair.name("b")}
            async with PullConsumer(pair.namesrv, f"g_{name}", from_where="first") as consumer:
                for queue in await consumer.queues(topic):
                    consumer.assign([queue])
                    got: list[ReceivedMessage] = []
                    async with asyncio.timeout(200):
                        while len(got) < 9:
                            got += await consumer.poll()
                    assert [int(one.body) for one in got] == list(range(queue.queue_id, 36, QUEUES))
                    offsets = [one.queue_offset for one in got]
                    assert offsets == sorted(set(offsets)) and offsets[-1] >= 10_000
                    assert {one.queue for one in got} == {queue}
                    await consumer.commit()
                    assert await consumer.committed(queue) == offsets[-1] + 1

    rig.run(test())
