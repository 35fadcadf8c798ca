"""Message traces of stock Java clients, on a Java broker and on ours: what they write is what we decode."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import parts
import pytest
import rig

from perseid.client import ConsumeMode, Message, ProducerOptions, PushConsumer, PushOptions, ReceivedMessage, Tracer
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.wire import trace

pytestmark = pytest.mark.interop
TOPIC = "RMQ_SYS_TRACE_TOPIC"
COUNT = 6


@pytest.fixture
def traced(java: rig.Client) -> Iterator[rig.Client]:
    """The stock clients; their producers, which send traces until they are stopped, end with the test."""
    yield java
    java("producers.stop")


@pytest.fixture
def tracing_go(cluster: rig.Cluster, workshop: Path, name: str) -> Iterator[rig.Client]:
    """Go clients in a process of the test's own: Go's tracers share a client, of the first name server heard of."""
    agent = rig.Agent([str(parts.go_agent())], workshop / f"agent-{name}")
    yield rig.Client(agent, cluster)
    agent.stop()


def bodies(namesrv: str) -> list[bytes]:
    """All of the trace topic."""
    with BlockingPullConsumer(namesrv) as consumer:
        return [
            message.body
            for queue in consumer.queues(TOPIC)
            for some in consumer.read(queue, consumer.min_offset(queue), consumer.max_offset(queue))
            for message in some
        ]


def traces_of(namesrv: str, ids: set[str]) -> list[trace.Trace]:
    """Of these COUNT messages, each of which was sent once and handled twice."""

    def found() -> list[trace.Trace]:
        return [one for body in bodies(namesrv) for one in trace.decode(body) if one.msg_id in ids]

    def kinds() -> Counter[str]:
        return Counter(one.kind for one in found())

    rig.until("the traces", lambda: kinds()[trace.PUB] >= COUNT and kinds()[trace.AFTER] >= 2 * COUNT)
    return found()


def record(namesrv: str) -> None:
    """Add the topic's bodies to PERSEID_RECORD, if that is set: so tests/wire/traces.json is made, on Java brokers."""
    if os.environ.get("PERSEID_RECORD"):
        path = Path(os.environ["PERSEID_RECORD"])
        known = json.loads(path.read_text()) if path.exists() else []
        recorded = [base64.b64encode(body).decode() for body in bodies(namesrv)]
        path.write_text(json.dumps(known + recorded, indent=0) + "\n")


def test_what_java_clients_trace_is_decoded(traced: rig.Client, topic: str, name: str) -> None:
    namesrv = traced.cluster.namesrv
    sent = traced(
        "send", traced=True, group=f"p_{name}",
        messages=[{"topic": topic, "body": f"m{i}", "tags": "red", "keys": "k1 k2"} for i in range(COUNT)],
    )  # fmt: skip
    ids = {result["msgId"] for result in sent}
    assert len(ids) == COUNT
    handle = traced("push.start", topic=topic, group=f"g_{name}", traced=True, failures=1, delayLevel=1)
    traced.collect(handle, 2 * COUNT)
    traced("push.stop", handle=handle)
    traced("producers.stop")

    found = traces_of(namesrv, ids)
    pubs = [one for one in found if one.kind == trace.PUB]
    assert {one.msg_id for one in pubs} == ids and all(one.ok and one.topic == topic for one in pubs)
    assert all((one.group, one.tags, one.keys, one.body_bytes) == (f"p_{name}", "red", "k1 k2", 2) for one in pubs)
    assert {one.store_host for one in pubs} == {traced.cluster.broker}
    before = [one for one in found if one.kind == trace.BEFORE]
    assert Counter(one.retries for one in before) == {0: COUNT, 1: COUNT}
    assert {one.group for one in before} == {f"g_{name}"}
    after = [one for one in found if one.kind == trace.AFTER]
    assert {(one.request_id, one.msg_id) for one in after} == {(one.request_id, one.msg_id) for one in before}
    assert Counter((one.ok, one.code) for one in after) == {(False, "FAILED"): COUNT, (True, "SUCCESS"): COUNT}
    if traced.cluster.broker_process.impl == "java":
        record(namesrv)


def test_what_go_clients_trace_is_decoded_and_shown(
    traced: rig.Client, tracing_go: rig.Client, topic: str, name: str
) -> None:
    go = tracing_go
    namesrv = traced.cluster.namesrv
    # Go's tracer wants a trace topic that is there; Java's has it made
    traced("send", traced=True, group=f"p_{name}", messages=[{"topic": topic, "body": "first"}])
    rig.until("the trace topic", lambda: bodies(namesrv))
    wanted = [{"topic": topic, "body": f"m{i}", "tags": "red", "keys": ["k1"]} for i in range(COUNT)]
    sent = go("send", trace=f"go_{name}", messages=wanted)
    ids = {result["msgId"] for result in sent}
    handle = go("push.start", topic=topic, group=f"g_{name}", trace=f"g_{name}", failures=1, delayLevel=1, expr="red")
    go.collect(handle, 2 * COUNT)
    go("push.stop", handle=handle)
    go("producer.stop", trace=f"go_{name}")

    found = traces_of(namesrv, ids)
    pubs = [one for one in found if one.kind == trace.PUB]
    assert {one.msg_id for one in pubs} == ids and all(one.ok and one.topic == topic for one in pubs)
    assert {(one.group, one.tags, one.keys, one.body_bytes) for one in pubs} == {("interop_go_sync", "red", "k1", 2)}
    after = [one for one in found if one.kind == trace.AFTER]
    assert Counter(one.ok for one in after) == {False: COUNT, True: COUNT}
    printed = traced.mqadmin("queryMsgTraceById", "-i", sent[0]["msgId"])
    [pub] = [line.split() for line in printed.splitlines() if line.startswith("Pub")]
    assert pub[1] == "interop_go_sync" and pub[-1] == "success", printed


def test_what_our_clients_trace_is_shown_by_mqadmin(traced: rig.Client, topic: str, name: str) -> None:
    """Our tracer's messages, on both brokers, read by the stock tool."""
    namesrv = traced.cluster.namesrv
    with BlockingProducer(namesrv, f"p_{name}", options=ProducerOptions(hooks=[Tracer()])) as producer:
        sent = producer.send(Message(topic, b"12345", tag="red", keys="k1 k2"))
    again: list[int] = []

    async def taken() -> None:
        done = asyncio.Event()

        def handle(message: ReceivedMessage) -> bool:
            again.append(message.reconsume_times)
            if len(again) == 2:
                loop.call_soon_threadsafe(done.set)
            return len(again) == 2

        loop = asyncio.get_running_loop()
        options = PushOptions(hooks=[Tracer()])
        async with asyncio.timeout(60), PushConsumer(
            namesrv, f"g_{name}", {topic: "*"}, handle, from_where="first", mode=ConsumeMode.ORDERED, options=options
        ):  # fmt: skip
            await done.wait()

    asyncio.run(taken())
    printed = traced.mqadmin("queryMsgTraceById", "-i", sent.msg_id)
    [pub] = [line.split() for line in printed.splitlines() if line.startswith("Pub")]
    assert pub[1] == f"p_{name}" and pub[-1] == "success"
    calls = [line.split() for line in printed.splitlines() if line.startswith("Sub")]
    assert sorted((call[1], call[-1]) for call in calls) == [(f"g_{name}", "failed"), (f"g_{name}", "success")], printed


def test_a_transactions_end_is_traced(transactional_cluster: rig.Cluster, java_agent: rig.Agent, name: str) -> None:
    """In stock clients' words, on brokers of its own."""
    java, topic = rig.Client(java_agent, transactional_cluster), f"t_{name}"
    with BlockingAdmin(transactional_cluster.namesrv) as admin:
        admin.create_topic(topic, 1)
    # a producer that ends at once can't have the trace topic made and trace into it too: another one does it first
    java("send", traced=True, group=f"p_{name}", messages=[{"topic": f"f_{name}", "body": "first"}])
    rig.until("the trace topic", lambda: bodies(transactional_cluster.namesrv))
    java("producers.stop")
    java("transaction", traced=True, message={"topic": topic, "body": "half"})

    def found() -> list[trace.Trace]:
        every = [one for body in bodies(transactional_cluster.namesrv) for one in trace.decode(body)]
        return [one for one in every if one.topic == topic]

    rig.until("the traces", lambda: len(found()) >= 2)
    half, end = sorted(found(), key=lambda one: one.kind == trace.END_TRANSACTION)
    assert (half.kind, half.message_type, half.body_bytes) == (trace.PUB, "HALF", 4)
    assert (end.kind, end.message_type, end.state) == (trace.END_TRANSACTION, "COMMIT", "COMMIT_MESSAGE")
    assert end.msg_id == half.msg_id
    if transactional_cluster.broker_process.impl == "java":
        record(transactional_cluster.namesrv)
