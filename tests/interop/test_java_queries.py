"""Finding messages and offsets with the stock Java admin client: by key, id, time."""

from __future__ import annotations

import time

import pytest
import rig

pytestmark = pytest.mark.interop

FAR = 1 << 50


def _queue(cluster: rig.Cluster, topic: str, queue_id: int) -> dict[str, object]:
    return {"topic": topic, "broker": cluster.broker_name, "queueId": queue_id}


def test_by_key(java: rig.Client, topic: str) -> None:
    for i in range(5):
        java.send(topic, [f"m{i}"], keys=f"own{i} common")
    rig.until("indexed", lambda: len(java.admin("queryMessage", topic, "common", 32, 0, FAR)) == 5)
    found = java.admin("queryMessage", topic, "own3", 32, 0, FAR)
    assert [(m["body"], m["keys"], m["topic"]) for m in found] == [("m3", "own3 common", topic)]
    assert len(java.admin("queryMessage", topic, "common", 2, 0, FAR)) == 2


def test_by_key_nobody_has(java: rig.Client, topic: str) -> None:
    java.send(topic, ["m"], keys="k")
    with pytest.raises(rig.AgentError) as e:
        java.admin("queryMessage", topic, "other", 32, 0, FAR)
    assert "no message" in e.value.message


def test_by_unique_key(java: rig.Client, topic: str) -> None:
    sent = java.send(topic, [f"m{i}" for i in range(3)])
    for i, r in enumerate(sent):
        found = rig.until("indexed", lambda r=r: java.admin("viewMessage", topic, r["msgId"]))
        assert (found["body"], found["offsetMsgId"]) == (f"m{i}", r["offsetMsgId"])


def test_by_offset_message_id(java: rig.Client, topic: str) -> None:
    sent = java.send(topic, ["a", "b"], tags="T", props={"p": "v"})
    for body, r in zip("ab", sent, strict=True):
        m = java.admin("viewMessage", topic, r["offsetMsgId"])
        assert (m["body"], m["tags"], m["props"]["p"], m["topic"]) == (body, "T", "v", topic)
        assert (m["queueId"], m["queueOffset"]) == (r["queueId"], r["queueOffset"])


def test_offsets_of_a_queue(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    queue = _queue(cluster, topic, 0)
    java("send", messages=[{"topic": topic, "body": f"m{i}", "queue": queue} for i in range(7)])
    rig.until("seven", lambda: java.admin("maxOffset", queue) == 7)
    assert java.admin("minOffset", queue) == 0
    first = java("pull", queue=queue, offset=0, max=1)["messages"][0]
    assert java.admin("earliestMsgStoreTime", queue) == first["storeTimestamp"]


def test_offsets_by_time(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    """Two groups of five with time between them: lower is the first at or after, upper the last at or before."""
    queue = _queue(cluster, topic, 0)
    messages = [{"topic": topic, "body": f"m{i}", "queue": queue} for i in range(5)]
    java("send", messages=messages)
    last = rig.until("dispatched", lambda: java("pull", queue=queue, offset=4)["messages"])[0]["storeTimestamp"]
    rig.until("time passes", lambda: time.time() * 1000 > last + 200)
    java("send", messages=messages)
    rig.until("dispatched", lambda: java.admin("maxOffset", queue) == 10)
    assert java.admin("searchLowerBoundaryOffset", queue, last + 100) == 5
    assert java.admin("searchUpperBoundaryOffset", queue, last + 100) == 4
    assert java.admin("searchOffset", queue, last + 100) == 5
    assert java.admin("searchOffset", queue, 0) == 0
    assert java.admin("searchOffset", queue, FAR) == 10
