"""The clients without asyncio."""

import os
import pickle
import threading
from collections.abc import Iterator

import pytest

from perseid.client import ClientError, Message, MessageQueue, NotStarted, ProducerOptions, SendFailed
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer

from .fake import BROKER, FakeServer, in_a_thread


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with in_a_thread(FakeServer({"t": 2})) as fake:
        yield fake


def test_send_read_and_administer(server: FakeServer) -> None:
    with BlockingAdmin(server.address) as admin, BlockingProducer(server.address, "g") as producer:
        assert admin.create_topic("u", 1).queues[0].write_queues == 1
        for number in range(40):
            producer.send(Message("u", b"%d" % number))
        producer.send_batch([Message("u", b"40"), Message("u", b"41")])
        assert len(producer.queues("u")) == 1
        assert [row.max_offset for row in admin.topic_stats("u")] == [42]
        queue = MessageQueue("u", BROKER, 0)
        with BlockingPullConsumer(server.address, "g", from_where="first") as consumer:
            assert consumer.queues("u") == [queue]
            assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 42)
            read = [m.queue_offset for part in consumer.read(queue, 5, 42) for m in part]
            assert read == list(range(5, 42))
            for part in consumer.read(queue, 0, 42):
                assert part[0].queue_offset == 0
                break
            consumer.assign([queue])
            consumer.seek(queue, 40)
            assert [m.body for m in consumer.poll(10, 5000)] == [b"40", b"41"]
            assert consumer.position(queue) == 42
            consumer.commit()
            assert consumer.committed(queue) == 42
            assert len(consumer.pull(queue, 0, 3).messages) == 3


def test_before_start_it_is_only_its_options_and_travels(server: FakeServer) -> None:
    copy = pickle.loads(pickle.dumps(BlockingProducer(server.address, "g", options=ProducerOptions(retries=0))))
    with pytest.raises(NotStarted, match="with BlockingProducer"):
        copy.send(Message("t", b"x"))
    with copy:
        copy.send(Message("t", b"x"))
        again = pickle.loads(pickle.dumps(copy))
        with pytest.raises(NotStarted):
            again.send(Message("t", b"x"))
    assert server.bodies("t") == [b"x"]


def test_errors_come_through_and_threads_end(server: FakeServer) -> None:
    before = threading.active_count()
    options = ProducerOptions(timeout_ms=200)
    with BlockingProducer("127.0.0.1:1", options=options) as producer, pytest.raises((ClientError, SendFailed)):
        producer.send(Message("t", b"x"))
    with pytest.raises(ClientError, match="'first' or 'last'"):
        BlockingPullConsumer(server.address, from_where="nowhere").start()
    assert threading.active_count() == before


def test_several_threads_share_a_producer(server: FakeServer) -> None:
    with BlockingProducer(server.address) as producer:
        threads = [
            threading.Thread(target=lambda: [producer.send(Message("t", b"x")) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.bodies("t")) == 80


def test_a_forked_child_is_told(server: FakeServer) -> None:
    with BlockingProducer(server.address) as producer:
        producer.send(Message("t", b"x"))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message("t", b"y"))
            except NotStarted as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        assert b"before the process forked" in os.read(reader, 1000)
        os.close(reader)


def test_start_and_stop_may_be_called_twice(server: FakeServer) -> None:
    producer = BlockingProducer(server.address).start().start()
    producer.send(Message("t", b"x"))
    producer.stop()
    producer.stop()
    producer.start()
    producer.send(Message("t", b"y"))
    producer.stop()
    assert sorted(server.bodies("t")) == [b"x", b"y"]
