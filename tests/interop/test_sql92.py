"""SQL92 filters: our expressions beside the original's, then whole consumers, stock and ours, on both brokers."""

from __future__ import annotations

import asyncio

import pytest
import rig
from tests.sql_cases import Draw, result

from perseid.client import ClientError, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage, Sql
from perseid.client.blocking import BlockingPullConsumer

pytestmark = pytest.mark.interop
CASES = 20_000


def test_drawn_expressions_come_to_what_they_come_to_in_java(java_agent: rig.Agent) -> None:
    draw = Draw(5)
    cases = [draw.case() for _ in range(CASES)]
    theirs: list[str] = []
    for first in range(0, CASES, 1000):
        theirs += java_agent("sql92", cases=cases[first : first + 1000])
    differ = [(case, java, result(case)) for case, java in zip(cases, theirs, strict=True) if java != result(case)]
    assert not differ, f"{len(differ)}: {differ[:10]}"
    assert {"true", "false", "null", "refused", "failed"} <= set(theirs)


# ---- consumers ----

WANTED = "price BETWEEN 3 AND 5 AND (kind = 'a' OR kind IS NULL)"
COUNT = 30


def messages() -> list[tuple[str, dict[str, str]]]:
    """Bodies and properties."""
    found = []
    for number in range(COUNT):
        kind = ("a", "b", None)[number % 3]
        found.append((f"m{number}", {"price": str(number % 10)} | ({"kind": kind} if kind else {})))
    return found


def wanted() -> set[str]:
    return {body for body, has in messages() if 3 <= int(has["price"]) <= 5 and has.get("kind") in ("a", None)}


@pytest.mark.usefixtures("sql_cluster")
@pytest.mark.parametrize("kind", ["java", "go"])
def test_stock_consumers(request: pytest.FixtureRequest, kind: str, topic: str, name: str) -> None:
    """What comes before they start, and what comes while they wait."""
    client: rig.Client = request.getfixturevalue(kind)
    client("send", messages=[{"topic": topic, "body": body, "props": has} for body, has in messages()])
    handle = client("push.start", topic=topic, group=name, sql=WANTED)
    assert {m["body"] for m in client.collect(handle, len(wanted()))} == wanted()
    client("send", messages=[{"topic": topic, "body": f"later-{body}", "props": has} for body, has in messages()])
    both = wanted() | {f"later-{body}" for body in wanted()}
    assert sorted(m["body"] for m in client.collect(handle, len(both))) == sorted(both)


@pytest.mark.usefixtures("sql_cluster")
def test_an_expression_that_cannot_be_read(java: rig.Client, topic: str, name: str) -> None:
    def refused() -> str:
        """A client that hasn't got the route in time starts without asking."""
        try:
            java("push.stop", handle=java("push.start", topic=topic, group=name, sql="price >"))
        except rig.AgentError as e:
            return f"{e.code} {e.message}"
        return ""

    assert rig.until("the consumer doesn't start", refused).startswith("23 ")


@pytest.mark.usefixtures("sql_cluster")
def test_our_consumers(cluster: rig.Cluster, java: rig.Client, topic: str, name: str) -> None:
    async def test() -> None:
        async with asyncio.timeout(300), Producer(cluster.namesrv) as producer:
            for body, has in messages():
                await producer.send(Message(topic, body.encode(), properties=has))
            got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
            async with PushConsumer(cluster.namesrv, name, {topic: Sql(WANTED)}, got.put, from_where="first"):
                pushed = {(await got.get()).body.decode() for _ in wanted()}
                assert pushed == wanted()
                await producer.send(Message(topic, b"late", properties={"price": "4"}))
                assert (await got.get()).body == b"late", "a pull that waits is woken by what it wants"
            async with PullConsumer(
                cluster.namesrv, f"p_{name}", expression=Sql(WANTED), from_where="first"
            ) as consumer:
                consumer.assign(await consumer.queues(topic))
                pulled: set[str] = set()
                while pulled != wanted() | {"late"}:
                    pulled |= {m.body.decode() for m in await consumer.poll(timeout_ms=5_000)}
            async with PullConsumer(cluster.namesrv, f"q_{name}", expression=Sql("price >")) as consumer:
                with pytest.raises(ClientError, match="23"):
                    await consumer.check_expression(topic)

    asyncio.run(test())


@pytest.mark.usefixtures("sql_cluster")
def test_our_blocking_consumer(cluster: rig.Cluster, java: rig.Client, topic: str, name: str) -> None:
    java("send", messages=[{"topic": topic, "body": body, "props": has} for body, has in messages()])
    with BlockingPullConsumer(cluster.namesrv, name, expression=Sql(WANTED), from_where="first") as consumer:
        consumer.assign(consumer.queues(topic))
        got: set[str] = set()
        while got != wanted():
            got |= {m.body.decode() for m in consumer.poll(timeout_ms=5_000)}
