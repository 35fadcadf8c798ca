"""Topics for a cluster's tests, and a worker that is stopped in the middle of what it sends."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable

from tests.spark.cluster.standalone import WORKERS, Standalone, within

from perseid.client import Message, PullOptions
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.testing.embedded import EmbeddedBroker

AT_ONCE = 500
BATCH_ROWS, BATCHES = 4000, 4
"""Of a stream: two tasks have half of each batch."""
SENDS_S, POLL_S, SETTLED_S = 60.0, 0.005, 1.5
SOME = 0.1
"""Of a task's rows."""


def fill_much(broker: EmbeddedBroker, topic: str, count: int, queues: int) -> None:
    """So many messages `body 0`, `body 1`, …, in large batches, which go round the queues."""
    broker.create_topic(topic, queues)
    with BlockingProducer(broker.namesrv) as producer:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            producer.send_batch([Message(topic, b"body %d" % i, keys=[f"k{i}"]) for i in numbers])


def held(broker: EmbeddedBroker, topic: str) -> int:
    """How many messages a topic holds, repeats too."""
    with BlockingPullConsumer(broker.namesrv, "held") as consumer:
        return sum(consumer.max_offset(queue) for queue in consumer.queues(topic))


def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """What a reader that drops repeats sees of it."""
    with BlockingPullConsumer(broker.namesrv, "bodies", options=PullOptions(dedupe=True)) as consumer:
        return sorted(
            message.body
            for queue in consumer.queues(topic)
            for found in consumer.read(queue, 0, consumer.max_offset(queue))
            for message in found
        )


def stop_one_that_sends(cluster: Standalone, broker: EmbeddedBroker, target: str) -> int:
    """Stop a worker when its task has sent a part of its half of a batch, and the other one's task is done. The
    worker's number."""
    tries = []
    with BlockingPullConsumer(broker.namesrv, "watching") as consumer:
        queues = consumer.queues(target)

        def count() -> int:
            return sum(consumer.max_offset(queue) for queue in queues)

        for number in itertools.islice(itertools.cycle(WORKERS), BATCHES - 1):
            of_batch = (count() // BATCH_ROWS + bool(tries)) * BATCH_ROWS
            until(lambda least=of_batch + SOME * BATCH_ROWS: count() > least)
            cluster.signal(number, signal.SIGSTOP)
            tries.append(_settled(count))
            if tries[-1] % BATCH_ROWS > BATCH_ROWS // 2:
                return number
            cluster.signal(number, signal.SIGCONT)
    raise AssertionError(f"no worker was stopped in the middle of what it sends: {target} held {tries} messages then")


def until(true: Callable[[], bool]) -> None:
    """Wait until it is true."""
    for _ in within(SENDS_S, POLL_S):
        if true():
            return
    raise AssertionError(f"nothing more was sent for {SENDS_S:.0f} s")


def _settled(count: Callable[[], int]) -> int:
    """A count that has not changed for a while."""
    last, same_s = count(), 0.0
    for _ in within(SENDS_S, POLL_S):
        now = count()
        last, same_s = now, same_s + POLL_S if now == last else 0.0
        if same_s >= SETTLED_S:
            return last
    raise AssertionError(f"it went on for {SENDS_S:.0f} s")
