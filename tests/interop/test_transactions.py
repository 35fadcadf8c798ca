"""Transactions: stock Java and Go producers on our brokers, our producers on both, and masters killed under them.

A body begins with what becomes of it: commit, rollback, ask-commit, ask-rollback, never (java/…/Transactions.java).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import rig
from broker_sets import BrokerSet
from broker_settings import set_for_a_while

from perseid.client import (
    Message,
    PullConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from perseid.client.blocking import BlockingAdmin, BlockingTransactionProducer

pytestmark = pytest.mark.interop

CHECK_MS, MOST = 2_000, 3
"""How soon, how often after that, and how many times producers are asked here."""
SET_ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"
RESUME, PRODUCERS = 323, 204
SOON = {"transactionTimeOut": CHECK_MS, "transactionCheckInterval": CHECK_MS, "transactionCheckMax": MOST}
USUAL = {"transactionTimeOut": 6_000, "transactionCheckInterval": 30_000, "transactionCheckMax": 15}
PLANS = ("commit", "rollback", "ask-commit", "ask-rollback")


@pytest.fixture
def soon(perseid_cluster: rig.Cluster) -> Iterator[rig.Cluster]:
    """Our cluster, asking soon."""
    with ExitStack() as settings:
        for key, value in SOON.items():
            settings.enter_context(set_for_a_while(perseid_cluster, key, str(value), str(USUAL[key])))
        yield perseid_cluster


@pytest.fixture
def java(soon: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    """The stock Java clients on it."""
    client = rig.Client(java_agent, soon)
    yield client
    client.close()


@pytest.fixture
def topic(soon: rig.Cluster, name: str) -> str:
    with BlockingAdmin(soon.namesrv) as admin:
        admin.create_topic(name, 4)
    return name


def started(java: rig.Client, topic: str) -> str:
    """A Java producer of transactions that its broker knows: who is not known can't be asked, and there are three
    questions at the most. (Its first heartbeat after its first send may go to nobody, and the next would come 30 s
    later.)"""
    group = f"g_{topic}"
    handle = java("tx.start", group=group, beatMs=1_000)
    java("tx.send", handle=handle, message={"topic": topic, "body": "rollback/first"})
    known = {"producerGroup": group}
    rig.until("the broker knows it", lambda: rig.call(java.cluster.broker, PRODUCERS, known).code == 0, 60)
    return str(handle)


def plan(body: str) -> str:
    return body.split("/")[0]


def test_stock_java_producers(java: rig.Client, topic: str) -> None:
    tx = started(java, topic)
    bodies = [f"{kind}/{number}" for number in range(5) for kind in PLANS]
    halves = {}
    for body in bodies:
        halves[body] = java("tx.send", handle=tx, message={"topic": topic, "body": body, "tags": "T", "keys": body})
    assert {half["status"] for half in halves.values()} == {"SEND_OK"}
    assert all(half["transactionId"] == half["msgId"] for half in halves.values())
    wanted = {body for body in bodies if plan(body).endswith("commit")}
    got = java.consume(topic, f"c_{topic}", len(wanted))
    assert Counter(m["body"] for m in got) == Counter(wanted)
    for m in got:
        assert (m["tags"], m["keys"], m["msgId"]) == ("T", m["body"], halves[m["body"]]["msgId"])
        assert m["sysFlag"] & 0xC == 8 and m["props"]["__transactionId__"] == m["msgId"]
    asked = java("tx.asked", handle=tx)
    assert {m["body"] for m in asked} >= {body for body in bodies if body.startswith("ask-")}
    assert {m["topic"] for m in asked} == {topic}, "a producer is asked about its own topic"


def test_a_half_that_nobody_knows_is_set_aside_and_may_be_asked_about_again(
    java: rig.Client, soon: rig.Cluster, topic: str
) -> None:
    tx = started(java, topic)
    body = f"never/{topic}"
    java("tx.send", handle=tx, message={"topic": topic, "body": body})

    def aside() -> list[dict[str, Any]]:
        found = java.consume(SET_ASIDE, f"aside_{topic}", 1)
        return [m for m in found if m["body"] == body]

    [half] = rig.until("it is set aside", aside, 60)
    asked = [m for m in java("tx.asked", handle=tx) if m["body"] == body]
    times = [m["props"]["TRANSACTION_CHECK_TIMES"] for m in asked]
    assert times == [str(number + 1) for number in range(MOST)]
    before = len(java("tx.asked", handle=tx))
    answer = rig.call(soon.broker, RESUME, {"topic": topic, "msgId": half["offsetMsgId"]})
    assert answer.code == 0, answer
    rig.until("it is asked about again", lambda: len(java("tx.asked", handle=tx)) > before, 30)
    assert rig.call(soon.broker, 30, {"topic": topic, "queueId": 0}).ext["offset"] == "0"


def test_go_producers(soon: rig.Cluster, go_agent: rig.Agent, java: rig.Client, topic: str) -> None:
    go = rig.Client(go_agent, soon)
    group = {"producerGroup": f"g_{topic}"}
    handle = go("tx.start", group=f"g_{topic}")
    try:
        bodies = ["commit/first", *(f"{kind}/{number}" for number in range(3) for kind in PLANS)]
        for number, body in enumerate(bodies):
            if number == 1:  # Go's first heartbeat may go to nobody, and its second comes 30 s later
                rig.until("the broker knows it", lambda: rig.call(soon.broker, PRODUCERS, group).code == 0, 60)
            sent = go("tx.send", handle=handle, message={"topic": topic, "body": body})
            assert sent["status"] == "SEND_OK", sent
        wanted = {body for body in bodies if plan(body).endswith("commit")}
        got = java.consume(topic, f"c_{topic}", len(wanted))
        assert Counter(m["body"] for m in got) == Counter(wanted)
    finally:
        go("tx.stop", handle=handle)
        go.close()


# ---- ours ----


def of(body: str, *, asked: bool) -> TransactionState:
    kind = plan(body)
    if kind.startswith("ask-") and not asked:
        return TransactionState.UNKNOWN
    return TransactionState.COMMIT if kind.endswith("commit") else TransactionState.ROLLBACK


async def both_ways(namesrv: str, topic: str, *, once: bool) -> None:
    """Our producer: what is committed is read, and nothing else. A Java broker notes its decisions up to 3 s late: one
    that asks so soon asks about what is decided, and delivers it again."""
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return of(message.body.decode(), asked=True)

    bodies = [f"{kind}/{number}" for number in range(3) for kind in PLANS]
    async with TransactionProducer(namesrv, f"g_{topic}", check, topics=[topic]) as producer:
        ids = {}
        for body in bodies:
            state = of(body, asked=False)
            said_at_once = once and state is not TransactionState.UNKNOWN
            properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"} if said_at_once else {}
            message = Message(topic, body.encode(), properties=properties)
            done = await producer.send_in_transaction(message, lambda half, state=state: state)
            assert done.half.status is SendStatus.SEND_OK and done.told == (state is not TransactionState.UNKNOWN)
            ids[body] = done.half.msg_id
        wanted = {body for body in bodies if plan(body).endswith("commit")}
        async with PullConsumer(namesrv, f"c_{topic}", from_where="first") as consumer:
            consumer.assign(await consumer.queues(topic))
            got: list[ReceivedMessage] = []
            while len(got) < len(wanted):
                got += await consumer.poll(timeout_ms=2_000)
            got += await consumer.poll(timeout_ms=3_000)
    assert {m.body.decode() for m in got} == wanted and (len(got) == len(wanted) or not once)
    assert {m.body.decode(): m.msg_id for m in got} == {body: ids[body] for body in wanted}
    assert {m.body.decode() for m in asked} >= {body for body in bodies if body.startswith("ask-")}
    assert {m.topic for m in asked} <= {topic}


def test_our_producer_on_perseid(soon: rig.Cluster, topic: str) -> None:
    rig.run(both_ways(soon.namesrv, topic, once=True))


@pytest.mark.parametrize("transactional_cluster", ["java"], indirect=True)
def test_our_producer_on_java(transactional_cluster: rig.Cluster, name: str) -> None:
    with BlockingAdmin(transactional_cluster.namesrv) as admin:
        admin.create_topic(name, 4)
    with ExitStack() as settings:
        for key, value in SOON.items():
            settings.enter_context(set_for_a_while(transactional_cluster, key, str(value), str(USUAL[key])))
        rig.run(both_ways(transactional_cluster.namesrv, name, once=False))


@pytest.mark.parametrize("transactional_cluster", ["java"], indirect=True)
def test_our_blocking_producer_on_java(transactional_cluster: rig.Cluster, name: str) -> None:
    namesrv = transactional_cluster.namesrv
    with BlockingAdmin(namesrv) as admin:
        admin.create_topic(name, 1)
    seen: list[SendResult] = []

    def local(half: SendResult) -> TransactionState:
        seen.append(half)
        return TransactionState.COMMIT

    with BlockingTransactionProducer(namesrv, f"g_{name}", lambda message: TransactionState.COMMIT) as producer:
        done = producer.send_in_transaction(Message(name, b"blocking"), local)
        assert done.told and seen == [done.half]
        dropped = producer.begin(Message(name, b"dropped"))
        assert producer.end(dropped, TransactionState.ROLLBACK).told
        with BlockingAdmin(namesrv) as admin:
            rig.until("it is delivered", lambda: [r.max_offset for r in admin.topic_stats(name)] == [1], 30)


# ---- brokers die ----


def test_open_halves_outlive_a_killed_broker(
    perseid_cluster: rig.Cluster, java_agent: rig.Agent, workshop: Path, name: str
) -> None:
    more = {**SOON, "transactionCheckMax": 100}  # for the producer is away while the broker starts again
    broker = rig.broker("perseid", workshop / f"tx-{name}", perseid_cluster.namesrv, **more)
    client = rig.Client(java_agent, perseid_cluster)
    broker.start()
    try:
        rig.await_registered(perseid_cluster.namesrv, broker.folder.name)
        made = client.mqadmin("updateTopic", "-b", broker.address, "-t", name, "-r", "4", "-w", "4")
        assert "success" in made
        rig.until("route", lambda: rig.call(perseid_cluster.namesrv, 105, {"topic": name}).code == 0)
        tx = client("tx.start", group=f"g_{name}", pollMs=1_000, beatMs=1_000)
        bodies = [f"{kind}/{number}" for number in range(5) for kind in PLANS]
        for body in bodies:
            client("tx.send", handle=tx, message={"topic": name, "body": body})
        broker.kill()
        broker.start()
        wanted = {body for body in bodies if plan(body).endswith("commit")}
        got = client.consume(name, f"c_{name}", len(wanted), 90)
        assert {m["body"] for m in got} == wanted
    finally:
        client.close()
        broker.kill()


@pytest.mark.long
@pytest.mark.timeout(rig.many(900, 3_600), func_only=True)
def test_masters_are_killed_and_no_transaction_is_lost(
    perseid_cluster: rig.Cluster, java_agent: rig.Agent, workshop: Path, name: str
) -> None:
    """Two brokers under a controller: whoever takes over knows what is open, and asks."""
    made = BrokerSet(perseid_cluster, workshop / f"txset-{name}", ("perseid",), ("perseid", "perseid"), **{
        **SOON, "transactionCheckMax": 100,
    })  # fmt: skip
    client = rig.Client(java_agent, perseid_cluster)
    try:
        made.start()
        made.make_topic(client, name)
        tx = client("tx.start", group=f"g_{name}", pollMs=1_000, beatMs=1_000, timeoutMs=3_000)
        client("tx.flood", handle=tx, topic=name)
        stored = 0
        for _ in range(rig.many(2, 10)):
            stored += 200
            rig.until("halves are stored", lambda least=stored: client("tx.stored", handle=tx) >= least, 60)
            old = made.await_master()
            old.kill()
            made.await_master(gone=old)
            stored = client("tx.stored", handle=tx) + 100
            rig.until("halves are stored again", lambda least=stored: client("tx.stored", handle=tx) >= least, 60)
            old.start()
            made.await_in_sync()
        halves = client("tx.drain", handle=tx)
        wanted = {body for body in halves if plan(body).endswith("commit")}
        consumer = client("push.start", topic=name, group=f"c_{name}", brief=True)
        seen: Counter[str] = Counter()

        def complete() -> bool:
            seen.clear()
            seen.update(m["body"] for m in client("push.await", handle=consumer, count=0, timeoutMs=0))
            return not wanted - seen.keys()

        rig.until("all that was committed is read", complete, rig.many(60, 240))
        wrong = {body for body in seen if not plan(body).endswith("commit")}
        assert not wrong, f"rolled back, and read: {sorted(wrong)[:10]}"
        asked = {m["body"].split(" ")[0] for m in client("tx.asked", handle=tx)}
        assert {body for body in wanted if body.startswith("ask-")} <= asked
        made.check_same()
        again = sum(times - 1 for times in seen.values())
        print(f"{len(halves)} halves, {len(wanted)} to be committed, {again} came again, {len(asked)} asked about")
    finally:
        client.close()
        made.kill()
