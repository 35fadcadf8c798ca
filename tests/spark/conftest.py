"""One Spark session and one broker for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.mapped import Mapped

import perseid.spark
from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.testing.embedded import EmbeddedBroker

MAPPED = Mapped(Path(__file__).parents[2] / ".cache")
MANY = 20
"""Tests that pay for an archive of Spark's classes, which takes as long to make as four sessions to start: of those
that are slow, for each of these may start one. All others share a session."""


def _starts_spark(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("spark") is not None


def _needs_archive(item: pytest.Item) -> bool:
    return _starts_spark(item) and item.get_closest_marker("slow") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Ahead of the tests, since each has a limit."""
    if not session.config.option.collectonly and sum(map(_needs_archive, session.items)) >= MANY:
        MAPPED.make()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ahead of all fixtures that start a JVM."""
    if _starts_spark(item):
        MAPPED.use()


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
