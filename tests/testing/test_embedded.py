"""A broker in this process: its folder, its lives, and what a failed start leaves behind."""

import socket
import threading
from pathlib import Path

import pytest

from perseid.base.errors import PerseidError
from perseid.broker.config import BrokerConfig
from perseid.client import Message, MessageQueue, NoRoute
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.testing.embedded import EmbeddedBroker

QUEUE = MessageQueue("T", "embedded", 0)


def send(broker: EmbeddedBroker, *bodies: bytes) -> None:
    with BlockingProducer(broker.namesrv) as producer:
        for body in bodies:
            producer.send(Message("T", body), queue=QUEUE)


def read(broker: EmbeddedBroker) -> list[bytes]:
    with BlockingPullConsumer(broker.namesrv, "g") as consumer:
        return [m.body for part in consumer.read(QUEUE, 0, consumer.max_offset(QUEUE)) for m in part]


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("perseid")]


def test_messages_outlive_two_restarts_under_the_same_address(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path).start()
    broker.create_topic("T", 1)
    addresses = broker.namesrv, broker.address
    send(broker, b"0")
    for life in (1, 2):
        broker.stop()
        broker.start()
        assert (broker.namesrv, broker.address) == addresses
        send(broker, b"%d" % life)
    assert read(broker) == [b"0", b"1", b"2"]
    broker.close()
    assert (tmp_path / "store" / "commitlog").is_dir()
    assert not (tmp_path / "store" / "abort").exists()


def test_another_one_goes_on_with_its_folder(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("T", 1)
        send(broker, b"kept")
    with EmbeddedBroker(tmp_path) as broker:
        assert read(broker) == [b"kept"]


def test_a_temporary_folder_is_removed() -> None:
    before = own_threads()
    with EmbeddedBroker() as broker:
        assert broker.data.is_dir()
    assert not broker.data.exists()
    broker.stop()  # a second end does nothing
    broker.close()
    assert own_threads() == before


def test_its_topics_and_its_configuration(tmp_path: Path) -> None:
    config = BrokerConfig(broker_name="mine", auto_create_topic_enable=False)
    with EmbeddedBroker(tmp_path, broker=config) as broker:
        broker.create_topic("T", 3)
        with BlockingProducer(broker.namesrv) as producer:
            assert producer.queues("T") == [MessageQueue("T", "mine", number) for number in range(3)]
            with pytest.raises(NoRoute):
                producer.send(Message("never-created", b"x"))


def test_two_at_a_time_keep_apart() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        for broker in (one, other):
            broker.create_topic("T", 1)
        send(one, b"one")
        send(other, b"other")
        assert (read(one), read(other)) == ([b"one"], [b"other"])


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = own_threads()
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(b"resized")
    broker = EmbeddedBroker(tmp_path)
    for _ in range(2):
        with pytest.raises(PerseidError, match="at byte 7: the file has 7 bytes"):
            broker.start()
    assert own_threads() == before
    for address in (broker.namesrv, broker.address):
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 5).close()
    (tmp_path / "store" / "commitlog" / f"{0:020d}").unlink()
    with broker:
        broker.create_topic("T", 1)
        send(broker, b"now")


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as first:
        first.create_topic("T", 1)
        with pytest.raises(PerseidError, match="this process uses the folder already"), EmbeddedBroker(tmp_path):
            raise AssertionError("both run")
        send(first, b"alive")
        with pytest.raises(PerseidError, match="running already"):
            first.start()
        assert read(first) == [b"alive"]
