"""A topic in memory, with what befalls topics; and Spark's part: a loop, which writes files as tasks write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from perseid.spark import plan as planning
from perseid.spark.jobs.archive.files import Target, TaskRows, Written, seal, told_by, write_task
from perseid.spark.jobs.archive.run import Looked
from perseid.spark.plan import DataLost
from perseid.spark.reading import RangeReport

from .hooks import Hooks

TOPIC = "t"
MESSAGE_ROWS = 4
"""Rows of one record batch."""
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """One that was acknowledged. `uid`: as no other."""

    uid: int
    queue: str
    offset: int
    stored_ms: int


@dataclass
class Queue:
    """A queue as its brokers agree on it: `log[offset]`, of which [low, high) are there, but for `holes`."""

    name: str
    log: list[Message] = field(default_factory=list)
    low: int = 0
    holes: set[int] = field(default_factory=set)

    @property
    def high(self) -> int:
        return len(self.log)

    @property
    def broker(self) -> str:
        return planning.queue_of(self.name).broker_name

    def has(self, offset: int) -> bool:
        return self.low <= offset < self.high and offset not in self.holes


class World:
    """The topic, its brokers, and every message there ever was."""

    def __init__(self, *, compacted: bool = False) -> None:
        self.compacted = compacted
        """Holes are what is wanted; else they are losses."""
        self.messages: dict[int, Message] = {}
        self.queues: dict[str, Queue] = {}
        self.away: set[str] = set()
        self.clock_ms = FIRST_MS
        self.changes = 0
        """How often what had been there was exchanged for something else."""

    def add_queue(self, broker: str) -> None:
        number = sum(1 for queue in self.queues.values() if queue.broker == broker)
        name = f"{TOPIC}/{broker}/{number}"
        self.queues[name] = Queue(name)

    def publish(self, name: str, count: int) -> None:
        queue = self.queues[name]
        for _ in range(count):
            self.clock_ms += 7
            message = Message(len(self.messages), name, queue.high, self.clock_ms)
            self.messages[message.uid] = message
            queue.log.append(message)

    def retain(self, name: str, low: int) -> None:
        """What lies before `low` is deleted for its age."""
        queue = self.queues[name]
        queue.low = max(queue.low, min(low, queue.high))

    def compact(self, name: str, offsets: Sequence[int]) -> None:
        """These made room for later messages with the same keys; or are lost, where the topic is not compacted."""
        queue = self.queues[name]
        queue.holes |= {offset for offset in offsets if offset < queue.high - 1}

    def lose_tail(self, name: str, count: int) -> None:
        """A master that had not confirmed its last messages is followed by one that lacks them."""
        queue = self.queues[name]
        end = max(queue.low, queue.high - count)
        self.changes += end < queue.high
        del queue.log[end:]
        queue.holes = {offset for offset in queue.holes if offset < end}

    def recreate(self) -> None:
        """The topic is deleted, and made again."""
        self.changes += 1
        self.queues = {name: Queue(name) for name in self.queues}

    def leave(self, broker: str) -> None:
        """A broker does not answer any more."""
        self.away.add(broker)

    def come_back(self) -> None:
        """All brokers answer."""
        self.away.clear()

    def current(self) -> set[int]:
        """What brokers hold, or had only deleted for its age or for later keys."""
        return {message.uid for queue in self.queues.values() for message in queue.log}

    def reachable(self) -> list[Queue]:
        """The queues of brokers that answer."""
        return [queue for queue in self.queues.values() if queue.broker not in self.away]


class Seen:
    """What a run saw of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looked: Looked | None = None
        self.logs: dict[str, list[Message]] = {}
        """What the queues held when the run looked,"""
        self.holes: dict[str, set[int]] = {}
        """and what they lacked."""
        self.changes = 0
        self.begun = False

    def note(self, looked: Looked, *, begun: bool) -> None:
        """It looks now, and is told this."""
        queues = self._world.reachable()
        self.looked, self.begun, self.changes = looked, begun, self._world.changes
        self.logs = {queue.name: list(queue.log) for queue in queues}
        self.holes = {queue.name: set(queue.holes) for queue in queues}


class ModelTopic(Seen):
    """The port of a run, on a world. `elsewhere`: executors see another folder under the table's path, this one."""

    def __init__(
        self, world: World, hooks: Hooks, *, strict: bool, latest: bool = False, elsewhere: str | None = None
    ) -> None:
        super().__init__(world)
        self._hooks = hooks
        self._strict, self._latest, self._elsewhere = strict, latest, elsewhere

    def look(self, *, begun: bool) -> Looked:
        """As `Bounds` tells it."""
        self._hooks.point("before look")
        queues = self._world.reachable()
        if not queues and (self._strict or not begun):
            raise DataLost(f"topic {TOPIC} is gone: it was deleted, or all of its brokers are away")
        earliest = {queue.name: queue.low for queue in queues}
        latest = {queue.name: queue.high for queue in queues}
        looked = Looked(earliest, latest, {} if begun else dict(latest if self._latest else earliest))
        self.note(looked, begun=begun)
        self._hooks.point("after look")
        return looked

    def stored_ms(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Of what can be asked for."""
        self._hooks.point("before stored_ms")
        there = {queue.name: queue for queue in self._world.reachable()}
        return {
            name: there[name].log[end - 1].stored_ms
            for name, end in ends.items() if name in there and end and there[name].has(end - 1)
        }  # fmt: skip

    def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
        """Of what can be asked for."""
        self._hooks.point("before stored_ms")
        queues = [queue for queue in self._world.reachable() if queue.name == name]
        kept = [message for queue in queues for message in queue.log[offset:] if queue.has(message.offset)]
        return (kept[0].offset, kept[0].stored_ms) if kept else None

    def write(self, parts: Sequence[planning.Range], target: Target) -> Written:
        """As Spark's tasks do it, one after the other."""
        self._hooks.point("before write")
        where = target if self._elsewhere is None else Target(self._elsewhere, target.partition_by, target.shape)

        def rows(number: int) -> TaskRows:
            return TaskRows(lambda report: self._rows(parts[number], target, report))

        written = run_tasks(len(parts), rows, where, target.folder)
        self._hooks.point("after write")
        return written

    def _rows(self, part: planning.Range, target: Target, report: RangeReport) -> Iterator[Any]:
        name = planning.name_of(part.queue)
        queue = self._world.queues.get(name)
        if queue is None or queue.broker in self._world.away:
            raise DataLost(f"{name}: no broker has it")
        start, end = max(part.start, queue.low), max(part.start, min(part.end, queue.high))
        if self._strict and (start > part.start or end < part.end):
            raise DataLost(f"{name}: offsets {part.start} to {part.end - 1} were to be read, the broker has others")
        report.lacks(part.start, min(start, part.end))
        found = []
        for offset in range(start, end):
            if queue.has(offset):
                found.append(queue.log[offset])
            elif self._world.compacted:
                continue
            elif self._strict:
                raise DataLost(f"{name}: another offset came where {offset} was expected")
            else:
                report.lacks(offset, offset + 1)
        report.lacks(max(end, start), part.end)
        for first in range(0, len(found), MESSAGE_ROWS):
            yield record_batch(found[first : first + MESSAGE_ROWS], target)


def run_tasks(count: int, rows: Callable[[int], TaskRows], target: Target, folder: str | None = None) -> Written:
    """What the tasks wrote, as `files._run` gives it, without Spark. `folder`: where the driver looks for it."""
    if count == 0:
        return Written((), ())
    told = [
        tuple(line.values())
        for number in range(count)
        for batch in write_task(number, f"{number:05d}-0", rows(number), target)
        for line in batch.to_pylist()
    ]
    written = told_by(told, count)
    seal(Path(folder or target.folder), written.files)
    return written


def body_of(uid: int) -> bytes:
    """What a message says: who it is."""
    return b"%d" % uid


def record_batch(messages: Sequence[Message], target: Target) -> Any:
    """Rows that say where they were, and who they are."""
    schema, count = target.shape.arrow(), len(messages)
    queue = planning.queue_of(messages[0].queue)
    values = {
        "topic": [queue.topic] * count,
        "brokerName": [queue.broker_name] * count,
        "queueId": [queue.queue_id] * count,
        "queueOffset": [message.offset for message in messages],
        "storeTimestamp": [message.stored_ms * 1000 for message in messages],
        "value": [body_of(message.uid) for message in messages],
        "generation": [target.shape.generation] * count,
    }
    arrays = [
        pa.array(values[one.name], one.type) if one.name in values else pa.nulls(count, one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
