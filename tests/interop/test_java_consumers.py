"""Stock Java consumers: who gets what, in which order, how often, and where the next one goes on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import rig

pytestmark = pytest.mark.interop


def _queues(java: rig.Client, *handles: str) -> list[list[tuple[str, int]]]:
    found = []
    for handle in handles:
        mine = java("push.queues", handle=handle)
        found.append(sorted((q["broker"], q["queueId"]) for q in mine if not q["topic"].startswith("%")))
    return found


def _shared(java: rig.Client, *handles: str) -> bool:
    """The four queues are spread evenly, each at one member."""
    held = _queues(java, *handles)
    return max(map(len, held)) == min(map(len, held)) and len({q for mine in held for q in mine}) == 4


def _await_topic(cluster: rig.Cluster, topic: str) -> None:
    rig.until(f"route of {topic}", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0)


def test_members_share_the_queues(java: rig.Client, topic: str, name: str) -> None:
    one, two = (java("push.start", topic=topic, group=name) for _ in range(2))
    rig.until("two queues each", lambda: _shared(java, one, two))
    java.send(topic, [f"m{i}" for i in range(40)])
    got = rig.until(
        "all 40",
        lambda: [g for h in (one, two) for g in java.collect(h, 20)],
    )
    assert Counter(m["body"] for m in got) == Counter(f"m{i}" for i in range(40))
    java("push.stop", handle=one)
    rig.until("one takes over", lambda: len(_queues(java, two)[0]) == 4)
    java.send(topic, [f"n{i}" for i in range(8)])
    later = java.collect(two, 28)[20:]
    assert sorted(m["body"] for m in later) == [f"n{i}" for i in range(8)]


def test_broadcast(java: rig.Client, topic: str, name: str) -> None:
    handles = [java("push.start", topic=topic, group=name, model="BROADCASTING") for _ in range(2)]
    java.send(topic, [f"m{i}" for i in range(10)])
    for handle in handles:
        got = java.collect(handle, 10)
        assert Counter(m["body"] for m in got) == Counter(f"m{i}" for i in range(10))


def test_tags(java: rig.Client, topic: str, name: str) -> None:
    for tag in ("A", "B", "C", "Aa", "BB", "C"):
        java.send(topic, [f"tag {tag}"], tags=tag)
    java.send(topic, ["no tag"])
    several = java("push.start", topic=topic, group=f"{name}_1", expr="A || C")
    collides = java("push.start", topic=topic, group=f"{name}_2", expr="Aa")
    everything = java("push.start", topic=topic, group=f"{name}_3")
    assert len(java.collect(everything, 7)) == 7
    assert sorted(m["body"] for m in java.collect(several, 3)) == ["tag A", "tag C", "tag C"]
    assert [m["body"] for m in java.collect(collides, 1)] == ["tag Aa"]


def test_retry(java: rig.Client, topic: str, name: str) -> None:
    java.send(topic, ["again"], tags="T", keys="k", props={"p": "v"})
    got = java.consume(topic, name, 3, failures=2)
    assert [m["reconsumeTimes"] for m in got] == [0, 1, 2]
    assert {m["msgId"] for m in got} == {got[0]["msgId"]}
    for m in got:
        assert (m["topic"], m["body"], m["tags"], m["keys"]) == (topic, "again", "T", "k")
        assert m["props"]["p"] == "v"
    assert got[1]["props"]["RETRY_TOPIC"] == topic
    assert got[2]["at"] - got[1]["at"] >= 900


def test_default_delay_of_a_retry(java: rig.Client, topic: str, name: str) -> None:
    """Level 0 leaves it to the broker: 3 + times, so ten seconds for the first."""
    java.send(topic, ["again"])
    first, second = java.consume(topic, name, 2, failures=1, delayLevel=0)
    assert second["at"] - first["at"] >= 9_000


def test_dead_letters(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    [sent] = java.send(topic, ["hopeless"], keys="k")
    handle = java("push.start", topic=topic, group=name, failures=99, maxReconsumeTimes=1)
    tries = java.collect(handle, 2)
    _await_topic(cluster, f"%DLQ%{name}")
    [dead] = java.consume(f"%DLQ%{name}", f"{name}_dead", 1)
    assert (dead["body"], dead["keys"], dead["queueId"]) == ("hopeless", "k", 0)
    assert dead["props"]["RETRY_TOPIC"] == topic
    assert dead["props"]["ORIGIN_MESSAGE_ID"] == tries[0]["offsetMsgId"] == sent["offsetMsgId"]
    assert len(java("push.stop", handle=handle)) == 2


def test_dead_letters_at_once(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    """A negative delay level: no retry."""
    java.send(topic, ["hopeless"])
    handle = java("push.start", topic=topic, group=name, failures=99, delayLevel=-1)
    _await_topic(cluster, f"%DLQ%{name}")
    [dead] = java.consume(f"%DLQ%{name}", f"{name}_dead", 1)
    assert dead["body"] == "hopeless"
    assert len(java("push.stop", handle=handle)) == 1


def test_dead_letters_of_an_ordered_consumer(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    java("send", mode="ordered", messages=[{"topic": topic, "body": f"m{i}", "key": 0} for i in range(3)])
    handle = java("push.start", topic=topic, group=name, failures=99, maxReconsumeTimes=1, ordered=True)
    tries = java.collect(handle, 6)
    assert [m["body"] for m in tries] == ["m0", "m0", "m1", "m1", "m2", "m2"]
    _await_topic(cluster, f"%DLQ%{name}")
    dead = java.consume(f"%DLQ%{name}", f"{name}_dead", 3)
    assert sorted(m["body"] for m in dead) == ["m0", "m1", "m2"]


def test_ordered_members_take_turns(java: rig.Client, topic: str, name: str) -> None:
    """A second member joins while messages flow: each queue stays in order, at one member at a time."""
    one = java("push.start", topic=topic, group=name, ordered=True)
    rig.until("one has all", lambda: len(_queues(java, one)[0]) == 4)
    first = [{"topic": topic, "body": f"{k}-{i:03}", "key": k} for i in range(20) for k in range(4)]
    java("send", mode="ordered", messages=first)
    two = java("push.start", topic=topic, group=name, ordered=True)
    rig.until("two queues each", lambda: _shared(java, one, two), 60)
    more = [{"topic": topic, "body": f"{k}-{i:03}", "key": k} for i in range(20, 40) for k in range(4)]
    java("send", mode="ordered", messages=more)

    def all_seen() -> list[dict[str, Any]]:
        got = [m for h in (one, two) for m in java("push.await", handle=h, count=0, timeoutMs=0)]
        return got if len({m["body"] for m in got}) == 160 else []

    got = rig.until("all 160", all_seen, 60)
    for key in range(4):
        mine = sorted((m for m in got if m["queueId"] == key), key=lambda m: (m["at"], m["queueOffset"]))
        firsts = list(dict.fromkeys(m["body"] for m in mine))
        assert firsts == [f"{key}-{i:03}" for i in range(40)]


def test_goes_on_where_the_group_was(java: rig.Client, topic: str, name: str) -> None:
    java.send(topic, [f"m{i}" for i in range(10)])
    java.consume(topic, name, 10)
    java.send(topic, [f"n{i}" for i in range(5)])
    got = java.consume(topic, name, 5)
    assert sorted(m["body"] for m in got) == [f"n{i}" for i in range(5)]


@pytest.mark.parametrize("where", ["LAST_OFFSET", "FIRST_OFFSET"])
def test_new_group_on_a_young_topic_gets_all(java: rig.Client, topic: str, name: str, where: str) -> None:
    java.send(topic, [f"m{i}" for i in range(8)])
    got = java.consume(topic, name, 8, **{"from": where})
    assert sorted(m["body"] for m in got) == [f"m{i}" for i in range(8)]


def test_arrival_wakes_a_waiting_pull(java: rig.Client, topic: str, name: str) -> None:
    """Forty messages, each sent after the one before came: a broker that only looks every 5 s takes minutes."""
    handle = java("push.start", topic=topic, group=name)
    for i in range(40):
        java.send(topic, [f"m{i}"])
        assert java.collect(handle, i + 1)[-1]["body"] == f"m{i}"


def test_lite_pull_by_subscription(java: rig.Client, topic: str, name: str) -> None:
    java.send(topic, [f"m{i}" for i in range(12)])
    lite = java("lite.start", topic=topic, group=name, expr="*")
    got = java("lite.poll", handle=lite, count=12, timeoutMs=30_000)
    assert sorted(m["body"] for m in got) == sorted(f"m{i}" for i in range(12))
    assert len(java("lite.assignment", handle=lite)) == 4
    java("lite.commit", handle=lite)
    java("lite.stop", handle=lite)
    java.send(topic, ["next"])
    again = java("lite.start", topic=topic, group=name, expr="*")
    assert [m["body"] for m in java("lite.poll", handle=again, count=1, timeoutMs=30_000)] == ["next"]


def test_lite_pull_by_assignment(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 2}
    sent = java("send", messages=[{"topic": topic, "body": f"m{i}", "queue": queue} for i in range(10)])
    lite = java("lite.start", group=name, assign=[queue])
    all_bodies = [f"m{i}" for i in range(10)]

    def seek(to: int | str) -> None:
        # A pull of this client that has begun, and has not chosen its offset yet, takes a seek with it, and is then
        # cancelled by it: the seek is lost. After half a silent second its pull waits at the broker.
        assert java("lite.poll", handle=lite, count=1, timeoutMs=500) == []
        java("lite.seek", handle=lite, queue=queue, to=to)

    assert [m["body"] for m in java("lite.poll", handle=lite, count=10, timeoutMs=30_000)] == all_bodies
    seek(4)
    got = java("lite.poll", handle=lite, count=6, timeoutMs=30_000)
    assert [m["body"] for m in got] == [f"m{i}" for i in range(4, 10)]
    java("lite.commit", handle=lite)
    rig.until("committed", lambda: java("lite.committed", handle=lite, queue=queue) == 10)
    seek("begin")
    assert [m["body"] for m in java("lite.poll", handle=lite, count=10, timeoutMs=30_000)] == all_bodies
    seek("end")
    java("send", messages=[{"topic": topic, "body": "new", "queue": queue}])
    assert [m["body"] for m in java("lite.poll", handle=lite, count=1, timeoutMs=30_000)] == ["new"]
    stored = java.admin("viewMessage", topic, sent[3]["offsetMsgId"])["storeTimestamp"]
    assert java("lite.offsetForTimestamp", handle=lite, queue=queue, timestamp=stored) <= 3


def test_pull_statuses(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 1}
    java("send", messages=[{"topic": topic, "body": f"m{i}", "tags": "T", "queue": queue} for i in range(10)])

    def pull(offset: int, **more: Any) -> tuple[Any, ...]:
        r = java("pull", queue=queue, offset=offset, **more)
        return r["status"], r["next"], r["min"], r["max"], [m["body"] for m in r["messages"]]

    rig.until("dispatched", lambda: pull(9)[0] == "FOUND")
    assert pull(0) == ("FOUND", 10, 0, 10, [f"m{i}" for i in range(10)])
    assert pull(3, max=4) == ("FOUND", 7, 0, 10, [f"m{i}" for i in range(3, 7)])
    assert pull(0, expr="T")[:2] == ("FOUND", 10)
    assert pull(0, expr="nobody") == ("NO_MATCHED_MSG", 10, 0, 10, [])
    assert pull(10) == ("NO_NEW_MSG", 10, 0, 10, [])
    assert pull(99) == ("OFFSET_ILLEGAL", 10, 0, 10, [])
    empty = {**queue, "queueId": 3}
    r = java("pull", queue=empty, offset=0)
    assert (r["status"], r["next"], r["max"]) == ("NO_NEW_MSG", 0, 0)
    r = java("pull", queue=empty, offset=5)
    assert (r["status"], r["next"], r["max"]) == ("OFFSET_ILLEGAL", 0, 0)


def test_retry_topic_is_there_with_the_first_heartbeat(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    group = f"g_{topic}"
    java("push.start", topic=topic, group=group)
    _await_topic(cluster, f"%RETRY%{group}")
    [queue_data] = java.admin("examineTopicRouteInfo", f"%RETRY%{group}")["queueDatas"]
    assert (queue_data["readQueueNums"], queue_data["writeQueueNums"], queue_data["perm"]) == (1, 1, 6)
