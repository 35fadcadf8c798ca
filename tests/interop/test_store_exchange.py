"""One implementation writes a store folder, the other goes on with it: nothing is lost, changed or moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

pytestmark = pytest.mark.interop

QUEUES = 4
STORE = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 100}
VOLATILE = {"at", "props", "bornHost"}
DELAY_LEVEL = 3


@dataclass
class Exchange:
    """A broker whose folder passes from one implementation to the other; its address stays."""

    java: rig.Client
    broker: rig.Process
    topic: str

    def hand_over(self, impl: str, end: Callable[[rig.Process], int]) -> None:
        end(self.broker)
        self.broker = rig.Process("broker", impl, self.broker.folder, self.broker.properties)
        self.broker.start()
        self.await_route(self.topic)

    def await_route(self, topic: str) -> None:
        namesrv = self.java.cluster.namesrv
        rig.until(f"route of {topic}", lambda: rig.call(namesrv, 105, {"topic": topic}).code == 0, 60)

    def queue(self, queue_id: int) -> dict[str, Any]:
        return {"topic": self.topic, "broker": self.broker.folder.name, "queueId": queue_id}

    def write(self, word: str, rounds: int) -> list[dict[str, Any]]:
        """Every kind of message, each acknowledged."""
        sent = []
        for i in range(rounds):
            props = {"round": str(i), "名": "値"}
            sent += self.java.send(self.topic, [f"{word} {i} ü"], tags=f"T{i % 3}", keys=f"{word}{i} all", props=props)
            sent += self.java.send(self.topic, [f"{word} {i} " + "x" * 20_000])
            for kind in ("ZLIB", "LZ4", "ZSTD"):
                body = f"{word} {i} {kind} " * 200
                sent += self.java("send", messages=[{"topic": self.topic, "body": body}], compress=kind)
            batch = [{"topic": self.topic, "body": f"{word} {i}.{j}", "tags": "B", "keys": f"b{j}"} for j in range(5)]
            sent.append(self.java("send", mode="batch", messages=batch))
        assert all(r.get("status") == "SEND_OK" for r in sent), sent
        return sent

    def contents(self) -> dict[tuple[int, int], dict[str, Any]]:
        """All messages of the topic as a Java client reads them, by queue and offset."""
        found = {}
        for q in range(QUEUES):
            offset, end = 0, self.java.admin("maxOffset", self.queue(q))
            while offset < end:
                r = self.java("pull", queue=self.queue(q), offset=offset)
                assert r["next"] > offset, r
                offset = r["next"]
                for m in r["messages"]:
                    plain = {k: v for k, v in m.items() if k not in VOLATILE}
                    props = {k: v for k, v in m["props"].items() if k not in ("MIN_OFFSET", "MAX_OFFSET")}
                    found[q, m["queueOffset"]] = {**plain, "props": props}
        return found

    def check_lookups(self, sent: list[dict[str, Any]], word: str, rounds: int) -> None:
        admin = self.java.admin
        rig.until("indexed", lambda: len(admin("queryMessage", self.topic, "all", 99, 0, 1 << 50)) >= rounds)
        for i in (0, rounds - 1):
            found = admin("queryMessage", self.topic, f"{word}{i}", 32, 0, 1 << 50)
            assert [m["body"] for m in found] == [f"{word} {i} ü"]
        for r in sent[:: len(sent) // 4]:
            if "," not in r["offsetMsgId"]:
                m = admin("viewMessage", self.topic, r["offsetMsgId"])
                assert (m["queueId"], m["queueOffset"]) == (r["queueId"], r["queueOffset"])

    def times(self, contents: dict[tuple[int, int], dict[str, Any]]) -> None:
        """The search by time agrees with the store times."""
        for q in range(QUEUES):
            stamps = [m["storeTimestamp"] for (queue, _), m in sorted(contents.items()) if queue == q]
            middle = stamps[len(stamps) // 2]
            found = self.java.admin("searchLowerBoundaryOffset", self.queue(q), middle)
            assert found == stamps.index(middle)


@ways.folders_pass_on("perseid_to_java-stopped")
def test_folder_passes_on(
    java: rig.Client,
    cluster: rig.Cluster,
    workshop: Path,
    name: str,
    writer: str,
    reader: str,
    end: Callable[[rig.Process], int],
) -> None:
    broker = rig.broker(writer, workshop / f"store-{name}", cluster.namesrv, **STORE)
    x = Exchange(java, broker, f"t_{name}")
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        made = java.mqadmin("updateTopic", "-b", broker.address, "-t", x.topic, "-r", str(QUEUES), "-w", str(QUEUES))
        assert "success" in made
        group = {"groupName": name, "retryMaxTimes": 7}
        java.admin("createAndUpdateSubscriptionGroupConfig", broker.address, group)
        x.await_route(x.topic)
        _exchange(x, name, reader, end)
    finally:
        x.broker.kill()


def _exchange(x: Exchange, group: str, reader: str, end: Callable[[rig.Process], int]) -> None:
    sent = x.write("first", 20)
    total = 20 * 10
    rig.until("dispatched", lambda: len(x.contents()) == total)
    read = x.java.consume(x.topic, group, total)
    assert len(read) == total
    later = f"delayed_{group}"
    x.java.send(later, ["later"], delayLevel=DELAY_LEVEL)
    before = x.contents()
    x.hand_over(reader, end)

    assert x.contents() == before
    x.check_lookups(sent, "first", 20)
    x.times(before)
    config = x.java.admin("examineSubscriptionGroupConfig", x.broker.address, group)
    assert config["retryMaxTimes"] == 7
    if end is rig.Process.stop:
        for q in range(QUEUES):
            header = {"consumerGroup": group, "topic": x.topic, "queueId": q}
            answer = rig.call(x.broker.address, 14, header)
            assert int(answer.ext["offset"]) == len([1 for queue, _ in before if queue == q])
    x.await_route(later)
    assert {m["body"] for m in x.java.consume(later, f"{group}_later", 1, 40)} == {"later"}
    more = x.write("second", 5)
    rig.until("dispatched", lambda: len(x.contents()) == total + 50)
    after = x.contents()
    assert {k: after[k] for k in before} == before
    x.check_lookups(more, "second", 5)
    if end is rig.Process.stop:
        got = x.java.consume(x.topic, group, 50)
        assert len(got) == 50, "the group goes on where it was"
        back = "java" if reader == "perseid" else "perseid"
        x.hand_over(back, end)
        assert x.contents() == after
        x.java.send(x.topic, ["and on"])
        rig.until("dispatched", lambda: len(x.contents()) == total + 51)


@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_folder_with_extended_consume_queues_passes_on(java: rig.Client, cluster: rig.Cluster, workshop: Path) -> None:
    """Its units tell places of an extension, which Perseid does not read, in the tags' place: no message is missed."""
    topic, extended = "t_extended", {"enableConsumeQueueExt": "true"}
    broker = rig.broker("java", workshop / "store-extended", cluster.namesrv, **STORE, **extended)
    broker.start()
    x = Exchange(java, broker, topic)
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        java.mqadmin("updateTopic", "-b", broker.address, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
        x.await_route(topic)
        for number in range(40):
            java.send(topic, [f"{number}"], tags="AB"[number % 2])
        broker.properties.pop("enableConsumeQueueExt")
        x.hand_over("perseid", rig.Process.stop)
        for number in range(40, 60):
            java.send(topic, [f"{number}"], tags="AB"[number % 2])
        found = java.consume(topic, "g_extended", 30, expr="B")
        assert sorted(int(m["body"]) for m in found) == list(range(1, 60, 2))
    finally:
        x.broker.kill()
