"""The checks of a store notice what is broken: what the simulator finds rests on them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from perseid.sim.disk import SimDisk

from .harness import Node, message

LIGHT = "%LMQ%a"
COUNT = 3


class Whole(Node):
    """A store with a queue of each kind, of a few messages each."""

    def __init__(self) -> None:
        super().__init__(disk=SimDisk(Random(0)), enable_lmq=True, enable_multi_dispatch=True)
        self.load()
        self.store.queues.batch_topics = {"B"}
        for number in range(COUNT):
            self.store.appends.append(message("T", b"%d" % number, INNER_MULTI_DISPATCH=LIGHT), self.now)
            self.store.appends.append(message("B", b"%d" % number), self.now)

    def queue(self, topic: str, end: int = COUNT) -> Any:
        queue = self.store.queues.get(topic, 0)
        assert queue is not None and queue.end == end
        return queue

    def overwrite(self, topic: str, number: int, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a unit."""
        queue = self.queue(topic)
        at = number * queue.unit_bytes
        start = queue.segments.start_of(at)
        unit = bytes(queue.segments.view(at, queue.unit_bytes))
        queue.segments.file(start).write(at - start, change(unit))


@pytest.mark.parametrize("topic", ["T", LIGHT, "B"])
@pytest.mark.parametrize("number", range(1, COUNT))
def test_a_unit_of_another_record_is_noticed(topic: str, number: int) -> None:
    node = Whole()
    node.overwrite(topic, number, lambda unit: (int.from_bytes(unit[:8], "big") + 1).to_bytes(8, "big") + unit[8:])
    with pytest.raises(AssertionError, match=f"{topic}.*unit"):
        node.store.validate()


@pytest.mark.parametrize("topic", ["T", LIGHT, "B"])
def test_a_unit_of_another_size_is_noticed(topic: str) -> None:
    node = Whole()
    node.overwrite(topic, 1, lambda unit: unit[:8] + (9).to_bytes(4, "big") + unit[12:])
    with pytest.raises(AssertionError, match=f"{topic}.*unit"):
        node.store.validate()


@pytest.mark.parametrize("topic", ["T", LIGHT, "B"])
@pytest.mark.parametrize("left", range(COUNT))
def test_units_that_are_missing_are_noticed(topic: str, left: int) -> None:
    node = Whole()
    node.queue(topic).cut(left)
    with pytest.raises(AssertionError, match=f"{topic}.*missing"):
        node.store.validate()


@pytest.mark.parametrize("topic", ["T", LIGHT, "B"])
def test_a_queue_that_is_missing_is_noticed(topic: str) -> None:
    node = Whole()
    del node.store.queues.table[topic, 0]
    with pytest.raises(AssertionError, match=f"{topic}.*missing with its queue"):
        node.store.validate()


@pytest.mark.parametrize("broken", ["end", "issued", "flushed"])
def test_a_log_whose_numbers_contradict_one_another_is_noticed(broken: str) -> None:
    node = Whole()
    setattr(node.store.log, broken, -1)
    with pytest.raises(AssertionError, match="log: start"):
        node.store.validate()


def test_what_was_whole_is_not_read_again() -> None:
    """A call costs what is new."""
    node = Whole()
    node.store.validate()
    node.overwrite("T", 1, lambda unit: bytes(len(unit)))
    node.store.validate()
    node.store.appends.append(message("T", b"new"), node.now)
    node.queue("T", COUNT + 1).cut(COUNT)
    with pytest.raises(AssertionError, match=r"T.*missing"):
        node.store.validate()


def test_what_is_whole_is_no_finding() -> None:
    node = Whole()
    node.store.validate()
    node.stop()
    node.load()
    node.store.queues.batch_topics = {"B"}
    node.store.delete_topic("T")
    node.store.appends.append(message("T", b"again"), node.now)
    node.store.validate()
