"""Our brokers under controllers: masters killed back and forth under load, alone and with Java brokers.

A stock Java producer's messages are numbered; nothing acknowledged is missing, logs are the same byte for byte in the
end, and so are the files of epochs. A Java replica that follows may lose or mislabel by B2, B9 or B10: where the log of
one shows it, that is counted and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
from controllers import Controllers, brokers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(600, 3_600), func_only=True)]

SETS = {
    "java_controllers-perseid_perseid": (("java",), ("perseid", "perseid")),
    "java_controllers-java_perseid": (("java",), ("java", "perseid")),
    "perseid_controllers-perseid_perseid_perseid": (("perseid",) * 3, ("perseid",) * 3),
}
COUNT = rig.many(3_000, 30_000)
KILLS = rig.many(2, 20)
AWAIT_SECONDS = rig.many(180, 1_800)
EPOCH_FILE = "epochFileCheckpoint"


class Set:
    """A broker set and its controllers."""

    def __init__(self, cluster: rig.Cluster, folder: Path, kinds: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        self.controllers = Controllers(folder / "ctl", kinds[0])
        self.name = f"set-{folder.name}"
        self.all = brokers(cluster, self.controllers, folder / self.name, kinds[1])
        self.has_java = "java" in kinds[1]

    def start(self) -> Set:
        self.controllers.start()
        for broker in self.all:
            broker.start()
        self.await_in_sync()
        return self

    def kill(self) -> None:
        for broker in self.all:
            if broker.running:
                broker.kill()
        self.controllers.kill()

    def master(self) -> rig.Process | None:
        address = self.controllers.info(self.name)[0]
        return next((broker for broker in self.all if broker.address == address), None)

    def await_in_sync(self) -> None:
        everyone = list(range(1, len(self.all) + 1))
        rig.until("all are in sync", lambda: self.controllers.info(self.name)[2] == everyone, 120)

    def logs(self) -> list[bytes]:
        """Each broker's log, as its files have it."""
        found = []
        for broker in self.all:
            files = sorted((broker.folder / "store" / "commitlog").iterdir())
            found.append(b"".join(file.read_bytes() for file in files).rstrip(b"\0"))
        return found

    def epochs(self) -> list[bytes]:
        return [(broker.folder / "store" / EPOCH_FILE).read_bytes() for broker in self.all]


@pytest.fixture(params=SETS.values(), ids=SETS.keys())
def brokers_set(
    request: pytest.FixtureRequest, perseid_cluster: rig.Cluster, workshop: Path, name: str
) -> Iterator[Set]:
    made = Set(perseid_cluster, workshop / f"auto-{name}", request.param)
    try:
        yield made.start()
    finally:
        made.kill()


def test_masters_are_killed_back_and_forth_and_nothing_is_lost(
    brokers_set: Set, perseid_cluster: rig.Cluster, java_agent: rig.Agent, name: str
) -> None:
    client = rig.Client(java_agent, perseid_cluster)
    try:
        master = rig.until("a master", brokers_set.master, 60)
        assert "success" in client.mqadmin("updateTopic", "-b", master.address, "-t", name, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(perseid_cluster.namesrv, 105, {"topic": name}).code == 0)
        there = f'"{name}":'.encode()
        knows = lambda: all(there in rig.call(b.address, 21).body for b in brokers_set.all)  # noqa: E731
        rig.until("all know the topic", knows, 100)
        client("flood.start", name=name, topic=name, count=COUNT, pollMs=1_000)
        epochs = [brokers_set.controllers.info(brokers_set.name)[1]]
        for number in range(KILLS):
            acked = (number + 1) * COUNT // (KILLS + 2)
            client("flood.await", name=name, acked=acked, timeoutMs=AWAIT_SECONDS * 1000, wait=AWAIT_SECONDS + 30)
            old = rig.until("a master", brokers_set.master, 60)
            old.kill()
            rig.until("another master", lambda gone=old: brokers_set.master() not in (None, gone), 60)
            epochs.append(brokers_set.controllers.info(brokers_set.name)[1])
            old.start()
            brokers_set.await_in_sync()
        assert epochs == sorted(set(epochs)), "each election has an epoch of its own"
        done = client("flood.end", name=name, timeoutMs=2 * AWAIT_SECONDS * 1000, wait=2 * AWAIT_SECONDS + 30)
        assert len(done["acked"]) == COUNT, f"{len(done['acked'])} acknowledged, {done['retries']} retries"
        last = rig.until("a master", brokers_set.master, 60)
        ends = [rig.call(last.address, 30, {"topic": name, "queueId": queue}).ext["offset"] for queue in range(4)]
        got = client.consume(name, f"g_{name}", sum(map(int, ends)), rig.many(90, 300))
        missing = set(done["acked"]) - {m["body"].partition(" ")[0] for m in got}
        assert not missing, f"{len(missing)} acknowledged messages are missing"
        same = lambda: len(set(brokers_set.logs())) == 1  # noqa: E731
        rig.until("all logs are the same", same, 60)
        files = brokers_set.epochs()
        if brokers_set.has_java and len(set(files)) > 1:  # B9, B10: its list lacks an epoch, or names one for another
            print(f"epochs of a Java replica differ (B9, B10): {files}")
        else:
            assert len(set(files)) == 1, files
    finally:
        client.close()
