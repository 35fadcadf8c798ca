"""`perseid topic` as a careless user says it: nothing that is there is hidden by a command that was not told to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from perseid.cli.main import app
from perseid.client import Message, MessageQueue
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def call(broker: EmbeddedBroker, *args: str) -> Result:
    return CliRunner().invoke(app, ["topic", *args, "-n", broker.namesrv])


def shown(broker: EmbeddedBroker, topic: str) -> list[int]:
    with BlockingAdmin(broker.namesrv) as admin:
        return sorted(queue.queue_id for queue in admin.topic_route(topic).read_queues())


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic of eight queues with a message in each but the last, and three in queue 5."""
    name = "".join(c for c in request.node.name if c.isalnum())[-60:]
    made = call(broker, "create", name, "--queues", "8")
    assert made.exit_code == 0 and "(8 queues)" in made.stdout
    with BlockingProducer(broker.namesrv) as producer:
        (broker_name,) = {queue.broker_name for queue in producer.queues(name)}
        for queue_id in (0, 1, 2, 3, 4, 5, 5, 5, 6):
            producer.send(Message(name, b"x"), queue=MessageQueue(name, broker_name, queue_id))
    return name


def test_to_create_what_is_there_changes_nothing_and_says_how_to(broker: EmbeddedBroker, topic: str) -> None:
    again = call(broker, "create", topic, "--queues", "2")
    assert again.exit_code == 1 and not again.stdout
    assert "is there already" in again.stderr and "(8 queues)" in again.stderr
    assert f"perseid topic update {topic} --queues N" in again.stderr
    assert shown(broker, topic) == list(range(8))


def test_fewer_queues_are_made_only_by_who_says_so(broker: EmbeddedBroker, topic: str) -> None:
    refused = call(broker, "update", topic, "--queues", "4")
    assert refused.exit_code == 1 and "--yes-hide" in refused.stderr
    assert "with 4 queues, 5 messages" in refused.stderr and ": 4, 5, 6" in refused.stderr
    assert shown(broker, topic) == list(range(8))
    meant = call(broker, "update", topic, "--queues", "4", "--yes-hide")
    assert meant.exit_code == 0 and "(4 queues)" in meant.stdout
    assert shown(broker, topic) == list(range(4))


def test_more_queues_hide_nothing_and_all_else_stays(broker: EmbeddedBroker, topic: str) -> None:
    with BlockingAdmin(broker.namesrv) as admin:
        admin.create_topic(topic, 8, perm=4)
    more = call(broker, "update", topic, "--queues", "9")
    assert more.exit_code == 0 and "(9 queues)" in more.stdout
    with BlockingAdmin(broker.namesrv) as admin:
        (row,) = admin.topic_route(topic).queues
    assert (row.read_queues, row.write_queues, row.perm) == (9, 9, 4)


def test_fewer_queues_that_hide_no_message_are_named_too(broker: EmbeddedBroker, topic: str) -> None:
    refused = call(broker, "update", topic, "--queues", "7")
    assert refused.exit_code == 1 and "with 7 queues, 0 messages" in refused.stderr and refused.stderr.count(": 7") == 1


def test_what_is_not_there_can_not_be_updated(broker: EmbeddedBroker) -> None:
    refused = call(broker, "update", "nowhere", "--queues", "4")
    assert refused.exit_code == 1 and "perseid topic list" in refused.stderr
