"""Stock Go clients (rocketmq-client-go 2.1.2): every way to send and to receive, and their small admin client."""

from __future__ import annotations

from collections import Counter

import pytest
import rig

pytestmark = pytest.mark.interop


def _messages(topic: str, count: int, **more: object) -> list[dict[str, object]]:
    return [{"topic": topic, "body": f"m{i}", **more} for i in range(count)]


def _bodies(got: list[dict[str, str]]) -> Counter[str]:
    return Counter(m["body"] for m in got)


def _all(count: int) -> Counter[str]:
    return Counter(f"m{i}" for i in range(count))


def test_sync_send_keeps_everything(go: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    results = go("send", messages=_messages(topic, 8, tags="T", keys=["k1", "k2"], props={"color": "blü"}))
    got = {m["msgId"]: m for m in go.consume(topic, name, 8)}
    for i, sent in enumerate(results):
        assert sent["status"] == "SEND_OK", sent
        m = got[sent["msgId"]]
        assert (m["body"], m["tags"], m["keys"], m["props"]["color"]) == (f"m{i}", "T", "k1 k2", "blü")
        assert (m["queueId"], m["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
        assert m["offsetMsgId"] == sent["offsetMsgId"]
        assert m["storeHost"] == cluster.broker
        assert m["props"]["CLUSTER"] == cluster.cluster_name
        assert (sent["regionId"], sent["traceOn"]) == ("DefaultRegion", True)


@pytest.mark.parametrize("mode", ["async", "oneway"])
def test_send(go: rig.Client, topic: str, name: str, mode: str) -> None:
    results = go("send", mode=mode, messages=_messages(topic, 40))
    assert mode == "oneway" or all(r["status"] == "SEND_OK" for r in results), results
    assert _bodies(go.consume(topic, name, 40)) == _all(40)


def test_batch(go: rig.Client, topic: str, name: str) -> None:
    sent = go("send", mode="batch", messages=_messages(topic, 10, tags="T", keys=["k"]))
    assert sent["status"] == "SEND_OK", sent
    assert len(sent["offsetMsgId"].split(",")) == 10
    got = sorted(go.consume(topic, name, 10), key=lambda m: m["queueOffset"])
    assert [m["body"] for m in got] == [f"m{i}" for i in range(10)]
    assert [m["queueOffset"] for m in got] == list(range(sent["queueOffset"], sent["queueOffset"] + 10))
    assert {(m["tags"], m["keys"]) for m in got} == {("T", "k")}


def test_ordered(go: rig.Client, topic: str, name: str) -> None:
    messages = [{"topic": topic, "body": f"{k}-{i:02}", "key": f"key{k}"} for i in range(20) for k in range(5)]
    results = go("send", mode="ordered", messages=messages)
    assert all(r["status"] == "SEND_OK" for r in results), results
    got = go.consume(topic, name, 100, order="ordered")
    for key in range(5):
        assert [m["body"] for m in got if m["body"][0] == str(key)] == [f"{key}-{i:02}" for i in range(20)]


def test_delayed(go: rig.Client, topic: str, name: str) -> None:
    [sent] = go("send", messages=_messages(topic, 1, delayLevel=1))
    assert sent["status"] == "SEND_OK"
    [m] = go.consume(topic, name, 1)
    assert m["at"] - m["bornTimestamp"] >= 900


def test_timed(go: rig.Client, topic: str, name: str) -> None:
    """The Go client has no word for it: the property is what the broker looks at."""
    [sent] = go("send", messages=_messages(topic, 1, props={"TIMER_DELAY_MS": "2500"}))
    assert sent["status"] == "SEND_OK"
    [m] = go.consume(topic, name, 1)
    assert m["at"] - m["bornTimestamp"] >= 2500


def test_compressed(go: rig.Client, topic: str, name: str) -> None:
    body = "Cassiopeia boasts. " * 500
    [sent] = go("send", messages=[{"topic": topic, "body": body}])
    assert sent["status"] == "SEND_OK"
    [m] = go.consume(topic, name, 1)
    assert m["body"] == body


def test_broadcast(go: rig.Client, topic: str, name: str) -> None:
    handles = [go("push.start", topic=topic, group=f"{name}_{i}", model="BROADCASTING") for i in range(2)]
    go("send", messages=_messages(topic, 10))
    for handle in handles:
        assert _bodies(go.collect(handle, 10)) == _all(10)


def test_tags(go: rig.Client, topic: str, name: str) -> None:
    go(
        "send",
        messages=[{"topic": topic, "body": f"tag {t}", "tags": t} for t in ("A", "B", "C", "Aa", "BB")],
    )
    assert sorted(m["body"] for m in go.consume(topic, f"{name}_1", 2, expr="A || C")) == ["tag A", "tag C"]
    assert [m["body"] for m in go.consume(topic, f"{name}_2", 1, expr="BB")] == ["tag BB"]


def test_members_share_the_queues(go: rig.Client, topic: str, name: str) -> None:
    """Both get some once the group has settled; the first is told by the broker that the second joined."""
    one = go("push.start", topic=topic, group=name)
    go("send", messages=_messages(topic, 4))
    go.collect(one, 4)
    two = go("push.start", topic=topic, group=name)
    sent = 4

    def second_gets_some() -> bool:
        nonlocal sent
        go("send", messages=_messages(topic, 4))
        sent += 4
        return bool(go("push.await", handle=two, count=1, timeoutMs=500))

    rig.until("the second member gets messages", second_gets_some, 60)
    rig.until(
        "all arrived",
        lambda: sum(len(go("push.await", handle=h, count=0, timeoutMs=0)) for h in (one, two)) >= sent,
    )


def test_retry(go: rig.Client, java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    """The client looks for new routes every 30 s, so the retry topic is there before it starts."""
    java("push.stop", handle=java("push.start", topic=topic, group=name))
    retry = f"%RETRY%{name}"
    rig.until("retry topic", lambda: rig.call(cluster.namesrv, 105, {"topic": retry}).code == 0)
    go("send", messages=_messages(topic, 1, tags="T", keys=["k"]))
    got = go.consume(topic, name, 2, 60, failures=1)
    assert [m["reconsumeTimes"] for m in got] == [0, 1]
    for m in got:
        assert (m["body"], m["tags"], m["keys"]) == ("m0", "T", "k")
    assert got[1]["props"]["RETRY_TOPIC"] == topic


def test_pull(go: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 1}
    sent = go("send", mode="queue", messages=_messages(topic, 10, queue=queue))
    assert [(r["queueId"], r["queueOffset"]) for r in sent] == [(1, i) for i in range(10)]
    pull = go("pull.start", topic=topic, group=name)

    def at(offset: int, max_: int = 32) -> tuple[str, int, list[str]]:
        r = go("pull.from", handle=pull, queue=queue, offset=offset, max=max_)
        return r["status"], r["next"], [m["body"] for m in r["messages"]]

    rig.until("dispatched", lambda: at(9)[0] == "FOUND")
    assert at(0) == ("FOUND", 10, [f"m{i}" for i in range(10)])
    assert at(3, 4) == ("FOUND", 7, [f"m{i}" for i in range(3, 7)])
    assert at(99)[:2] == ("OFFSET_ILLEGAL", 10)


def test_poll(go: rig.Client, topic: str, name: str) -> None:
    go("send", messages=_messages(topic, 12))
    pull = go("pull.start", topic=topic, group=name)
    assert _bodies(go("pull.poll", handle=pull, count=12, timeoutMs=40_000)) == _all(12)


def test_admin(go: rig.Client, cluster: rig.Cluster, name: str) -> None:
    go("topic.create", topic=name, brokerAddr=cluster.broker, queues=3)
    rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
    assert name in go("topic.list")
    queues = go("topic.queues", topic=name)
    assert [(q["broker"], q["queueId"]) for q in queues] == [(cluster.broker_name, i) for i in range(3)]
    groups = go("group.list", brokerAddr=cluster.broker)
    assert groups["TOOLS_CONSUMER"]["ConsumeEnable"] is True
    go("topic.delete", topic=name, brokerAddr=cluster.broker)
    rig.until("no route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 17)
    assert name not in go("topic.list")


def test_go_to_java_and_back(go: rig.Client, java: rig.Client, topic: str, name: str) -> None:
    go("send", messages=_messages(topic, 5, tags="T", keys=["k"], props={"p": "v"}))
    got = java.consume(topic, f"{name}_1", 5)
    assert _bodies(got) == _all(5)
    assert {(m["tags"], m["keys"], m["props"]["p"]) for m in got} == {("T", "k", "v")}
    java.send(topic, [f"j{i}" for i in range(5)], tags="J", keys="k", props={"p": "v"})
    got = [m for m in go.consume(topic, f"{name}_2", 5, expr="J") if m["tags"] == "J"]
    assert _bodies(got) == Counter(f"j{i}" for i in range(5))
    assert {(m["keys"], m["props"]["p"]) for m in got} == {("k", "v")}
