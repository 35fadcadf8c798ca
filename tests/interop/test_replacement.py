"""A Java cluster is replaced node by node under load, and back: nothing acknowledged is lost, and readers go on.

A name server, three controllers in one DLedger group and a broker set of three replicas begin as Java's. Each node is
stopped, and one of the other implementation started with the same properties file on the same folder: the name
server, which has to know what it was told before; each controller, which then leads for a while; the slaves; and last
the master, by SIGTERM on the way there and by SIGKILL on the way back, the other way round in a soak's second round.

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
from typing import Protocol

import pytest
import rig
from broker_sets import BrokerSet, Load
from test_replication import Replicated

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


class Served(Protocol):
    """Brokers of one name."""

    all: list[rig.Process]
    """Those that are to know where readers are, for any of them may be the next master."""

    def await_master(self) -> rig.Process: ...


class Traffic:
    """A stock producer's numbered messages, and a stock consumer's group that reads them."""

    def __init__(self, of: Served, client: rig.Client, topic: str) -> None:
        self.of, self.client, self.topic, self.group = of, client, topic, f"g_{topic}"
        self._load = Load(client, topic, pauseMs=PAUSE_MS)
        self._reader = client("push.start", topic=topic, group=self.group)
        self._floors: list[tuple[float, Offsets]] = []
        """From this time (s since 1970) on, nothing before these offsets is to be read any more."""

    def sent(self) -> None:
        """Wait until some more are acknowledged."""
        self._load.more(MORE)

    def _at(self, broker: rig.Process) -> Offsets:
        """Where the group is, says a broker; 0: it does not know."""
        found = {}
        for queue in range(QUEUES):
            answer = rig.call(broker.address, 14, {"consumerGroup": self.group, "topic": self.topic, "queueId": queue})
            assert answer.code in (0, 22), answer
            found[queue] = int(answer.ext["offset"]) if answer.code == 0 else 0
        return found

    def read(self) -> None:
        """Wait until each queue is read further, and all brokers know it: who reads anew begins there or later."""
        master = self.of.await_master()
        before = self._at(master)
        rig.until("each queue is read further", lambda: reached(self._at(master), before, 1), 60)
        floor = self._at(master)
        rig.until("all know the offsets", lambda: all(reached(self._at(one), floor) for one in self.of.all), 60)
        self._floors.append((time.time(), floor))

    def check(self) -> str:
        """End both, and look for all that was acknowledged; in words what there was."""
        acked = self._load.end()
        namesrv = self.client.cluster.namesrv  # on a busy machine it may have lost the master for a moment
        log = rig.until("the log is read", lambda: rig.run(read_all(namesrv, self.topic)), 90)
        places = {m.record.msg_id: name_of(m) for m in log}
        lost = [name for name, place in acked.items() if places.get(place) != name]
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged messages are not where they were: {lost[:10]}"
        check_order(log)
        ends = Counter(m.queue.queue_id for m in log)
        rig.until("all is read", lambda: Counter(self._at(self.of.await_master())) == ends, 60)
        seen = self.client("push.stop", handle=self._reader)
        for since, floor in self._floors:
            late = [m for m in seen if m["at"] > 1000 * since and m["queueOffset"] < floor[m["queueId"]]]
            assert not late, f"{len(late)} come again from before {floor}: {late[0]}"
        given = {m["body"].split(" ")[0] for m in seen}
        missing = acked.keys() - given
        assert not missing, f"{len(missing)} acknowledged messages were never read: {sorted(missing)[:10]}"
        return (
            f"{len(acked)} messages acknowledged, {self._load.retries} sends tried again,"
            f" {len(log) - len(acked)} stored twice or without an answer, {len(seen) - len(log)} read again"
        )


def reached(offsets: Offsets, wanted: Offsets, more: int = 0) -> bool:
    return all(offsets[queue] >= wanted[queue] + more for queue in wanted)


def end(node: rig.Process) -> None:
    """Stop it, as an operator does."""
    code = node.stop()
    assert code in ENDED[node.impl], f"{node.log}: {code}"


def start_other(node: rig.Process) -> None:
    """Start the other implementation on its folder."""
    node.impl = OTHER[node.impl]
    node.start()


class Replaced:
    """A cluster whose nodes change their implementation, one at a time, under load."""

    def __init__(self, folder: Path, java_agent: rig.Agent) -> None:
        self.namesrv = rig.namesrv("java", folder / "namesrv")
        cluster = rig.Cluster(folder.name, self.namesrv.address, "", "", folder, self.namesrv, self.namesrv)
        self.client = rig.Client(java_agent, cluster)
        self.set = BrokerSet(cluster, folder, ("java",) * CONTROLLERS, ("java",) * REPLICAS)
        self.nodes = [self.namesrv, *self.set.controllers.members, *self.set.all]

    def start(self, topic: str) -> Traffic:
        """Start all, and the load."""
        self.namesrv.start()
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(rig.Process.start, self.nodes[1:]))
        self.set.await_in_sync()
        self.set.make_topic(self.client, topic)
        namespace, key, value = KV
        assert "success" in self.client.mqadmin("updateKvConfig", "-s", namespace, "-k", key, "-v", value)
        self.traffic = Traffic(self.set, self.client, topic)
        self._go_on()
        return self.traffic

    def kill(self) -> None:
        self.client.close()
        self.set.kill()
        self.namesrv.kill()

    def replace_all(self, *, kill: bool) -> None:
        """All nodes, the master last: it is stopped, or killed."""
        self._replace(self.namesrv)
        check_kv(self.namesrv)
        rig.await_registered(self.namesrv.address, self.set.name)
        self._go_on()
        controllers = self.set.controllers
        for number, controller in enumerate(controllers.members):
            self._replace(controller)
            rig.until("an active controller", controllers.active, 60)
            controllers.lead(number)
            self._go_on()
        master = self.set.await_master()
        for broker in self.set.all:
            if broker is not master:
                self._replace(broker)
                self._go_on()
        self.traffic.read()
        epoch = self.set.epoch()
        if kill:
            master.kill()
        else:
            end(master)
        self.set.await_master(gone=master)
        assert self.set.epoch() > epoch, "another master in the same epoch"
        start_other(master)
        self._go_on()

    def _replace(self, node: rig.Process) -> None:
        end(node)
        start_other(node)

    def _go_on(self) -> None:
        self.set.await_in_sync()
        self.traffic.sent()

    def impls(self) -> set[str]:
        return {node.impl for node in self.nodes}


def check_kv(namesrv: rig.Process) -> None:
    """It has what it was told before it was replaced."""
    namespace, key, value = KV
    assert rig.call(namesrv.address, 101, {"namespace": namespace, "key": key}).ext.get("value") == value


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
    made = Replaced(workshop / f"re-{name}", java_agent)
    try:
        yield made
    finally:
        made.kill()


@pytest.mark.long
def test_a_java_cluster_is_replaced_node_by_node_and_back(replaced: Replaced, name: str) -> None:
    begun = time.monotonic()
    traffic = replaced.start(name)
    for number in range(ROUNDS):
        replaced.replace_all(kill=bool(number % 2))
        assert replaced.impls() == {"perseid"}
        replaced.replace_all(kill=not number % 2)
        assert replaced.impls() == {"java"}
    told = traffic.check()
    replaced.set.check_same()
    named = dict(+replaced.set.named) or "nothing"
    print(f"{2 * ROUNDS * len(replaced.nodes)} nodes replaced, {2 * ROUNDS} of them masters, {told},"
          f" explained: {named}, {time.monotonic() - begun:.0f} s")  # fmt: skip


class Pair(Replicated):
    """A master and its slave; without controllers nobody else becomes master."""

    def __init__(self, cluster: rig.Cluster, folder: Path) -> None:
        super().__init__(cluster, folder, "java", "java")
        self.all = [self.master]

    def await_master(self) -> rig.Process:
        return self.master

    def same(self) -> bool:
        return self.log(self.master) == self.log(self.slave)


@pytest.mark.long
def test_a_java_master_and_its_slave_are_replaced_and_back(
    perseid_cluster: rig.Cluster, java_agent: rig.Agent, workshop: Path, name: str
) -> None:
    """While the slave is away nothing is acknowledged, and while the master is."""
    begun = time.monotonic()
    pair, client = Pair(perseid_cluster, workshop / f"pair-{name}"), rig.Client(java_agent, perseid_cluster)
    try:
        pair.start()
        assert "success" in client.mqadmin("updateTopic", "-b", pair.master.address, "-t", name, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(perseid_cluster.namesrv, 105, {"topic": name}).code == 0)
        traffic = Traffic(pair, client, name)
        traffic.sent()
        for _ in range(2 * ROUNDS):
            for node in (pair.slave, pair.master):
                traffic.read()
                end(node)
                start_other(node)
                rig.until("the slave follows", pair.followed, 90)
                traffic.sent()
        assert pair.master.impl == pair.slave.impl == "java"
        told = traffic.check()
        rig.until("the slave has the same log", pair.same, 60)
        print(f"{4 * ROUNDS} nodes replaced, {told}, {time.monotonic() - begun:.0f} s")
    finally:
        client.close()
        pair.kill()
