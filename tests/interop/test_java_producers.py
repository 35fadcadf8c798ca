"""Stock Java producers: what they send is acknowledged as by the original, stored, and read back unchanged."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
import rig

pytestmark = pytest.mark.interop

MAX_BODY_BYTES = 4 << 20
MESSAGE_ILLEGAL = 13
CLOCKS_MS = 1000
"""A broker's clock and a client's may differ: ours is set once and then runs by itself."""


def _by_id(messages: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {m["msgId"]: m for m in messages}


def test_sync_send_keeps_everything(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    given = {"tags": "T", "keys": "k1 k2", "flag": 7, "props": {"color": "blue", "名": "値"}}
    results = java.send(topic, [f"m{i} ü" for i in range(8)], **given)
    got = _by_id(java.consume(topic, name, 8))
    for i, sent in enumerate(results):
        m = got[sent["msgId"]]
        assert (m["topic"], m["body"], m["tags"], m["keys"], m["flag"]) == (topic, f"m{i} ü", "T", "k1 k2", 7)
        assert m["props"]["color"] == "blue"
        assert m["props"]["名"] == "値"
        assert m["props"]["UNIQ_KEY"] == sent["msgId"]
        assert m["props"]["CLUSTER"] == cluster.cluster_name
        assert m["props"]["MSG_REGION"] == sent["regionId"] == "DefaultRegion"
        assert m["props"]["TRACE_ON"] == "true"
        assert sent["traceOn"] is True
        assert (m["queueId"], m["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
        assert m["broker"] == sent["broker"] == cluster.broker_name
        assert m["offsetMsgId"] == sent["offsetMsgId"]
        assert m["storeHost"] == f"/{cluster.broker}"
        assert m["bornHost"].startswith("/127.0.0.1:")
        assert m["bornTimestamp"] - CLOCKS_MS <= m["storeTimestamp"] <= m["at"] + CLOCKS_MS


def test_offset_message_id_names_the_place(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    [sent] = java.send(topic, ["a"])
    [m] = java.consume(topic, name, 1)
    raw = bytes.fromhex(sent["offsetMsgId"])
    port, offset = struct.unpack(">iq", raw[4:])
    assert raw[:4] == bytes([127, 0, 0, 1])
    assert port == int(cluster.broker.rsplit(":", 1)[1])
    assert offset == m["commitLogOffset"]


def test_sends_go_round_the_queues(java: rig.Client, topic: str) -> None:
    results = java.send(topic, [f"m{i}" for i in range(12)])
    assert sorted((r["queueId"], r["queueOffset"]) for r in results) == [(q, n) for q in range(4) for n in range(3)]


def test_async(java: rig.Client, topic: str, name: str) -> None:
    bodies = [f"m{i}" for i in range(100)]
    results = java("send", mode="async", messages=[{"topic": topic, "body": b} for b in bodies])
    assert {r.get("status") for r in results} == {"SEND_OK"}, results
    got = java.consume(topic, name, 100)
    assert {m["msgId"]: m["queueOffset"] for m in got} == {r["msgId"]: r["queueOffset"] for r in results}
    assert sorted(m["body"] for m in got) == sorted(bodies)


def test_oneway(java: rig.Client, topic: str, name: str) -> None:
    bodies = [f"m{i}" for i in range(50)]
    java("send", mode="oneway", messages=[{"topic": topic, "body": b} for b in bodies])
    assert sorted(m["body"] for m in java.consume(topic, name, 50)) == sorted(bodies)


def test_ordered(java: rig.Client, topic: str, name: str) -> None:
    messages = [{"topic": topic, "body": f"{k}-{i:02}", "key": k} for i in range(25) for k in range(4)]
    results = java("send", mode="ordered", messages=messages)
    assert all(r["queueId"] == m["key"] for r, m in zip(results, messages, strict=True)), results
    got = java.consume(topic, name, 100, ordered=True)
    for key in range(4):
        mine = [m for m in got if m["queueId"] == key]
        assert [m["body"] for m in mine] == [f"{key}-{i:02}" for i in range(25)]
        assert [m["queueOffset"] for m in mine] == list(range(25))


def test_batch(java: rig.Client, topic: str, name: str) -> None:
    messages = [
        {"topic": topic, "body": f"m{i}", "tags": f"T{i % 3}", "keys": f"key{i}", "props": {"n": str(i)}}
        for i in range(10)
    ]
    result = java("send", mode="batch", messages=messages)
    assert result["status"] == "SEND_OK"
    ids, offset_ids = result["msgId"].split(","), result["offsetMsgId"].split(",")
    assert len(ids) == len(offset_ids) == 10
    got = sorted(java.consume(topic, name, 10), key=lambda m: m["queueOffset"])
    assert [m["queueOffset"] for m in got] == list(range(result["queueOffset"], result["queueOffset"] + 10))
    assert {m["queueId"] for m in got} == {result["queueId"]}
    assert [m["msgId"] for m in got] == ids
    assert [m["offsetMsgId"] for m in got] == offset_ids
    assert [(m["body"], m["tags"], m["keys"], m["props"]["n"]) for m in got] == [
        (f"m{i}", f"T{i % 3}", f"key{i}", str(i)) for i in range(10)
    ]


def test_delayed(java: rig.Client, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name)
    java.send(topic, ["later"], delayLevel=2, tags="T", keys="k")
    java.send(topic, ["soon"], delayLevel=1, tags="T", keys="k")
    java.send(topic, ["now"])
    got = {m["body"]: m for m in java.collect(handle, 3)}
    assert got.keys() == {"now", "soon", "later"}
    for body, level, delay_ms in (("soon", "1", 1000), ("later", "2", 5000)):
        m = got[body]
        assert m["at"] - m["bornTimestamp"] >= delay_ms * 0.9
        assert (m["topic"], m["tags"], m["keys"]) == (topic, "T", "k")
        assert m["props"]["REAL_TOPIC"] == topic
        assert m["props"]["DELAY"] == level


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_compressed(java: rig.Client, topic: str, name: str, kind: str) -> None:
    body = "Perseus rescues Andromeda. " * 400
    [sent] = java("send", messages=[{"topic": topic, "body": body}], compress=kind)
    assert sent.get("status") == "SEND_OK", sent
    [m] = java.consume(topic, name, 1)
    assert (m["bodySize"], m["bodyCrc"]) == (len(body), zlib.crc32(body.encode()))
    assert m["storeSize"] < len(body)


def test_largest_message(java: rig.Client, topic: str, name: str) -> None:
    body = "0123456789abcdef" * (MAX_BODY_BYTES // 16)
    java.send(topic, [body])
    [m] = java.consume(topic, name, 1)
    assert (m["bodySize"], m["bodyCrc"]) == (MAX_BODY_BYTES, zlib.crc32(body.encode()))
    assert m["storeSize"] > MAX_BODY_BYTES


def test_too_large(java: rig.Client, topic: str) -> None:
    body, properties = "x" * (MAX_BODY_BYTES + 1), {"p": "v" * 33_000}
    results = java(
        "send", messages=[{"topic": topic, "body": body}, {"topic": topic, "body": "x", "props": properties}]
    )
    assert [r["error"]["code"] for r in results] == [MESSAGE_ILLEGAL, MESSAGE_ILLEGAL], results
    java.send(topic, ["and it goes on"])


def test_topic_made_by_the_first_send(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    java.send(f"auto_{name}", ["a"])
    rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": f"auto_{name}"}).code == 0)
    [queue_data] = java.admin("examineTopicRouteInfo", f"auto_{name}")["queueDatas"]
    assert (queue_data["readQueueNums"], queue_data["writeQueueNums"], queue_data["perm"]) == (4, 4, 6)
    assert [m["body"] for m in java.consume(f"auto_{name}", name, 1)] == ["a"]


def test_ten_thousand(java: rig.Client, topic: str, name: str) -> None:
    """A backlog over many pulls, and consume-queue files that roll."""
    for part in range(100):
        bodies = [f"{part}-{i} {'x' * 100}" for i in range(100)]
        queue = {"topic": topic, "broker": java.cluster.broker_name, "queueId": part % 2}
        messages = [{"topic": topic, "body": b} for b in bodies]
        assert java("send", mode="batch", queue=queue, messages=messages)["status"] == "SEND_OK"
    got = java.consume(topic, name, 10_000, seconds=90)
    assert len({m["msgId"] for m in got}) == len(got) == 10_000
    assert {(m["queueId"], m["queueOffset"]) for m in got} == {(q, n) for q in range(2) for n in range(5000)}
