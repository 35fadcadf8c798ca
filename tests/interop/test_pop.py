"""POP by stock Java clients, on Java's broker and on ours: what is handed out, until when, and what comes again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.wire import fastjson

pytestmark = pytest.mark.interop

INVISIBLE_MS = 5_000
LONG_MS = 60_000
"""Of what is done with while it is out: a busy machine takes its time."""
PATIENCE_S = 40
OUT_MS = 30_000
"""So long messages are out over a start of Java, which takes 5 to 40 s."""
IN_TIME_MS = 5_000
"""An ack so long before that is over comes in time."""


@pytest.fixture
def stocked(java: rig.Client, cluster: rig.Cluster, name: str) -> str:
    """A topic of four queues with twelve messages."""
    java.mqadmin("updateTopic", "-b", cluster.broker, "-t", name, "-r", "4", "-w", "4")
    java.mqadmin("updateSubGroup", "-b", cluster.broker, "-g", f"g_{name}")
    rig.until(f"route of {name}", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
    java.send(name, [f"m{i}" for i in range(12)])
    return name


class Popper:
    """One group's pops."""

    def __init__(self, java: rig.Client, cluster: rig.Cluster, topic: str, group: str) -> None:
        self._java = java
        self._where = {
            "topic": topic, "group": group, "broker": cluster.broker,
            "brokerName": cluster.broker_process.folder.name,
        }  # fmt: skip

    def pop(self, **more: Any) -> list[dict[str, Any]]:
        found = self._java("pop", **self._where, invisibleMs=more.pop("invisibleMs", INVISIBLE_MS), **more)
        assert found["status"] in ("FOUND", "POLLING_NOT_FOUND", "NO_NEW_MSG"), found
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    def until(self, wanted: int, **more: Any) -> list[dict[str, Any]]:
        got: list[dict[str, Any]] = []

        def enough() -> bool:
            got.extend(self.pop(waitMs=2_000, **more))
            return len(got) >= wanted

        rig.until(f"{wanted} popped messages", enough, PATIENCE_S)
        return got

    def ack(self, message: dict[str, Any]) -> str:
        return str(self._java("pop.ack", **self._where, handle=message["handle"]))

    def ack_all(self, messages: list[dict[str, Any]]) -> str:
        return str(self._java("pop.ackAll", **self._where, handles=[m["handle"] for m in messages]))

    def change(self, message: dict[str, Any], invisible_ms: int) -> dict[str, Any]:
        found: dict[str, Any] = self._java(
            "pop.change", **self._where, handle=message["handle"], invisibleMs=invisible_ms
        )
        return found


@pytest.fixture
def popper(java: rig.Client, cluster: rig.Cluster, stocked: str) -> Popper:
    return Popper(java, cluster, stocked, f"g_{stocked}")


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(m["body"] for m in messages)


def test_pop_ack_and_what_comes_again(popper: Popper) -> None:
    got = popper.until(8, count=2, invisibleMs=LONG_MS)
    rest = popper.until(12 - len(got))
    assert bodies(got + rest) == sorted(f"m{i}" for i in range(12))
    for message in got[:4]:
        assert popper.ack(message) == "OK"
    assert popper.ack_all(got[4:]) == "OK"
    again = popper.until(len(rest), invisibleMs=LONG_MS)
    assert bodies(again) == bodies(rest)
    first = {m["body"]: m for m in rest}
    for message in again:
        assert message["reconsumeTimes"] == 1 and message["topic"] == got[0]["topic"]
        assert message["at"] - first[message["body"]]["at"] >= INVISIBLE_MS - 500
        assert popper.ack(message) == "OK"
    assert popper.pop(waitMs=INVISIBLE_MS + 4_000) == []


def test_another_time_for_a_message(popper: Popper) -> None:
    got = popper.until(12, invisibleMs=LONG_MS)
    changed = popper.change(got[0], 3_000)
    assert changed["status"] == "OK" and changed["handle"]
    for message in got[1:]:
        popper.ack(message)
    [again] = popper.until(1)
    assert again["body"] == got[0]["body"] and again["at"] - got[0]["at"] >= 2_500
    assert popper.ack(again) == "OK"


def test_in_order(popper: Popper, java: rig.Client, cluster: rig.Cluster) -> None:
    first = popper.pop(queueId=0, count=2, ordered=True, invisibleMs=LONG_MS)
    assert len(first) == 2 and popper.pop(queueId=0, ordered=True) == []
    for message in first:
        assert popper.ack(message) == "OK"
    [third] = popper.pop(queueId=0, count=2, ordered=True, invisibleMs=2_000)
    [again] = popper.until(1, queueId=0, ordered=True)
    assert (again["body"], again["reconsumeTimes"]) == (third["body"], 1)


def test_a_push_consumer_that_pops(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    """setmsgmode POP, and the broker's own rebalance: what fails once comes again."""
    java.mqadmin("updateTopic", "-b", cluster.broker, "-t", name, "-r", "4", "-w", "4")
    java.mqadmin("updateSubGroup", "-b", cluster.broker, "-g", name)
    said = java.mqadmin("setConsumeMode", "-b", cluster.broker, "-t", name, "-g", name, "-m", "POP", "-q", "0")
    assert "success" in said.lower(), said
    rig.until(f"route of {name}", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
    handles = [java("push.start", topic=name, group=name, popping=True, failures=1) for _ in range(2)]
    java.send(name, [f"m{i}" for i in range(8)])

    def seen() -> list[dict[str, Any]]:
        return [m for handle in handles for m in java.collect(handle, 0)]

    rig.until("each message twice", lambda: len(seen()) >= 16, 90)
    assert {(m["body"], m["reconsumeTimes"]) for m in seen()} == {(f"m{i}", n) for i in range(8) for n in (0, 1)}


# ---- from one implementation to the other, and kills ----


class Passed:
    """A broker whose folder passes from one implementation to the other; its address stays."""

    def __init__(self, java: rig.Client, cluster: rig.Cluster, workshop: Path, impl: str, topic: str) -> None:
        self.java, self.cluster, self.topic = java, cluster, topic
        self.broker = rig.broker(impl, workshop / f"popped-{topic}", cluster.namesrv)
        self.start()
        java.mqadmin("updateTopic", "-b", self.broker.address, "-t", topic, "-r", "1", "-w", "1")
        java.mqadmin("updateSubGroup", "-b", self.broker.address, "-g", f"g_{topic}")
        rig.until(f"route of {topic}", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0)
        where = replace(cluster, broker=self.broker.address, broker_process=self.broker)
        self.popper = Popper(java, where, topic, f"g_{topic}")

    def start(self) -> None:
        self.broker.start()
        rig.await_registered(self.cluster.namesrv, self.broker.folder.name)

    def hand_over(self, impl: str) -> None:
        self.broker = rig.Process("broker", impl, self.broker.folder, self.broker.properties)
        self.start()
        rig.until("route again", lambda: rig.call(self.cluster.namesrv, 105, {"topic": self.topic}).code == 0, 60)

    def saved_offset(self) -> int | None:
        """The group's offset in the topic's queue, as the broker's file has it."""
        path = self.broker.folder / "store/config/consumerOffset.json"
        table = fastjson.loads(path.read_bytes())["offsetTable"] if path.exists() else {}
        found: int | None = table.get(f"{self.topic}@g_{self.topic}", {}).get("0")
        return found

    def revive_records(self) -> int:
        """How many records the revive log has."""
        total = 0
        for queue_id in range(8):
            fields = {"topic": "rmq_sys_REVIVE_LOG_InteropCluster", "queueId": str(queue_id)}
            total += int(rig.call(self.broker.address, 30, fields).ext.get("offset", 0))
        return total


@pytest.mark.parametrize("cluster", ["perseid"], indirect=True)
@pytest.mark.parametrize("killed", ways.in_ci({"stopped": False, "killed": True}, "stopped"))
def test_java_goes_on_where_we_were(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, killed: bool
) -> None:
    passed = Passed(java, cluster, workshop, "perseid", name)
    try:
        java.send(name, [f"m{i}" for i in range(8)])
        got = passed.popper.until(8, invisibleMs=OUT_MS, count=4)
        assert passed.popper.ack(got[0]) == "OK"
        assert passed.popper.ack_all(got[1:3]) == "OK"  # one record, as for acks that share a turn
        if killed:  # Java trusts the saved offsets after a kill
            rig.until("offsets are saved", lambda: passed.saved_offset() == 8)
            passed.broker.kill()
        else:
            passed.broker.stop()
        passed.hand_over("java")
        java.send(name, ["new"])
        came, left = passed.popper.until(1), 3
        in_time = time.time() * 1000 < got[3]["at"] + OUT_MS - IN_TIME_MS
        if bodies(came) == ["new"] and in_time:  # else Java took about as long to start as the others stay invisible
            assert passed.popper.ack(got[3]) == "OK"
            left = 4
        taken: list[dict[str, Any]] = []
        while len(taken) < 9 - left:
            came = came or passed.popper.until(1)
            for message in came:
                assert passed.popper.ack(message) == "OK"
            taken, came = taken + came, []
        assert bodies(taken) == sorted(["new", *bodies(got[left:])])
        again = [m["at"] for m in taken if m["body"] != "new"]
        assert min(again) >= got[0]["at"] + OUT_MS - 1_000, "what is out stays out"
        assert passed.popper.pop(waitMs=8_000) == []
    finally:
        passed.broker.kill()


@pytest.mark.parametrize("cluster", ["perseid"], indirect=True)
def test_we_go_on_where_java_was(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str) -> None:
    passed = Passed(java, cluster, workshop, "java", name)
    try:
        java.send(name, [f"m{i}" for i in range(8)])
        got = passed.popper.until(8, invisibleMs=8_000, count=4)
        for message in got[:3]:
            assert passed.popper.ack(message) == "OK"
        rig.until("the timer wheel brings checkpoints and acks", lambda: passed.revive_records() >= 5, 60)
        passed.broker.stop()
        passed.hand_over("perseid")
        again = passed.popper.until(5)
        assert bodies(again) == bodies(got[3:])
        assert all(m["reconsumeTimes"] == 1 and m["at"] - got[0]["at"] >= 7_500 for m in again)
        for message in again:
            assert passed.popper.ack(message) == "OK"
        assert passed.popper.pop(waitMs=8_000) == []
    finally:
        passed.broker.kill()


@pytest.mark.parametrize("cluster", ["perseid"], indirect=True)
def test_nothing_popped_is_lost_by_kills(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str) -> None:
    passed = Passed(java, cluster, workshop, "perseid", name)
    count = rig.many(300, 20_000)
    try:
        where = passed.broker.address
        java.mqadmin("setConsumeMode", "-b", where, "-t", name, "-g", f"g_{name}", "-m", "POP", "-q", "0")
        java.send(name, [f"m{i}" for i in range(count)])
        handle = java("push.start", topic=name, group=f"g_{name}", popping=True, invisibleMs=10_000, brief=True)
        for part in (4, 2):
            java.collect(handle, count // part, 90)
            passed.broker.kill()
            passed.start()

        def seen() -> int:
            return len({m["body"] for m in java.collect(handle, 0)})

        rig.until(f"all {count} messages", lambda: seen() == count, 120)
    finally:
        passed.broker.kill()
