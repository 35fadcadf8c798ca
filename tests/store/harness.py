"""A store on the simulated disk, with its effects carried out one at a time, when the test says so."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from tests.durable import make_durable

from perseid.base.machine import Effect, Feed, Flush, Note, SaveState
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.store.results import LoadReport, StoreEvent
from perseid.store.store import MessageStore
from perseid.wire import properties as props
from perseid.wire.host import host_from
from perseid.wire.record import Message, Record, decode_all

HOST = host_from("10.0.0.1:10911")
START = 1_700_000_000_000

SMALL: dict[str, Any] = {
    "commit_log_file_bytes": 2048,
    "consume_queue_file_bytes": 100,
    "max_hash_slot_num": 7,
    "max_index_num": 20,
    "flush_consume_queue_thorough_interval": 2_000,
    "flush_commit_log_thorough_interval": 1_000,
    "clean_resource_first_ms": 1_000,
    "clean_resource_interval": 1_000,
    "delete_when": "",
}


def config(**more: Any) -> StoreConfig:
    return StoreConfig(**(SMALL | more))


def message(
    topic: str = "T", body: bytes = b"hello", queue_id: int = 0, sys_flag: int = 0, **properties: str
) -> Message:
    return Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=START,
        born_host=HOST,
        store_host=HOST,
        properties=props.encode(properties),
    )


class Node:
    """One store folder, whose store is loaded, stopped, killed or cut off power."""

    def __init__(self, seed: int = 0, disk: SimDisk | None = None, **settings: Any) -> None:
        self.disk = disk or SimDisk(Random(seed))
        self.config = config(**settings)
        self.now = START
        self.effects: deque[Effect] = deque()
        self.notes: list[str] = []
        self.events: list[object] = []
        """What other events than the store's own came back."""
        self.store = MessageStore(self.disk, self.config, HOST)

    def load(self) -> LoadReport:
        self.effects.clear()
        self.store = MessageStore(self.disk, self.config, HOST)
        report = self.store.load(self.now)
        self.store.validate()
        return report

    # ---- effects ----

    def step(self) -> bool:
        """Carry out one effect; False when there is none."""
        if not self.effects:
            return False
        effect = self.effects.popleft()
        if isinstance(effect, Flush | SaveState):
            make_durable(self.disk, effect)
            self.effects.extendleft(reversed(effect.then))
        elif isinstance(effect, Feed):
            if isinstance(effect.event, StoreEvent):
                self.effects.extend(self.store.handle(effect.event))
            else:
                self.events.append(effect.event)
        else:
            assert isinstance(effect, Note)
            self.notes.append(effect.text)
        return True

    def settle(self) -> None:
        while self.step():
            pass

    def flush(self, event: object = None) -> None:
        """Flush, with `event` in its `then`; not carried out yet."""
        self.effects.append(self.store.flusher.flush([] if event is None else [Feed(event)]))

    def pass_time(self, ms: int) -> None:
        """Tick at each deadline of the time that passes."""
        end, at_once = self.now + ms, 0
        while (due := self.store.next_deadline()) is not None and due <= end:
            at_once = at_once + 1 if due <= self.now else 0
            assert at_once < 10, "ticks that change nothing"
            self.now = max(self.now, due)
            self.effects.extend(self.store.tick(self.now))
            self.settle()
        self.now = end

    # ---- ends ----

    def stop(self) -> None:
        self.store.close(self.now)

    def kill(self) -> None:
        """The process dies; the page cache stays."""
        self.effects.clear()
        self.disk.kill()

    def cut_power(self) -> None:
        self.effects.clear()
        self.disk.cut_power()

    # ---- looking ----

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """All records of a queue, read as a consumer does."""
        found: list[Record] = []
        offset = self.store.reads.min_offset(topic, queue_id)
        while offset < self.store.reads.max_offset(topic, queue_id):
            result = self.store.reads.read(topic, queue_id, offset, 32, 1 << 20)
            found += decode_all(b"".join(result.buffers))
            assert result.next_offset > offset
            offset = result.next_offset
        assert [r.queue_offset for r in found] == list(
            range(self.store.reads.min_offset(topic, queue_id), self.store.reads.max_offset(topic, queue_id))
        )
        return found

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]
