"""The clients without asyncio."""

import asyncio
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perseid.client import (
    ClientError,
    ConsumeMode,
    Message,
    MessageQueue,
    NotStarted,
    ProducerOptions,
    ReceivedMessage,
    SendFailed,
    UsageError,
)
from perseid.client.blocking import (
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    BlockingPullConsumer,
    BlockingPushConsumer,
    LoopThread,
    wait_for_signal,
)

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
        only = MessageQueue("u", BROKER, 0)
        with BlockingPullConsumer(server.address, "g", from_where="first") as consumer:
            assert consumer.queues("u") == [only]
            assert (consumer.min_offset(only), consumer.max_offset(only)) == (0, 42)
            read = [m.queue_offset for part in consumer.read(only, 5, 42) for m in part]
            assert read == list(range(5, 42))
            for part in consumer.read(only, 0, 42):
                assert part[0].queue_offset == 0
                break
            consumer.assign([only])
            consumer.seek(only, 40)
            assert [m.body for m in consumer.poll(10, 5000)] == [b"40", b"41"]
            assert consumer.position(only) == 42
            consumer.commit()
            assert consumer.committed(only) == 42
            assert len(consumer.pull(only, 0, 3).messages) == 3


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


# ---- consumers of a group ----


def filled(server: FakeServer, count: int) -> None:
    for number in range(count):
        server.store("t", 0, b"%03d" % number)


def test_a_push_consumer_calls_its_handler_in_threads(server: FakeServer) -> None:
    filled(server, 20)
    handled: queue.Queue[tuple[bytes, str]] = queue.Queue()

    def handle(message: ReceivedMessage) -> None:
        handled.put((message.body, threading.current_thread().name))

    with BlockingPushConsumer(server.address, "g", {"t": "*"}, handle, from_where="first") as consumer:
        found = [handled.get(timeout=20) for _ in range(20)]
        assert sorted(body for body, _ in found) == [b"%03d" % n for n in range(20)]
        assert all(name.startswith("handle g") for _, name in found)
        assert consumer.metrics.pulled == 20 and any(one.topic == "t" for one in consumer.queues)
        consumer.pause()
        consumer.resume()
        filled(server, 1)
    assert server.committed["g", "t", 0] >= 20


def test_a_loop_over_a_consumer_commits_what_it_is_through_with(server: FakeServer) -> None:
    filled(server, 10)
    options: dict[str, Any] = {"from_where": "first", "mode": ConsumeMode.ORDERED}
    with BlockingConsumer(server.address, "g", {"t": "*"}, **options) as consumer:
        for message in consumer:
            if message.body == b"002":
                break
    assert server.committed["g", "t", 0] == 2
    with BlockingConsumer(server.address, "g", {"t": "*"}, **options) as consumer:
        seen = []
        for message in consumer:
            seen.append(message.body)
            if message.body == b"004" and not message.reconsume_times:
                consumer.retry_later(message, after_ms=10)
            if message.body == b"009":
                consumer.done(message)
                break
        assert seen == [b"002", b"003", b"004", *(b"%03d" % n for n in range(4, 10))]
        assert consumer.metrics.failed == 1
    assert server.committed["g", "t", 0] == 10


def test_an_exception_that_leaves_the_loop_fails_its_message(server: FakeServer) -> None:
    filled(server, 3)
    with (
        pytest.raises(KeyError),
        BlockingConsumer(server.address, "g", {"t": "*"}, from_where="first") as consumer,
    ):
        for _ in consumer:
            raise KeyError
    assert [back.offset for back in server.sent_back] == [1000], "the place in the broker's log"


def test_threads_share_a_consumer_and_their_loops_end_with_it(server: FakeServer) -> None:
    filled(server, 40)
    seen: queue.Queue[bytes] = queue.Queue()
    consumer = BlockingConsumer(server.address, "g", {"t": "*"}, from_where="first").start()

    def loop() -> None:
        for message in consumer:
            seen.put(message.body)

    def fails() -> None:
        for message in consumer:
            seen.put(message.body)
            return

    threads = [threading.Thread(target=target) for target in (fails, loop, loop)]
    for thread in threads:
        thread.start()
    found = [seen.get(timeout=20) for _ in range(40)]
    threads[0].join()
    consumer.stop()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(set(found)) == 40
    with pytest.raises(NotStarted, match="with BlockingConsumer"):
        next(iter(consumer))


WAITING = """
import signal, sys, threading
from perseid.client.blocking import BlockingPushConsumer, wait_for_signal

told = threading.Event()

def handle(message):
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        told.wait(0.01)
    print("begun", flush=True)
    told.wait(30)
    print("handled", flush=True)

with BlockingPushConsumer(sys.argv[1], "g", {"t": "*"}, handle, from_where="first"):
    number = wait_for_signal()
    told.set()
print(number.name, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_handlers_finish(server: FakeServer, number: signal.Signals) -> None:
    filled(server, 1)
    command = [sys.executable, "-c", WAITING, server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            assert process.communicate(timeout=30)[0] == f"handled\n{number.name}\n"
        finally:
            process.kill()
    assert process.returncode == 0 and server.committed["g", "t", 0] == 1


def test_only_the_main_thread_waits_for_signals() -> None:
    said: queue.Queue[str] = queue.Queue()

    def wait() -> None:
        try:
            wait_for_signal()
        except UsageError as error:
            said.put(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert "has to run in the main thread" in said.get(timeout=20)
    thread.join()


def test_a_blocking_client_in_an_event_loop_is_told_once(
    server: FakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> None:
        with BlockingProducer(server.address) as producer:
            producer.send(Message("t", b"x"))
            producer.send(Message("t", b"x"))

    async def main() -> None:
        use()

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "event loop" in record.getMessage()]

    use()
    assert told() == []
    asyncio.run(main())
    assert told() == [
        "BlockingProducer blocks the event loop that runs here while it waits: use Producer, or call it by"
        " asyncio.to_thread()"
    ]
    monkeypatch.setitem(sys.modules, "ipykernel", sys)  # a notebook: its cells run in an event loop
    asyncio.run(main())
    assert len(told()) == 1


def test_a_client_that_would_wait_for_its_own_event_loop_is_refused(server: FakeServer) -> None:
    thread = LoopThread("own")

    async def work() -> None:
        raise AssertionError("it must not begin")

    async def within() -> None:
        thread.run(work())

    try:
        with pytest.raises(UsageError, match="own was called in its own event loop"):
            thread.run(within())
    finally:
        thread.stop()
