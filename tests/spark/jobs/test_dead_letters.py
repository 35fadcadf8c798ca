"""Dead letters by group, origin, tag and client: those that our broker made, and a log with many kinds."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.log.logs import T0, record, written

from perseid.base.errors import ConfigError
from perseid.client import ClientError, Message, PushConsumer, RetryLater
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.spark.jobs.dead_letters import DeadLetters, Part, dead_letters
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import ids
from perseid.wire import properties as props
from perseid.wire.host import host_from

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

BROKER = host_from("10.0.0.2:10911")
HOUR = 3_600_000
DEADLINE_S = 60


def died(place: int, group: str, origin: str, at: int, attempts: int, **more: Any) -> bytes:
    """A dead letter whose first copy stood at `at`."""
    told = {
        "TAGS": more.pop("tag", "red"), "KEYS": f"k{at}", "UNIQ_KEY": f"ID{at}", "RETRY_TOPIC": origin,
        "ORIGIN_MESSAGE_ID": ids.offset_message_id(BROKER, at), **more.pop("properties", {}),
    }  # fmt: skip
    return record(
        place, topic=f"%DLQ%{group}", queue_id=0, reconsume_times=attempts, properties=props.encode(told),
        **{"born_timestamp": T0, "stored": T0 + 2 * HOUR, "body": f"body {at}".encode(), **more},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three messages of orders in queue 3 and one of paid, which two groups could not consume."""
    data, at = bytearray(), []
    for topic, queue in [("orders", 3)] * 3 + [("paid", 1)]:
        at.append(len(data))
        data += record(len(data), topic=topic, queue_id=queue)
    data += died(len(data), "billing", "orders", at[0], 17, born_host=host_from("10.1.0.1:5000"))
    data += died(len(data), "billing", "orders", at[1], 17, born_host=host_from("10.1.0.1:6000"), tag="blue")
    data += died(len(data), "billing", "paid", at[3], 1, stored=T0 + HOUR, body=b"\xff\xfe")
    data += died(len(data), "mail", "orders", at[2], 4, properties={"MAX_RECONSUME_TIMES": "3"}, stored=T0 + 9 * HOUR)
    data += died(len(data), "mail", "orders", 1 << 40, 2, stored=T0 + 3 * HOUR)  # its first copy is gone
    return written(tmp_path_factory.mktemp("store") / "commitlog", [(0, bytes(data) + bytes(1000))]).parent


def values(parts: tuple[Part, ...], group: str) -> dict[str, int]:
    return {part.value: part.records for part in parts if part.group == group}


def test_a_folders_dead_letters_are_summed_up(spark: Any, folder: Path) -> None:
    found = dead_letters(spark, folders=[str(folder)])
    billing, mail = found.groups
    assert (billing.name, billing.records, billing.used_up, billing.given_up) == ("billing", 3, 2, 1)
    assert (mail.name, mail.records, mail.used_up, mail.given_up) == ("mail", 2, 1, 1)
    assert (billing.lived_ms, billing.first_ms, billing.last_ms) == (2 * HOUR, T0 + HOUR, T0 + 2 * HOUR)
    assert billing.attempts == pytest.approx(35 / 3)
    assert values(found.origins, "billing") == {"orders": 2, "paid": 1}
    assert values(found.queues, "billing") == {"orders 3": 2, "paid 1": 1}
    assert (values(found.origins, "mail"), values(found.queues, "mail")) == ({"orders": 2}, {"orders 3": 1})
    assert values(found.tags, "billing") == {"red": 2, "blue": 1}
    assert values(found.hosts, "billing") == {"10.1.0.1": 2, "10.0.0.1": 1}
    assert values(found.attempts, "billing") == {"17": 2, "1": 1}
    assert sum(count for _, _, count in found.over_time) == found.records == 5
    last = found.samples[0]
    assert (last.group, last.how, last.queue, last.msg_id) == ("mail", "used up", "orders 3", last.msg_id)
    assert last.lived_ms == 9 * HOUR and last.body.startswith("body ") and last.keys.startswith("k")
    gone = next(sample for sample in found.samples if sample.attempts == 2)
    assert (gone.queue, gone.origin) == ("", "orders")
    assert dead_letters(spark, folders=[str(folder)], groups=["mail"], samples=1).groups == (mail,)


def test_messages_that_die_in_our_broker_are_found(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("deadly", 2)
    with BlockingProducer(broker.namesrv) as producer:
        for number in range(4):
            producer.send(Message("deadly", b"body %d" % number, tag="red", keys=[f"k{number}"]))

    pause = threading.Event()

    async def fail() -> None:
        def handler(_: Any) -> None:
            raise RetryLater("never", delay_level=-1)

        async with PushConsumer(broker.namesrv, "dying", {"deadly": "*"}, handler, from_where="first"):
            async with asyncio.timeout(DEADLINE_S):
                while await asyncio.to_thread(count) < 4:
                    await asyncio.to_thread(pause.wait, 0.05)

    def count() -> int:
        with BlockingPullConsumer(broker.namesrv) as consumer:
            try:
                return sum(consumer.max_offset(queue) for queue in consumer.queues("%DLQ%dying"))
            except ClientError:  # nothing died yet
                return 0

    asyncio.run(fail())
    found: DeadLetters = dead_letters(spark, nameserver=broker.namesrv, groups=["dying"])
    (group,) = found.groups
    assert (group.name, group.records, group.given_up, group.attempts) == ("dying", 4, 4, 1.0)
    assert values(found.origins, "dying") == {"deadly": 4} and values(found.tags, "dying") == {"red": 4}
    assert {sample.body for sample in found.samples} == {f"body {number}" for number in range(4)}
    assert all(len(sample.origin_id) == 32 and sample.host == "127.0.0.1" for sample in found.samples)
    every = dead_letters(spark, nameserver=broker.namesrv, max_retries=0)
    assert [group.used_up for group in every.groups if group.name == "dying"] == [4]


@pytest.mark.slow
def test_the_command_says_by_its_exit_code_that_there_are_some(
    command: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    done = command("dead-letters", "--folder", folder, "--report", report, "--json")
    assert done.exit_code == 3, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["records"] == 5 and told["samples"][0]["group"] == "mail"
    assert "5 dead letters of 2 groups" in report.read_text()
    none = command("dead-letters", "--folder", folder, "nobody")
    assert none.exit_code == 0 and "0 dead letters" in none.stdout


def test_wrong_input_is_said(spark: Any, broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match="knows no topic '%DLQ%nobody'"):
        dead_letters(spark, nameserver=broker.namesrv, groups=["nobody"])
    with pytest.raises(ConfigError, match="give numbers from 0 on"):
        dead_letters(spark, nameserver=broker.namesrv, samples=-1)
    with pytest.raises(ConfigError, match="either a name server"):
        dead_letters(spark)
