"""Messages for a time, and those that are taken back: stock Java clients and ours, brokers of both kinds, folders that
pass from one to the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import ways
from broker_sets import BrokerSet
from broker_settings import set_for_a_while

from perseid.client import Admin, Message, Producer, PullConsumer, ReceivedMessage, ServerRefused

pytestmark = pytest.mark.interop

PRECISION_MS = 1000
CLOCKS_MS = 1000
"""A broker's clock and a client's may differ."""
TIMER_TOPIC = "rmq_sys_wheel_timer"


def now_ms() -> int:
    return int(time.time() * 1000)


def check_times(
    got: list[dict[str, Any]], wanted: dict[str, int], late_ms: int = 5 * PRECISION_MS, took_ms: int = 0
) -> None:
    """Never early, and not much later. `took_ms`: how long after that its send may have reached the broker."""
    for m in got:
        wait = m["storeTimestamp"] - wanted[m["body"]]
        assert -CLOCKS_MS <= wait <= late_ms + took_ms + CLOCKS_MS, f"{m['body']} came {wait} ms after its time"


@pytest.fixture
def recalls(cluster: rig.Cluster) -> Any:
    """The broker takes messages back."""
    with set_for_a_while(cluster, "recallMessageEnable", "true", "false"):
        yield


def test_times_of_all_forms(java: rig.Client, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name)
    wanted: dict[str, int] = {}
    sends: list[int] = []

    def send(body: str, wait_ms: int, **form: Any) -> dict[str, Any]:
        """Its time is later than that of those before, however long the sends take."""
        begun = now_ms()
        wanted[body] = begun + wait_ms
        [sent] = java.send(topic, [body], **(form or {"deliverMs": begun + wait_ms}))
        sends.append(now_ms() - begun)
        return sent

    past = send("past", -1)
    by_sec = send("sec", 3_000, delaySec=3, tags="T", keys="k")
    by_ms = send("ms", 4_700, delayMs=4_700)
    at = send("at", 6_300)
    assert by_sec["recallHandle"] and by_ms["recallHandle"] and at["recallHandle"] and past["recallHandle"] is None
    got = sorted(java.collect(handle, 4), key=lambda m: (m["storeTimestamp"], m["commitLogOffset"]))
    assert [m["body"] for m in got] == list(wanted)
    check_times(got, wanted, took_ms=max(sends))
    for m, sent in zip(got, (past, by_sec, by_ms, at), strict=True):
        assert m["msgId"] == sent["msgId"]
    sec = got[1]
    assert (sec["tags"], sec["keys"], sec["queueId"]) == ("T", "k", by_sec["queueId"])
    names = {key for key in sec["props"] if key.startswith(("TIMER", "REAL", "DELAY"))}
    assert names == {
        "TIMER_DELAY_SEC", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID",
    }  # fmt: skip
    assert int(sec["props"]["TIMER_OUT_MS"]) % PRECISION_MS == 0


def test_refused_times(java: rig.Client, topic: str) -> None:
    day = 86_400
    for given in ({"delaySec": 4 * day}, {"delayMs": 4 * day * 1000}, {"deliverMs": now_ms() + 4 * day * 1000}):
        [result] = java("send", messages=[{"topic": topic, "body": "x", **given}], retries=0)
        assert result["error"]["code"] == 13, result
        assert "timer message illegal" in result["error"]["message"]


def test_recalled(java: rig.Client, topic: str, name: str, recalls: None) -> None:
    handle = java("push.start", topic=topic, group=name)
    [gone] = java.send(topic, ["gone"], delayMs=12_000)  # the first recall of a client may take seconds
    [kept] = java.send(topic, ["kept"], delayMs=12_500)
    assert java("recall", topic=topic, handle=gone["recallHandle"]) == gone["msgId"]
    got = java.collect(handle, 1)
    java.send(topic, ["end"], delayMs=2_500)
    got = java.collect(handle, 2)
    assert [m["body"] for m in got] == ["kept", "end"] and got[0]["msgId"] == kept["msgId"]


def test_recalls_that_are_refused(java: rig.Client, topic: str) -> None:
    [sent] = java.send(topic, ["x"], delayMs=6_000)
    with pytest.raises(rig.AgentError) as refused:
        java("recall", topic=topic, handle=sent["recallHandle"])
    assert "recall failed, operation is forbidden" in str(refused.value)


def _pending(x_java: rig.Client, topic: str, count: int, first_ms: int, last_ms: int) -> dict[str, int]:
    """So many messages whose times are spread over a while; their times."""
    start = now_ms()
    step = (last_ms - first_ms) // count
    wanted = {f"m{number}": start + first_ms + number * step for number in range(count)}
    messages = [{"topic": topic, "body": body, "deliverMs": at} for body, at in wanted.items()]
    results = x_java("send", messages=messages)
    assert all(r.get("status") == "SEND_OK" for r in results), results
    return wanted


def await_all(client: rig.Client, topic: str, wanted: set[str], what: str, seconds: float) -> list[dict[str, Any]]:
    """All messages of a topic, once those are among them; some may come twice after a kill."""
    handle = client("push.start", topic=topic, group=f"g_{topic}")
    seen: set[str] = set()

    def all_came() -> bool:
        seen.update(m[what] for m in client("push.await", handle=handle, count=1, timeoutMs=1_000, wait=60))
        return wanted <= seen

    rig.until(f"all {len(wanted)} messages", all_came, seconds)
    return list(client("push.stop", handle=handle))


@ways.folders_pass_on("perseid_to_java-stopped")
def test_a_folder_with_timers_passes_on(
    java: rig.Client,
    cluster: rig.Cluster,
    workshop: Path,
    name: str,
    writer: str,
    reader: str,
    end: Callable[[rig.Process], int],
) -> None:
    settings = {"timerFlushIntervalMs": 1000, "timerRollWindowSlot": 20, "recallMessageEnable": "true"}
    broker = rig.broker(writer, workshop / f"timers-{name}", cluster.namesrv, **settings)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        topic = f"t_{name}"
        made = java.mqadmin("updateTopic", "-b", broker.address, "-t", topic, "-r", "4", "-w", "4")
        assert "success" in made
        rig.until(f"route of {topic}", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
        wanted = _pending(java, topic, 60, 3_000, 50_000)
        [gone] = java.send(topic, ["gone"], delayMs=45_000)
        java("recall", topic=topic, handle=gone["recallHandle"])
        handle = java("push.start", topic=topic, group=f"{name}_first")
        java.collect(handle, 8)  # some are delivered before, some are rolled on, and the files are flushed
        java("push.stop", handle=handle)
        end(broker)
        del broker.properties["timerFlushIntervalMs"]  # nobody reads what the other one flushes
        broker = rig.Process("broker", reader, broker.folder, broker.properties)
        broker.start()
        rig.until(f"route of {topic}", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
        wanted |= {"new": now_ms() + 4_000}
        java.send(topic, ["new"], deliverMs=wanted["new"])
        got = await_all(java, topic, set(wanted), "body", 150)
        bodies = [m["body"] for m in got]
        assert set(bodies) == set(wanted), "each comes, and the one that was taken back does not"
        if end is rig.Process.stop:
            assert len(bodies) == len(wanted), "none comes twice after a clean stop"
        check_times(got, wanted, late_ms=60_000)
    finally:
        broker.kill()


def test_our_client(cluster: rig.Cluster, name: str, recalls: None) -> None:
    async def test() -> None:
        async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv) as producer:
            await admin.create_topic(name, 1)
            start = now_ms()
            wanted = {b"first": start + 3_200, b"last": start + 6_400}
            first = await producer.send(Message(name, b"first", delay_ms=3_200))
            gone = await producer.send(Message(name, b"gone", deliver_at_ms=start + 5_000))
            last = await producer.send(Message(name, b"last", deliver_at_ms=wanted[b"last"]))
            assert await producer.recall(name, gone.recall_handle) == gone.msg_id
            async with PullConsumer(cluster.namesrv, f"g_{name}", from_where="first") as consumer:
                consumer.assign(await consumer.queues(name))
                got: list[ReceivedMessage] = []
                while len(got) < 2:
                    got += await consumer.poll(timeout_ms=20_000)
            assert [(m.body, m.msg_id) for m in got] == [(b"first", first.msg_id), (b"last", last.msg_id)]
            check_times([{"body": m.body, "storeTimestamp": m.store_timestamp} for m in got], wanted)
            for what, code in ((Message(name, b"x", delay_ms=4 * 86_400_000), 13), (last.recall_handle, 604)):
                with pytest.raises(ServerRefused) as refused:
                    await (producer.recall(name, what) if isinstance(what, str) else producer.send(what))
                assert refused.value.code == code

    asyncio.run(asyncio.wait_for(test(), 120))


COUNT = rig.many(2_000, 10_000)
DELAY_MS = 15_000
SETS = {"perseid": ("perseid", "perseid"), "with_java": ("java", "perseid")}


def check_flood(client: rig.Client, topic: str, acked: list[str], late_ms: int) -> None:
    """All that was acknowledged comes, and nothing before its time: each copy's own, for a send that is tried again
    names another."""
    for m in await_all(client, topic, set(acked), "keys", 120):
        check_times([m], {m["body"]: int(m["props"]["wanted"])}, late_ms)


@pytest.mark.parametrize("flush", ways.in_ci(("ASYNC_FLUSH", "SYNC_FLUSH"), "ASYNC_FLUSH"))
@pytest.mark.parametrize("cluster", ["perseid"], indirect=True)
def test_a_broker_is_killed_under_messages_for_a_time(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, flush: str
) -> None:
    settings = {"timerRollWindowSlot": 6, "mappedFileSizeTimerLog": 52 * 300 + 16}
    broker = rig.broker("perseid", workshop / f"killed-{name}", cluster.namesrv, flushDiskType=flush, **settings)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        assert "success" in java.mqadmin("updateTopic", "-b", broker.address, "-t", name, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
        java("flood.start", name=name, topic=name, count=COUNT, pauseMs=10, delayMs=DELAY_MS)
        for acked in (COUNT // 4, COUNT // 2, COUNT * 3 // 4):
            assert java("flood.await", name=name, acked=acked, timeoutMs=240_000, wait=270) >= acked
            broker.kill()
            broker.start()
        done = java("flood.end", name=name, timeoutMs=240_000, wait=270)
        assert len(done["acked"]) == COUNT
        assert done["retries"] > 0, "nobody noticed the kills"
        check_flood(java, name, done["acked"], late_ms=60_000)
    finally:
        broker.kill()


@pytest.mark.parametrize("cluster", ["perseid"], indirect=True)
@pytest.mark.parametrize("kinds", ways.in_ci(SETS))
def test_masters_are_killed_under_messages_for_a_time(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, kinds: tuple[str, ...]
) -> None:
    """A broker set under a controller; each in turn is master, and killed. (A Java master may deliver twice, too.)"""
    made = BrokerSet(cluster, workshop / f"timers-{name}", ("perseid",), kinds)
    try:
        made.start()
        made.make_topic(java, name)
        java("flood.start", name=name, topic=name, count=COUNT, pauseMs=20, delayMs=DELAY_MS, pollMs=1_000)
        for acked in (COUNT // 4, COUNT // 2):
            assert java("flood.await", name=name, acked=acked, timeoutMs=240_000, wait=270) >= acked
            old = made.await_master()
            old.kill()
            made.await_master(gone=old)
            old.start()
            made.await_in_sync()
        done = java("flood.end", name=name, timeoutMs=240_000, wait=270)
        assert len(done["acked"]) == COUNT
        check_flood(java, name, done["acked"], late_ms=120_000)
    finally:
        made.kill()
