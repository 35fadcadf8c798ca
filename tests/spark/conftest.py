"""One Spark session and one broker for all tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

import perseid.spark
from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = perseid.spark.session("tests", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def fill(broker: EmbeddedBroker, topic: str, count: int, queues: int = 4, start: int = 0) -> None:
    """`count` messages in a topic, spread over its queues, in batches."""
    broker.create_topic(topic, queues)
    with BlockingProducer(broker.namesrv) as producer:
        for first in range(start, start + count, 50):
            producer.send_batch(
                [
                    Message(topic, f"body {i}".encode(), tag=f"t{i % 3}", keys=[f"k{i}"], properties={"i": str(i)})
                    for i in range(first, min(first + 50, start + count))
                ]
            )
