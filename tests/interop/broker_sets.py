"""Broker sets under controllers, loads that go on until they are ended, and what the log of a Java replica admits.

Three of the original's defects a Java replica under a controller may show. Only what its own log proves is excused:

B2   it acknowledged alone when it had lost a replica's connection, before the controllers agreed, who then elected that
     replica
B9   it kept an epoch of which it has no byte, and refused the next one, which begins at the same byte; or, where that
     was its only one, it found none in common with its master
B10  its Java master labelled an epoch's last packet with the next epoch, so that it never heard of the first one
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import rig
from controllers import CLUSTER, ELECT, MILLIS, Controllers, brokers

from perseid.wire.ha_auto import EpochEntry, decode_epoch_file
from perseid.wire.ids import parse_offset_message_id

EPOCH_FILE = "epochFileCheckpoint"
LOG_FOLDERS = ("commitlog", "consumequeue", "index")
STATE_FILES = (EPOCH_FILE, f"{EPOCH_FILE}.bak", "checkpoint")
ENDLESS = 10_000_000
PAUSE_MS = 20
"""Between two messages of one of the load's four threads."""
MORE = rig.many(200, 400)
"""Acknowledgements that show that it goes on."""
ACKNOWLEDGED_SECONDS = 60

_ENTRY = r"EpochEntry\{epoch=(\d+), startOffset=(\d+)"
_REFUSED = re.compile(rf"The appending entry's lastEpoch or endOffset {_ENTRY}.*? lastEntry {_ENTRY}")
_OFFERED = re.compile(_ENTRY)
_MASTER = re.compile(r"Change ha to master success, newMasterEpoch:\d+, startOffset:(\d+)")
_SET = re.compile(r"Notify the syncStateSet has been changed into \[(.*?)\]")
_STUCK = re.compile(r"Failed to find a consistent point .* slaveEpoch:(.*)")
_EPOCH = re.compile(rf"{_ENTRY}, endOffset=(\d+)")
STUCK = 2
"""Times that a replica found no epoch in common, until it is believed that it never will."""


class JavaLog:
    """What a Java replica says that it did."""

    def __init__(self, text: str) -> None:
        self.refused: set[EpochEntry] = set()
        self.kept: set[EpochEntry] = set()
        """Those because of which others were refused."""
        self.offered: set[EpochEntry] = set()
        """By its masters."""
        stuck = [_EPOCH.findall(epochs) for epochs in _STUCK.findall(text)]
        self.stuck = len(stuck)
        """How often it found no epoch in common with its master."""
        self.without_bytes = bool(stuck) and all(start == end for _, start, end in stuck[-1])
        """Its epochs, then, had no byte."""
        self._lives: list[tuple[int, bool]] = []
        """As master: where its log ended then; and was the last thing that it did to its set to make it smaller?"""
        members = 1
        for line in text.splitlines():
            if found := _REFUSED.search(line):
                epoch, start, last, at = map(int, found.groups())
                self.refused.add(EpochEntry(epoch, start))
                self.kept.add(EpochEntry(last, at))
            elif "Receive handshake" in line:
                self.offered |= {EpochEntry(int(epoch), int(start)) for epoch, start in _OFFERED.findall(line)}
            elif found := _MASTER.search(line):
                self._lives.append((int(found[1]), False))
                members = 1
            elif self._lives and (found := _SET.search(line)):
                was, members = members, len(found[1].split(","))
                self._lives[-1] = (self._lives[-1][0], members < was)

    def alone_at(self, offset: int) -> bool:
        """Had it shrunk its set, and not grown it again, in the life as master in which it wrote this byte?"""
        lives = [shrunk for start, shrunk in self._lives if start <= offset]
        return bool(lives) and lives[-1]


def store_log(broker: rig.Process) -> Path:
    return broker.folder / "logs" / "rocketmqlogs" / "store.log"


def java_log(broker: rig.Process) -> JavaLog:
    path = store_log(broker)
    return JavaLog(path.read_text(errors="replace") if path.exists() else "")


def name_of(entry: EpochEntry, logs: Sequence[JavaLog]) -> str | None:
    """Which defect explains that one replica has this entry, and another one has not; None: none."""
    if any(entry in log.refused or entry in log.kept for log in logs):
        return "B9"
    # our masters label rightly, so it takes two Java replicas
    return "B10" if len(logs) > 1 and any(entry in log.offered for log in logs) else None


class Load:
    """Numbered messages of a stock Java producer, each sent until it is acknowledged."""

    def __init__(self, client: rig.Client, topic: str, **more: object) -> None:
        self._client, self.topic = client, topic
        self._name = f"{topic}{more.get('prefix', '')}"
        self.retries = 0
        client("flood.start", name=self._name, topic=topic, pollMs=1_000,
               **{"count": ENDLESS, "pauseMs": PAUSE_MS, **more})  # fmt: skip

    def more(self, count: int = MORE) -> None:
        """Wait until so many more are acknowledged."""
        self.reach(self._acked(0, 0) + count)

    def reach(self, wanted: int) -> None:
        """Wait until so many are acknowledged."""
        seconds = rig.PATIENCE * ACKNOWLEDGED_SECONDS
        found = self._acked(wanted, seconds)
        assert found >= wanted, f"{found} of {wanted} acknowledged within {seconds} s"

    def _acked(self, wanted: int, seconds: int) -> int:
        return int(
            self._client("flood.await", name=self._name, acked=wanted, timeoutMs=seconds * 1000, wait=seconds + 30)
        )

    def end(self, seconds: int = 0) -> dict[str, str]:
        """What was acknowledged, and as which message of which broker; after `seconds`, or when all of it was."""
        done = self._client("flood.end", name=self._name, timeoutMs=seconds * 1000, wait=seconds + 60)
        self.retries = done["retries"]
        return {name: done["ids"][name] for name in done["acked"]}


class BrokerSet:
    """A broker set and its controllers."""

    def __init__(
        self, cluster: rig.Cluster, folder: Path, controllers: Sequence[str], kinds: Sequence[str], **properties: object
    ) -> None:
        self.cluster, self.folder = cluster, folder
        self.controllers = Controllers(folder / "ctl", controllers)
        self.name = f"set-{folder.name}"
        self.all = brokers(cluster, self.controllers, folder / self.name, kinds, **properties)
        self.named: Counter[str] = Counter()
        """Defects of Java replicas that were survived, by their names."""

    def start(self) -> BrokerSet:
        self.controllers.start()
        for broker in self.all:
            broker.start()
        self.await_in_sync()
        return self

    def add(self, kind: str) -> None:
        """One more, with nothing in it."""
        more = brokers(self.cluster, self.controllers, self.folder / self.name, (kind,), first=len(self.all))
        self.all += more
        more[0].start()
        self.await_in_sync()

    def kill(self) -> None:
        for broker in self.all:
            if broker.running:
                broker.kill()
        self.controllers.kill()

    def java_logs(self) -> list[JavaLog]:
        return [java_log(broker) for broker in self.all if broker.impl == "java"]

    # ---- roles ----

    def epoch(self) -> int:
        return self.controllers.info(self.name)[1]

    def master(self) -> rig.Process | None:
        address = self.controllers.info(self.name)[0]
        return next((broker for broker in self.all if broker.address == address), None)

    def await_master(self, gone: rig.Process | None = None) -> rig.Process:
        """Who is master; somebody else than `gone`."""
        found: rig.Process = rig.until("a master", lambda: (m := self.master()) is not gone and m, 60)
        return found

    def elect(self, wanted: rig.Process) -> None:
        """Have it made master, as an operator would; it is in sync. Then wait until all are in sync with it."""
        replicas = self.controllers.sets([self.name])[self.name]["inSyncReplicas"]
        number = {one["brokerAddress"]: one["brokerId"] for one in replicas}[wanted.address]
        ext: dict[str, object] = {"brokerName": self.name, "clusterName": CLUSTER, "designateElect": "true"}

        def elected() -> bool:
            self.controllers.ask(ELECT, {**ext, "brokerId": number, "invokeTime": MILLIS})
            return self.master() is wanted

        rig.until(f"{wanted.folder.name} is master", elected, 60)
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Wait until all are. A Java replica without an epoch in common (B9, B10) is emptied once, as operators do."""
        everyone = list(range(1, len(self.all) + 1))
        in_sync = lambda: self.controllers.info(self.name)[2] == everyone  # noqa: E731
        rig.until("all are in sync", lambda: in_sync() or self._stuck(), 60)
        for broker in self._stuck():
            assert java_log(broker).without_bytes or len(self.java_logs()) > 1, f"{broker.log}: no epoch in common"
            self.named[f"{'B9' if java_log(broker).without_bytes else 'B10'}: no epoch in common"] += 1
            self._empty(broker)
        rig.until("all are in sync, some of them from nothing", in_sync, 60)

    def _stuck(self) -> list[rig.Process]:
        return [broker for broker in self.all if broker.impl == "java" and java_log(broker).stuck >= STUCK]

    def _empty(self, broker: rig.Process) -> None:
        broker.kill()
        for folder in LOG_FOLDERS:
            shutil.rmtree(broker.folder / "store" / folder, ignore_errors=True)
        for file in STATE_FILES:
            (broker.folder / "store" / file).unlink(missing_ok=True)
        log = store_log(broker)
        log.rename(log.with_name(f"store-{self.named.total()}.log"))
        broker.start()

    # ---- what is in it ----

    def make_topic(self, client: rig.Client, topic: str) -> None:
        master = self.await_master()
        assert "success" in client.mqadmin("updateTopic", "-b", master.address, "-t", topic, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(self.cluster.namesrv, 105, {"topic": topic}).code == 0)
        there = f'"{topic}":'.encode()
        rig.until("all know the topic", lambda: all(there in rig.call(b.address, 21).body for b in self.all), 100)

    def logs(self) -> list[bytes]:
        """Each broker's log, as its files have it."""
        found = []
        for broker in self.all:
            files = sorted((broker.folder / "store" / "commitlog").iterdir())
            found.append(b"".join(file.read_bytes() for file in files).rstrip(b"\0"))
        return found

    def epochs(self) -> list[list[EpochEntry]]:
        return [decode_epoch_file((broker.folder / "store" / EPOCH_FILE).read_bytes()) for broker in self.all]

    def stored(self, topic: str) -> int:
        """How many messages the topic has at the master: those that were sent again count twice."""
        master = self.await_master()
        ends = [rig.call(master.address, 30, {"topic": topic, "queueId": queue}).ext["offset"] for queue in range(4)]
        return sum(map(int, ends))

    # ---- what may be wrong with it ----

    def check_lost(self, client: rig.Client, topic: str, acked: dict[str, str]) -> None:
        """All that was acknowledged is to be read; but for what a Java master acknowledged alone (B2)."""
        got = client.consume(topic, f"g_{topic}", self.stored(topic), rig.many(90, 300), brief=True)
        lost = acked.keys() - {message["body"] for message in got}
        unexplained = [name for name in lost if not self._alone(acked[name])]
        assert not unexplained, f"{len(unexplained)} acknowledged messages are missing: {unexplained[:10]}"
        self.named["B2: acknowledged alone"] += len(lost)

    def _alone(self, message_id: str) -> bool:
        (_, port), offset = parse_offset_message_id(message_id)
        by = next(broker for broker in self.all if broker.port == port)
        return by.impl == "java" and java_log(by).alone_at(offset)

    def check_same(self) -> None:
        """All logs are the same byte for byte, and so are the epochs; but for those of a Java replica (B9, B10)."""
        rig.until("all logs are the same", lambda: len(set(self.logs())) == 1, 60)
        rig.until("the epochs are the same, or explained", lambda: None not in self._differences().values(), 30)
        self.named.update(f"{name}: an epoch" for name in self._differences().values())

    def _differences(self) -> dict[EpochEntry, str | None]:
        lists = [set(entries) for entries in self.epochs()]
        logs = self.java_logs()
        return {entry: name_of(entry, logs) for entry in set.union(*lists) - set.intersection(*lists)}


def kill_masters(of: BrokerSet, client: rig.Client, topic: str, kills: int, *, lead: bool = False) -> None:
    """Kill masters under load, one after the other, as soon as all are in sync; nothing acknowledged is lost.

    After every second kill the active controller is killed too, where others are left. With `lead` another one becomes
    active before each instead, in turn.
    """
    begun = time.monotonic()
    of.make_topic(client, topic)
    load = Load(client, topic)
    epochs, controllers = [of.epoch()], 0
    for number in range(kills):
        load.more()
        if lead:  # with nothing under way: a Java member that is told of a commit beyond its log's end applies what is
            of.controllers.lead(number % len(of.controllers.members))  # before that twice (B29)
            load.more()
        old = of.await_master()
        old.kill()
        of.await_master(gone=old)
        epochs.append(of.epoch())
        if not lead and number % 2 and len(of.controllers.members) > 1:
            load.more()
            active = rig.until("an active controller", of.controllers.active, 60)
            active.kill()
            rig.until("another active controller", of.controllers.active, 60)
            active.start()
            controllers += 1
        old.start()
        of.await_in_sync()
    load.more()
    acked = load.end()
    of.await_in_sync()
    assert epochs == sorted(set(epochs)), f"each election has an epoch of its own: {epochs}"
    of.check_lost(client, topic, acked)
    of.check_same()
    print(
        f"{kills} masters and {controllers} active controllers killed, {len(acked)} acknowledged, {load.retries} failed"
        f" sends, explained: {dict(+of.named) or 'nothing'}, {time.monotonic() - begun:.0f} s"
    )
