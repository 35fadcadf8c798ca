"""Replicated brokers without sockets: `python bench/in_process_replicated.py` times what each node's turns cost.

Clients send one message each and wait for its answer, in rounds: one read of each client comes in, and what nodes
write to each other is handed over, a turn for all that waits at a node, until all answers are there. CPU time of
`handle`, the first decile of many short runs, in µs a message; turns a message tell how far a turn is shared. Flushes
are taken to be done at once, unless `--sync`: then they are, on the calling thread, and counted apart.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from in_process import EXT, frame
from servers import HERE, cache_folder

sys.path.insert(0, str(HERE.parent / "src"))

from perseid.base.machine import Connect, Feed, Flush, Frames, Opened, Reads, SaveState, Start, Tick, Write
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.disk.real import RealDisk
from perseid.raft.config import RaftConfig
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig

RUNS, ROUNDS = 60, 16
HA = "127.0.0.1:10912"
SETTLE_ROUNDS = 400
"""Ticks, of 10 ms each, until the nodes know each other."""
GROUP = ";".join(f"n{i}-127.0.0.1:{40911 + i}" for i in range(3))


class Node:
    """A broker, what waits for it, and what it has taken."""

    def __init__(self, name: str, broker: Broker, listening: dict[str, str]) -> None:
        """`listening`: listener by address."""
        self.name, self.broker, self.listening = name, broker, listening
        self.inbox: list[Any] = []
        self.links: dict[int, tuple[Node, int]] = {}
        self.seconds = self.syncing = 0.0
        self.turns = 0
        self.answers = 0
        self.next_conn = 1_000


class Cluster:
    """Nodes with wires between them."""

    def __init__(self, nodes: list[Node], *, sync: bool) -> None:
        self.nodes, self._sync = nodes, sync
        self.now = int(time.time() * 1000)
        self.profile: cProfile.Profile | None = None
        self.number = 0
        self.body = b"x" * 1024
        for node in nodes:
            node.inbox.append(Start())
        self.run()

    def run(self) -> None:
        """Give nodes turns until nothing waits."""
        waiting = deque(self.nodes)
        while waiting:
            node = waiting.popleft()
            if node.inbox:
                self._turn(node)
                waiting.extend(self.nodes)

    def tick(self) -> None:
        self.now += 10
        for node in self.nodes:
            due = node.broker.next_deadline()
            if due is not None and due <= self.now:
                node.inbox.append(Tick())
        self.run()

    def _turn(self, node: Node) -> None:
        """All reads that wait are one event, as the driver has it."""
        inbox, node.inbox = node.inbox, []
        reads = [event for event in inbox if isinstance(event, Frames)]
        others = [event for event in inbox if not isinstance(event, Frames)]
        for event in (*others, *([Reads(reads) if len(reads) > 1 else reads[0]] if reads else [])):
            node.turns += 1
            self._carry_out(node, self._handle(node, event))

    def _handle(self, node: Node, event: Any) -> list[Any]:
        if self.profile is not None:
            self.profile.enable()
        began = time.thread_time()
        effects = node.broker.handle(event, self.now)
        node.broker.next_deadline()
        node.seconds += time.thread_time() - began
        if self.profile is not None:
            self.profile.disable()
        return effects

    def _carry_out(self, node: Node, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                self._write(node, effect)
            elif isinstance(effect, Flush | SaveState):
                if self._sync and isinstance(effect, Flush):
                    began = time.thread_time()
                    for file in effect.files:
                        file.sync()
                    node.syncing += time.thread_time() - began
                self._carry_out(node, effect.then)
            elif isinstance(effect, Feed):
                node.inbox.append(effect.event)
            elif isinstance(effect, Connect):
                self._connect(node, effect)

    def _write(self, node: Node, effect: Write) -> None:
        if effect.conn not in node.links:
            node.answers += 1
            return
        other, conn = node.links[effect.conn]
        pieces = effect.data if isinstance(effect.data, list) else [effect.data]
        other.inbox.append(Frames(conn, b"".join(pieces)))

    def _connect(self, node: Node, effect: Connect) -> None:
        for other in self.nodes:
            if effect.address in other.listening:
                break
        else:
            return
        mine, theirs = node.next_conn, other.next_conn
        node.next_conn += 1
        other.next_conn += 1
        node.links[mine], other.links[theirs] = (other, theirs), (node, mine)
        listener = other.listening[effect.address]
        other.inbox.append(Opened(theirs, f"127.0.0.1:{mine}", effect.address, listener, ""))
        node.inbox.append(Opened(mine, effect.address, f"127.0.0.1:{mine}", effect.listener, effect.address))

    # ---- load ----

    def open(self, leader: Node, connections: int) -> None:
        for i in range(connections):
            leader.inbox.append(Opened(1 + i, f"127.0.0.1:{50_000 + i}", "127.0.0.1:10911", "main", ""))
        self.run()

    def round(self, leader: Node, connections: int) -> None:
        """One message of each client; all are answered then."""
        before = leader.answers
        for i in range(connections):
            self.number += 1
            ext = EXT.format(queue=self.number % 8, now=self.now, number=self.number, tag="A")
            leader.inbox.append(Frames(1 + i, frame(310, ext, self.number, self.body)))
        self.run()
        self.now += 1
        deadline = self.now + 2_000
        while leader.answers - before < connections:
            self.tick()
            assert self.now < deadline, f"{leader.answers - before} answers to {connections} sends"


def of_a_pair(folder: Path, *, sync: bool) -> tuple[Cluster, Node]:
    """A SYNC_MASTER and its slave."""
    replication = ReplicationConfig(ha_master_address=HA, in_sync_replicas=2)
    made = []
    for name, role, broker_id in (("master", "SYNC_MASTER", 0), ("slave", "SLAVE", 1)):
        config = BrokerConfig(broker_name="broker-a", broker_role=role, broker_id=broker_id)
        broker = Broker(config, _store(), RealDisk(str(folder / name)), Random(1), replication=replication)
        made.append(Node(name, broker, {HA: "ha"} if name == "master" else {}))
    cluster = Cluster(made, sync=sync)
    for _ in range(SETTLE_ROUNDS):
        cluster.tick()
        if cluster.nodes[1].broker.parts.mode.receiver.following:
            return cluster, made[0]
    raise SystemExit("the slave does not follow")


def of_a_group(folder: Path, *, sync: bool) -> tuple[Cluster, Node]:
    """Three members of a DLedger group."""
    made = []
    for i in range(3):
        config = BrokerConfig(broker_name="broker-a")
        raft = RaftConfig(group="broker-a", self_id=f"n{i}", peers=GROUP)
        broker = Broker(config, _store(), RealDisk(str(folder / f"n{i}")), Random(i), raft=raft)
        made.append(Node(f"n{i}", broker, {f"127.0.0.1:{40911 + i}": "dledger"}))
    cluster = Cluster(made, sync=sync)
    for _ in range(10 * SETTLE_ROUNDS):
        cluster.tick()
        for node in made:
            if node.broker.parts.mode.member.is_master:
                return cluster, node
    raise SystemExit("the group has no leader")


def _store() -> StoreConfig:
    return StoreConfig(commit_log_file_bytes=256 << 20)


def measure(cluster: Cluster, leader: Node, connections: int, title: str) -> None:
    """Print what each node takes a message."""
    rounds = max(1, 8 * ROUNDS // connections)
    seen: dict[str, list[float]] = {node.name: [] for node in cluster.nodes}
    turns: Counter[str] = Counter()
    syncing: Counter[str] = Counter()
    for _ in range(RUNS):
        before = [(node.seconds, node.turns, node.syncing) for node in cluster.nodes]
        for _ in range(rounds):
            cluster.round(leader, connections)
        for node, (seconds, count, synced) in zip(cluster.nodes, before, strict=True):
            seen[node.name].append((node.seconds - seconds) / rounds / connections)
            turns[node.name] += node.turns - count
            syncing[node.name] += node.syncing - synced
    messages = RUNS * rounds * connections
    costs = {name: sorted(times)[RUNS // 10] * 1e6 for name, times in seen.items()}
    for name, us in costs.items():
        synced = f", {syncing[name] / messages * 1e6:6.2f} µs in fdatasync" if syncing[name] else ""
        print(f"{title:32} {name:8} {us:7.2f} µs a message, {turns[name] / messages:5.3f} turns{synced}")
    print(f"{title:32} {'all':8} {sum(costs.values()):7.2f} µs a message")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="pair,group")
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--sync", action="store_true", help="sync files as asked, and count it apart")
    parser.add_argument("--profile", action="store_true", help="cProfile instead of times")
    args = parser.parse_args()
    cache_folder().mkdir(parents=True, exist_ok=True)
    for kind in args.kinds.split(","):
        folder = Path(tempfile.mkdtemp(prefix=f"core-{os.getpid()}-", dir=cache_folder()))
        try:
            cluster, leader = (of_a_pair if kind == "pair" else of_a_group)(folder, sync=args.sync)
            most = [int(text) for text in args.connections.split(",")]
            cluster.open(leader, max(most))
            for _ in range(20):
                cluster.round(leader, max(most))
            if args.profile:
                cluster.profile = cProfile.Profile()
                for _ in range(2_000 // max(most)):
                    cluster.round(leader, max(most))
                pstats.Stats(cluster.profile).sort_stats(os.environ.get("SORT","tottime")).print_stats(int(os.environ.get("TOP","45")))
                continue
            for connections in most:
                measure(cluster, leader, connections, f"{kind}, {connections} clients")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
