"""Request and reply, and what operators ask of consumers: stock clients and ours on both sides."""

from __future__ import annotations

import asyncio

import pytest
import rig

from perseid.client import Message, Producer, PushConsumer, ReceivedMessage
from perseid.wire import fastjson

pytestmark = pytest.mark.interop
WELL = ("", "java.lang.InterruptedException")
"""What a replier ends with: the second when it is stopped as its reply, which came, is being acknowledged."""


def test_java_asks_java(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    handle = java("replier.start", topic=topic, group=name)
    reply = java("request", message={"topic": topic, "body": "two and two?"})
    assert (reply["body"], reply["topic"]) == ("re: two and two?", f"{cluster.cluster_name}_REPLY_TOPIC")
    assert int(reply["props"]["PUSH_REPLY_TIME"]) > 0
    java.opened.remove(("replier.stop", handle))
    assert java("replier.stop", handle=handle) in WELL
    stored = java.admin("examineTopicStats", f"{cluster.cluster_name}_REPLY_TOPIC")
    assert sum(offsets["maxOffset"] for _, offsets in stored["offsetTable"]) >= 1


def test_nobody_replies(java: rig.Client, topic: str) -> None:
    with pytest.raises(rig.AgentError) as raised:
        java("request", message={"topic": topic, "body": "hello?"}, timeoutMs=3000)
    assert "RequestTimeoutException" in raised.value.type


def test_java_asks_us(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    async def test() -> None:
        async with Producer(cluster.namesrv) as producer:

            async def handle(message: ReceivedMessage) -> None:
                await producer.reply(message, b"re: " + message.body + b"!" * 9000, tag="t", properties={"mine": "yes"})

            async with PushConsumer(cluster.namesrv, name, {topic: "*"}, handle, from_where="first"):
                reply = await asyncio.to_thread(java, "request", message={"topic": topic, "body": "four?"})
        assert reply["body"] == "re: four?" + "!" * 9000, "it went compressed"
        assert (reply["props"]["TAGS"], reply["props"]["mine"]) == ("t", "yes")

    rig.run(test())


def test_we_ask_java(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    java("replier.start", topic=topic, group=name)

    async def test() -> None:
        async with Producer(cluster.namesrv) as producer:
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"%d" % n), timeout_ms=60_000) for n in range(20))
            )
        assert [reply.body for reply in replies] == [b"re: %d" % n for n in range(20)]

    rig.run(test())


def greet(go: rig.Client, topic: str) -> None:
    """Go's producer tells brokers of itself each 30 s only, and one that no broker knows gets no reply."""
    go("send", messages=[{"topic": topic, "body": "hello"}])
    header = {"producerGroup": "interop_go_sync"}
    rig.until("the producer is known", lambda: rig.call(go.cluster.broker, 204, header).code == 0, 60)


def test_go_asks_go_and_java(go: rig.Client, java: rig.Client, topic: str, name: str) -> None:
    greet(go, topic)
    for replier, question in ((go, "of its own kind"), (java, "of another one")):
        handle = replier("replier.start", topic=topic, group=name)
        reply = go("request", message={"topic": topic, "body": question}, timeoutMs=60_000)
        assert reply["body"] == f"re: {question}" and int(reply["props"]["PUSH_REPLY_TIME"]) > 0
        replier.opened.remove(("replier.stop", handle))
        assert replier("replier.stop", handle=handle) in WELL
    with pytest.raises(rig.AgentError, match="timeout"):
        go("request", message={"topic": topic, "body": "nobody there?"}, timeoutMs=2000)


def test_go_asks_us_and_we_ask_go(go: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    greet(go, topic)

    async def test() -> None:
        async with Producer(cluster.namesrv) as producer:

            async def handle(message: ReceivedMessage) -> None:
                if message.body != b"hello":
                    await producer.reply(message, b"re: " + message.body)

            async with PushConsumer(cluster.namesrv, f"{name}_1", {topic: "*"}, handle, from_where="first"):
                message = {"topic": topic, "body": "four?"}
                reply = await asyncio.to_thread(go, "request", message=message, timeoutMs=60_000)
            assert reply["body"] == "re: four?"
            await asyncio.to_thread(go, "replier.start", topic=topic, group=f"{name}_2")
            assert (await producer.request(Message(topic, b"five?"), timeout_ms=60_000)).body == b"re: five?"

    rig.run(test())


def test_operators_ask_our_consumers_through_the_broker(
    java: rig.Client, cluster: rig.Cluster, topic: str, name: str
) -> None:
    got: list[bytes] = []

    async def test() -> None:
        async def handle(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with PushConsumer(cluster.namesrv, name, {topic: "*"}, handle, from_where="first") as push:
            [sent] = await asyncio.to_thread(java.send, topic, ["once more"], keys="k")
            await asyncio.to_thread(rig.until, "consumed", lambda: got == [b"once more"])
            client = push.session.client_id
            info = await asyncio.to_thread(java.admin, "getConsumerRunningInfo", name, client, True)
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY" and "jstack" in info
            args = (name, client, topic, sent["offsetMsgId"])
            result = await asyncio.to_thread(java.admin, "consumeMessageDirectly", *args)
            assert result["consumeResult"] == "CR_SUCCESS" and got == [b"once more"] * 2
            status = await asyncio.to_thread(java.admin, "getConsumeStatus", topic, name, "")
            assert client in fastjson.loads(fastjson.dumps(status))

    rig.run(test())


def test_operators_ask_java_consumers_through_the_broker(
    java: rig.Client, cluster: rig.Cluster, topic: str, name: str
) -> None:
    handle = java("push.start", topic=topic, group=name)
    [sent] = java.send(topic, ["once more"], keys="k")
    java.collect(handle, 1)
    client = java("push.clientId", handle=handle)
    info = java.admin("getConsumerRunningInfo", name, client, False)
    assert info["properties"]["PROP_CONSUMER_START_TIMESTAMP"]
    assert [s["topic"] for s in info["subscriptionSet"] if s["topic"] == topic] == [topic]
    result = java.admin("consumeMessageDirectly", name, client, topic, sent["offsetMsgId"])
    assert result["consumeResult"] == "CR_SUCCESS"
    assert len(java.collect(handle, 2)) == 2
    status = java.admin("getConsumeStatus", topic, name, client)
    assert list(status) == [client]
    with pytest.raises(rig.AgentError) as raised:
        java.admin("getConsumerRunningInfo", name, "nobody", False)
    assert raised.value.code == 1 and "not online" in raised.value.message
