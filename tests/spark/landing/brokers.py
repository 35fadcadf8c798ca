"""The world of a history on real brokers: what befalls the model's queues befalls theirs first, on sockets and disks.

Two brokers under one name server. What age deletes are the oldest files of a log, and what a broker loses are the last
bytes of its log: so the other queues of that broker lose some too, and what is there afterwards is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from perseid.broker.config import BrokerConfig
from perseid.client import Message, MessageQueue
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.spark import plan as planning
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker

from .landing import Failure
from .topic import TOPIC, Queue, World, body_of

SEGMENT_BYTES = 2048
"""A log's files hold a few messages each, so that retention can delete some."""
STORE = replace(
    SMALL_STORE, commit_log_file_bytes=SEGMENT_BYTES, max_message_size=SEGMENT_BYTES // 2,
    compaction_mapped_file_size=46 * 10 * 5, compaction_cq_mapped_file_size=46 * 10, compaction_schedule_internal=300,
    truncate_corrupt_log=True,
)  # fmt: skip
FILLER, FILLERS = "filler", 4
"""So many messages of another topic, of nearly half a file each, end a file and begin the next one."""


class Member(EmbeddedBroker):
    """A broker that registers with another one's name server."""

    def __init__(self, data: Path, name: str, names: EmbeddedBroker) -> None:
        super().__init__(data, broker=BrokerConfig(broker_name=name), store=STORE)
        self._names = names
        self.up = False

    @property
    def namesrv(self) -> str:
        return self._names.namesrv

    def turn(self, up: bool) -> None:
        """Start or stop it, unless it is so."""
        if up != self.up:
            if up:
                self.start()
            else:
                self.stop()
            self.up = up

    def segments(self) -> list[Path]:
        return sorted((self.data / "store" / "commitlog").glob("0*"))


class BrokerWorld(World):
    """The model, with real brokers behind it that hold what it says."""

    def __init__(self, folder: Path, *, compacted: bool) -> None:
        super().__init__(compacted=compacted)
        names = BrokerConfig(broker_name="names", broker_cluster_name="names")
        self._names = EmbeddedBroker(folder / "names", broker=names).start()
        self._folder = folder
        self._members: dict[str, Member] = {}
        self._places: dict[int, int] = {}
        """Where in its broker's log each message begins."""

    @property
    def namesrv(self) -> str:
        return self._names.namesrv

    def close(self) -> None:
        """Stop all brokers."""
        for member in self._members.values():
            member.close()
        self._names.close()

    def settle(self) -> None:
        """Those that are away are stopped, and all others run."""
        for name, member in self._members.items():
            member.turn(name not in self.away)

    # ---- what befalls the topic ----

    def add_queue(self, broker: str) -> None:
        if broker not in self._members:
            self._members[broker] = Member(self._folder / broker, broker, self._names)
        super().add_queue(broker)
        self._create(broker)

    def _create(self, broker: str) -> None:
        self._members[broker].turn(True)
        attributes = {"cleanup.policy": "COMPACTION"} if self.compacted else {}
        with BlockingAdmin(self.namesrv) as admin:
            admin.create_topic(FILLER, 1, brokers=[broker])
            admin.create_topic(TOPIC, len(self._of(broker)), brokers=[broker], attributes=attributes)

    def _of(self, broker: str) -> list[Queue]:
        return [queue for queue in self.queues.values() if queue.broker == broker]

    def publish(self, name: str, count: int) -> None:
        first = len(self.messages)
        self._send(name, range(first, first + count))
        super().publish(name, count)

    def _send(self, name: str, keys: Sequence[int]) -> None:
        """Send what is about to be published; messages with the same key are one to a topic that is compacted."""
        queue, uid = self.queues[name], len(self.messages)
        self._members[queue.broker].turn(True)
        with BlockingProducer(self.namesrv) as producer:
            for number, key in enumerate(keys):
                sent = producer.send(
                    Message(TOPIC, body_of(uid + number), keys=[f"k{key}"]), queue=planning.queue_of(name)
                )
                if sent.queue_offset != queue.high + number:
                    raise Failure(f"{name}: offset {sent.queue_offset} was given for {queue.high + number}")
                self._places[uid + number] = int(sent.offset_msg_id[-16:], 16)

    def compact(self, name: str, offsets: Sequence[int]) -> None:
        """Later messages with the keys of these are sent; the broker compacts when it likes."""
        gone = [offset for offset in offsets if offset < self.queues[name].high - 1]
        self._send(name, [self.queues[name].log[offset].uid for offset in gone])
        super().publish(name, len(gone))
        super().compact(name, gone)

    def retain(self, name: str, low: int) -> None:
        queue = self.queues[name]
        member = self._members[queue.broker]
        member.turn(True)
        if low >= queue.high:
            with BlockingProducer(self.namesrv) as producer:
                for _ in range(FILLERS):
                    filler = MessageQueue(FILLER, queue.broker, 0)
                    producer.send(Message(FILLER, bytes(SEGMENT_BYTES // 2 - 300)), queue=filler)
        member.turn(False)
        segments = member.segments()
        for segment, following in pairwise(segments):
            if low >= queue.high or int(following.name) <= self._places[queue.log[low].uid]:
                segment.unlink()
        self._read_back(queue.broker)

    def lose_tail(self, name: str, count: int) -> None:
        queue = self.queues[name]
        end, member = max(queue.low, queue.high - count), self._members[queue.broker]
        if end == queue.high:
            return
        place = self._places[queue.log[end].uid]
        member.turn(False)
        for segment in member.segments():
            start = int(segment.name)
            if start > place:
                segment.unlink()
            elif place < start + SEGMENT_BYTES:
                whole = segment.read_bytes()
                segment.write_bytes(whole[: place - start] + bytes(len(whole) - (place - start)))
        self._read_back(queue.broker)
        if queue.high > end:
            raise Failure(f"{name}: its broker lost its tail, and ends at {queue.high}, not at {end}")

    def _read_back(self, broker: str) -> None:
        """What a broker has, now that it is started again."""
        self._members[broker].turn(True)
        with BlockingPullConsumer(self.namesrv, "look") as consumer:
            for queue in self._of(broker):
                place = planning.queue_of(queue.name)
                low, high = consumer.min_offset(place), consumer.max_offset(place)
                if high > queue.high or low > high:
                    raise Failure(f"{queue.name}: {low} to {high} are there, it had {queue.low} to {queue.high}")
                self.changes += high < queue.high
                del queue.log[high:]
                queue.low = low

    def recreate(self) -> None:
        for member in self._members.values():
            member.turn(True)
        with BlockingAdmin(self.namesrv) as admin:
            admin.delete_topic(TOPIC)
        for broker in self._members:
            self._create(broker)
        super().recreate()

    def differs(self, looked: Any) -> str:
        """Where the brokers say something else than the model; empty: nowhere."""
        there = self.reachable()
        model = {one.name: one.low for one in there}, {one.name: one.high for one in there}
        real = dict(looked.earliest), dict(looked.latest)
        return "" if model == real else f"the brokers have {real}, they should have {model}"
