"""A Java cluster is replaced node by node under load, and back: nothing acknowledged is lost, and readers go on.

A name server, three controllers in one DLedger group and a broker set of three replicas begin as Java's. Each node is
stopped, and one of the other implementation started with the same properties file on the same folder: the name
server, each controller (who then leads for a while, with what it read from there), the slaves, and last the master,
by SIGTERM on the way there and by SIGKILL on the way back; the other way round in a soak's second round.

Meanwhile a stock Java producer sends numbered messages, and a stock Java consumer group reads them. Afterwards each
acknowledged message stands in the master's log at the place that the acknowledgement named, in its sender's order; the
group was given each; no offset went back behind what the next master knew; and all replicas are in sync, with the same
log. Nothing lost is excused; only what a Java replica's own log names of its epochs (B9, B10: broker_sets.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rig
from broker_sets import BrokerSet, Load

from perseid.client import PullConsumer, ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(900, 5_400), func_only=True)]

ROUNDS = rig.many(1, 2)
REPLICAS = CONTROLLERS = 3
QUEUES = 4
PAUSE_MS = 50
"""Between two messages of one of the load's four threads."""
MORE = rig.many(100, 200)
"""Acknowledgements after each replaced node."""
ENDED = {"java": (0, 128 + 15), "perseid": (0,)}
"""Exit codes after SIGTERM."""
KV = ("perseid", "kept", "by-the-name-server")
OTHER = {"java": "perseid", "perseid": "java"}

Offsets = dict[int, int]
"""Queue → offset."""


class Group:
    """A stock consumer's group, and where it is."""

    def __init__(self, of: BrokerSet, client: rig.Client, topic: str) -> None:
        self.of, self.client, self.topic, self.name = of, client, topic, f"g_{topic}"
        self._handle = client("push.start", topic=topic, group=self.name)
        self._floors: list[tuple[float, Offsets]] = []
        """From this time (s since 1970) on, nothing before these offsets is to be read any more."""

    def at(self, broker: rig.Process) -> Offsets:
        """The offsets that a broker knows; 0: none yet."""
        found = {}
        for queue in range(QUEUES):
            asked = {"consumerGroup": self.name, "topic": self.topic, "queueId": queue}
            answer = rig.call(broker.address, 14, asked)
            assert answer.code in (0, 22), answer
            found[queue] = int(answer.ext["offset"]) if answer.code == 0 else 0
        return found

    def go_on(self) -> None:
        """Wait until each queue is read further, and all replicas know it: who reads anew begins there or later."""
        before = self.at(self.of.await_master())
        master = self.of.await_master()
        rig.until("each queue is read further", lambda: reached(self.at(master), before, 1), 60)
        floor = self.at(master)
        rig.until("all know the offsets", lambda: all(reached(self.at(one), floor) for one in self.of.all), 60)
        self._floors.append((time.time(), floor))

    def read_all(self, ends: Offsets) -> Counter[str]:
        """Wait until all is read; how often each message was given. AssertionError when offsets had gone back."""
        rig.until("all is read", lambda: self.at(self.of.await_master()) == ends, 60)
        seen = self.client("push.stop", handle=self._handle)
        for since, floor in self._floors:
            late = [m for m in seen if m["at"] > 1000 * since and m["queueOffset"] < floor[m["queueId"]]]
            assert not late, f"{len(late)} come again from before {floor}: {late[0]}"
        return Counter(m["body"].split(" ")[0] for m in seen)


def reached(offsets: Offsets, wanted: Offsets, more: int = 0) -> bool:
    return all(offsets[queue] >= wanted[queue] + more for queue in wanted)


class Replaced:
    """A cluster whose nodes change their implementation, one at a time, under load."""

    def __init__(self, folder: Path, impl: str, java_agent: rig.Agent) -> None:
        self.namesrv = rig.namesrv(impl, folder / "namesrv").start()
        cluster = rig.Cluster(folder.name, self.namesrv.address, "", "", folder, self.namesrv, self.namesrv)
        self.client = rig.Client(java_agent, cluster)
        self.set = BrokerSet(cluster, folder, (impl,) * CONTROLLERS, (impl,) * REPLICAS)
        self.nodes = self.switches = 0

    def start(self, topic: str) -> None:
        """Start all, and the load."""
        self.topic = topic
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(rig.Process.start, (*self.set.controllers.members, *self.set.all)))
        self.set.await_in_sync()
        self.set.make_topic(self.client, topic)
        namespace, key, value = KV
        assert "success" in self.client.mqadmin("updateKvConfig", "-s", namespace, "-k", key, "-v", value)
        self.load = Load(self.client, topic, pauseMs=PAUSE_MS)
        self.group = Group(self.set, self.client, topic)
        self._go_on()

    def kill(self) -> None:
        self.client.close()
        self.set.kill()
        self.namesrv.kill()

    def replace_all(self, *, kill: bool) -> None:
        """All nodes, the master last: it is ended with SIGTERM, or killed."""
        self._replace(self.namesrv)
        routed = lambda: rig.call(self.namesrv.address, 105, {"topic": self.topic}).code == 0  # noqa: E731
        rig.until("the route is known again", routed, 60)
        self.check_kv()
        self._go_on()
        for number, controller in enumerate(self.set.controllers.members):
            self._replace(controller)
            rig.until("an active controller", self.set.controllers.active, 60)
            self.set.controllers.lead(number)
            self._go_on()
        old = self.set.await_master()
        for broker in self.set.all:
            if broker is not old:
                self._replace(broker)
                self._go_on()
        self.group.go_on()
        epoch = self.set.epoch()
        self._end(old, kill=kill)
        self.set.await_master(gone=old)
        assert self.set.epoch() > epoch, "another master in the same epoch"
        self.switches += 1
        self._start(old)
        self._go_on()

    def _replace(self, node: rig.Process) -> None:
        self._end(node)
        self._start(node)

    def _end(self, node: rig.Process, *, kill: bool = False) -> None:
        code = node.kill() if kill else node.stop()
        assert kill or code in ENDED[node.impl], f"{node.log}: {code}"

    def _start(self, node: rig.Process) -> None:
        node.impl = OTHER[node.impl]
        node.start()
        self.nodes += 1

    def _go_on(self) -> None:
        self.set.await_in_sync()
        self.load.more(MORE)

    def impls(self) -> set[str]:
        return {node.impl for node in (self.namesrv, *self.set.controllers.members, *self.set.all)}

    def check_kv(self) -> None:
        """The name server has what it was told before it was replaced."""
        namespace, key, value = KV
        assert rig.call(self.namesrv.address, 101, {"namespace": namespace, "key": key}).ext.get("value") == value

    def check(self) -> str:
        """End the load, and look for what was acknowledged; in words what there was."""
        acked = self.load.end()
        self.set.await_in_sync()
        log = rig.run(read_all(self.namesrv.address, self.topic))
        places = {m.record.msg_id: name_of(m) for m in log}
        lost = [name for name, place in acked.items() if places.get(place) != name]
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged messages are not where they were: {lost[:10]}"
        check_order(log)
        ends = Counter(m.queue.queue_id for m in log)
        seen = self.group.read_all({queue: ends[queue] for queue in range(QUEUES)})
        missing = [name for name in acked if not seen[name]]
        assert not missing, f"{len(missing)} acknowledged messages were never read: {missing[:10]}"
        self.set.check_same()
        return (
            f"{self.nodes} nodes replaced, {self.switches} masters changed, {len(acked)} messages acknowledged,"
            f" {self.load.retries} sends tried again, {len(log) - len(acked)} stored twice or without an answer, {sum(seen.values()) - len(seen)} read again,"
            f" explained: {dict(+self.set.named) or 'nothing'}"
        )


def name_of(message: ReceivedMessage) -> str:
    return message.body.decode().split(" ")[0]


def check_order(log: list[ReceivedMessage]) -> None:
    """The first copies of each queue's messages are in the order in which they were sent."""
    for queue in range(QUEUES):
        firsts = dict.fromkeys(name_of(m) for m in log if m.queue.queue_id == queue)
        numbers = [int(name.rpartition("-")[2]) for name in firsts]
        assert numbers == list(range(len(numbers))), f"queue {queue} is not in order"


async def read_all(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """All that the master has of a topic."""
    async with PullConsumer(namesrv, f"r_{topic}") as consumer:
        found = []
        for queue in await consumer.queues(topic):
            async for messages in consumer.read(queue, 0, await consumer.max_offset(queue)):
                found += messages
        return found


@pytest.fixture
def replaced(java_agent: rig.Agent, workshop: Path, name: str) -> Iterator[Replaced]:
    made = Replaced(workshop / f"re-{name}", "java", java_agent)
    try:
        yield made
    finally:
        made.kill()


def test_a_java_cluster_is_replaced_node_by_node_and_back(replaced: Replaced, name: str) -> None:
    begun = time.monotonic()
    replaced.start(name)
    for number in range(ROUNDS):
        replaced.replace_all(kill=bool(number % 2))
        assert replaced.impls() == {"perseid"}
        replaced.replace_all(kill=not number % 2)
        assert replaced.impls() == {"java"}
    print(f"{replaced.check()}, {time.monotonic() - begun:.0f} s")
