"""`perseid admin`: topics, groups, offsets, clients and messages, on our own broker."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from perseid.cli import groups
from perseid.cli.main import app
from perseid.client import (
    Message,
    MessageQueue,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import names

from .fake import run as wait_for


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def call(broker: EmbeddedBroker, *args: str) -> Result:
    return CliRunner().invoke(app, ["admin", *args, "-n", broker.namesrv])


def read(broker: EmbeddedBroker, *args: str) -> object:
    result = call(broker, *args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def fill(broker: EmbeddedBroker, topic: str, count: int = 4) -> list[SendResult]:
    """Messages in queue 0 of a topic of two queues."""

    async def work() -> list[SendResult]:
        async with Producer(broker.namesrv, options=ProducerOptions(default_queues=2)) as producer:
            first = await producer.send(Message(topic, b"body 0", tag="a", keys="k0"))
            queue = first.queue
            more = [
                await producer.send(Message(topic, b"body %d" % n, keys=f"k{n}"), queue=queue) for n in range(1, count)
            ]
            return [first, *more]

    return asyncio.run(work())


def commit(broker: EmbeddedBroker, group: str, queue: MessageQueue, offset: int) -> None:
    async def work() -> None:
        async with PullConsumer(broker.namesrv, group) as consumer:
            await consumer.pull(queue, offset)  # so that the broker knows the group
            await consumer.commit(queue, offset)

    asyncio.run(work())


def test_topics(broker: EmbeddedBroker) -> None:
    [*_, last] = fill(broker, "T1")
    rows = {row["topic"]: row for row in read(broker, "topics")}  # type: ignore[attr-defined]
    assert (rows["T1"]["queues"], rows["T1"]["messages"]) == (2, 4)
    assert rows["T1"]["brokers"] == [last.queue.broker_name] and rows["T1"]["lastUpdateMs"] > 0
    assert "TBW102" not in rows
    assert "TBW102" in {row["topic"] for row in read(broker, "topics", "--all")}  # type: ignore[attr-defined]
    assert "T1" in call(broker, "topics").stdout


def test_groups_come_and_go(broker: EmbeddedBroker) -> None:
    assert call(broker, "create-group", "G1", "--retries", "3", "--no-broadcast").exit_code == 0
    [row] = [row for row in read(broker, "groups") if row["group"] == "G1"]  # type: ignore[attr-defined]
    assert row == {"group": "G1", "members": 0, "kind": "", "model": "", "lag": 0, "retries": 3}
    assert "G1" in call(broker, "groups").stdout
    shown, everything = ({row["group"] for row in read(broker, "groups", *more)} for more in ((), ("--all",)))  # type: ignore[attr-defined]
    systems = everything - shown
    assert systems == set(names.DEFAULT_GROUPS)
    assert "its offsets stay" in call(broker, "delete-group", "G1").stdout
    assert not [row for row in read(broker, "groups") if row["group"] == "G1"]  # type: ignore[attr-defined]


def test_lag_reset_and_clone(broker: EmbeddedBroker) -> None:
    sent = fill(broker, "T2")
    queue = sent[0].queue
    place = f"{queue.broker_name}:{queue.queue_id}"
    commit(broker, "G2", queue, 1)

    def lag(group: str = "G2") -> dict[int, int]:
        told = read(broker, "lag", group, "--topic", "T2")
        return {row["queue"]: row["lag"] for row in told["queues"]}  # type: ignore[index]

    assert lag()[queue.queue_id] == 3
    assert "3 messages to consume" in call(broker, "lag", "G2").stdout
    assert read(broker, "reset-offset", "G2", "T2", "--to", "4", "--queue", place) == [
        {"topic": "T2", "broker": queue.broker_name, "queue": queue.queue_id, "offset": 4}
    ]
    assert lag()[queue.queue_id] == 0
    assert "goes on at" in call(broker, "reset-offset", "G2", "T2", "--to", "first").stdout
    assert lag()[queue.queue_id] == 4
    call(broker, "reset-offset", "G2", "T2", "--to", "last")
    assert set(lag().values()) == {0}
    call(broker, "reset-offset", "G2", "T2", "--to", "2001-01-01T00:00")
    assert lag()[queue.queue_id] == 4
    assert call(broker, "create-group", "G3").exit_code == 0
    assert "4 messages behind" in call(broker, "clone-offset", "G2", "G3").stdout
    assert lag("G3") == lag()
    nothing = call(broker, "lag", "G4")
    assert nothing.exit_code == 0 and "committed nothing" in nothing.stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("reset-offset", "G", "T", "--to", "yesterday"), "first, last"),
        (("reset-offset", "G", "T", "--to", "last", "--queue", "b:0"), "an offset"),
        (("reset-offset", "G", "T", "--to", "3", "--queue", "b"), "BROKER:NUMBER"),
        (("reset-offset", "G", "T", "--to", "-5"), "first, last"),
        (("messages", "T"), "--key"),
        (("messages", "T", "--key", "k", "--queue", "b:0"), "--key"),
        (("messages", "T", "--queue", "b:x"), "BROKER:NUMBER"),
        (("messages", "T", "--queue", "b:0", "--offset", "-1"), "offset"),
        (("create-group", "G", "--retries", "-7"), "retries"),
    ],
)
def test_what_can_not_be_understood(broker: EmbeddedBroker, args: tuple[str, ...], why: str) -> None:
    result = call(broker, *args)
    assert result.exit_code == 2 and why in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "args",
    [
        ("reset-offset", "none", "none", "--to", "last"), ("message", "nonsense"), ("lag", "g", "--topic", "a b"),
        ("consumer", "none", "--client", "nobody"), ("create-group", "a b"),
        ("messages", "none", "--queue", "b:0"), ("message", "7F00000100002A9F00000000000FFFFF"),
    ],
)  # fmt: skip
def test_what_is_refused_is_one_line(broker: EmbeddedBroker, args: tuple[str, ...]) -> None:
    result = call(broker, *args)
    assert result.exit_code in (0, 1) and "Traceback" not in result.output
    assert result.stderr.startswith("perseid: ") or "committed nothing" in result.stderr


def test_clients(broker: EmbeddedBroker) -> None:
    fill(broker, "T5")

    async def work() -> None:
        got = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.set()

        async with (
            Producer(broker.namesrv, "G5", options=ProducerOptions(default_queues=2)) as producer,
            PushConsumer(broker.namesrv, "G5", {"T5": "a || b"}, handle, from_where="first") as consumer,
        ):
            await producer.send(Message("T5", b"x", tag="a"))
            await got.wait()
            client = consumer.session.client_id
            told = await asyncio.to_thread(read, broker, "connections", "G5")
            kinds = {(row["kind"], row["clientId"]) for row in told["members"]}  # type: ignore[index]
            assert kinds == {("consumer", client), ("producer", producer.session.client_id)}
            assert told["subscriptions"]["T5"] == "a || b"  # type: ignore[index]
            shown = (await asyncio.to_thread(call, broker, "connections", "G5")).stdout
            assert "subscribes to T5: a || b" in shown and "5.5.0" in shown
            told = await asyncio.to_thread(read, broker, "consumer", "G5")
            queues = told[client]["queues"]  # type: ignore[index]
            assert {row["queue"] for row in queues if row["topic"] == "T5"} == {0, 1}
            assert client[:10] in (await asyncio.to_thread(call, broker, "consumer", "G5", "--client", client)).stdout
            [row] = [r for r in await asyncio.to_thread(read, broker, "groups") if r["group"] == "G5"]  # type: ignore[attr-defined]
            assert (row["members"], row["kind"], row["model"]) == (1, "push", "clustering")

    wait_for(work())
    nobody = call(broker, "connections", "G5")
    assert nobody.exit_code == 0 and "nobody is connected" in nobody.stderr
    assert "nobody is connected" in call(broker, "consumer", "G5").stderr


def test_messages_by_key_id_and_offset(broker: EmbeddedBroker) -> None:
    sent = fill(broker, "T6")
    queue = sent[0].queue
    [by_key] = read(broker, "messages", "T6", "--key", "k2")  # type: ignore[misc]
    assert (by_key["body"], by_key["offset"]) == ("body 2", 2)
    place = f"{queue.broker_name}:{queue.queue_id}"
    rows = read(broker, "messages", "T6", "--queue", place, "--offset", "1", "--count", "2")
    assert [row["body"] for row in rows] == ["body 1", "body 2"]  # type: ignore[attr-defined]
    shown = call(broker, "messages", "T6", "--queue", place).stdout
    assert "body 3" in shown and sent[0].msg_id in shown
    for args in ((sent[0].offset_msg_id,), (sent[0].msg_id, "--topic", "T6")):
        [whole] = read(broker, "message", *args)  # type: ignore[misc]
        assert (whole["body"], whole["tag"], whole["keys"]) == ("body 0", "a", ["k0"])
    assert "property UNIQ_KEY" in call(broker, "message", sent[0].offset_msg_id).stdout
    for missing in (("messages", "T6", "--key", "none"), ("messages", "T6", "--queue", place, "--offset", "99")):
        result = call(broker, *missing)
        assert result.exit_code == groups.NOT_FOUND and "no such message" in result.stderr
