"""What a static topic's operator has asked for, step by step, and what of it brokers have to know.

A step is a whole mapping. A logical queue is moved in two of them: first its next item has no logical offset yet, then
it has one, in the same epoch; each move begins another epoch. A broker's mapping is that of some step at any time. It
is that of a later one than before, or the same; but what is younger than a copy of the tables goes with its master.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perseid.sim.driver import NodeDriver
from perseid.sim.facts import Sent
from perseid.sim.features.places import Places
from perseid.sim.features.stage import UNKNOWN, Stage
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode
from perseid.wire.headers.base import Header
from perseid.wire.headers.topics import CreateTopicRequest
from perseid.wire.mapping import LogicQueueMappingItem as Item
from perseid.wire.mapping import TopicQueueMappingDetail as Detail
from perseid.wire.mapping import find
from perseid.wire.names import AUTO_CREATE_TOPIC

TOPIC, QUEUES = "mapped", 2
"""Its logical queues."""
PHYSICAL = 12
"""The queues that they may be made of."""
BLOCK = 1_000
"""Items begin at multiples of it: more than is ever in one."""
NEVER = -1
OLDER = "an older mapping never replaces a newer one"


class Plan:
    """All steps, the last one of which is what has to be in the end."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        first = {queue_id: [self._item(0, QUEUES - 1 - queue_id, 0, 0)] for queue_id in range(QUEUES)}
        self.steps = [Detail(TOPIC, total_queues=QUEUES, bname=stage.broker_name, epoch=1_000, hosted_queues=first)]
        self.logical = {items[0].queue_id: queue_id for queue_id, items in first.items()}
        """Physical queue → the logical one that it is a part of."""
        self.starts: dict[int, int] = {}
        """Physical queue that had messages before → the mark of what was said of them."""
        self.durable = NEVER
        """The last step that all brokers had on their disks at once."""

    def _item(self, gen: int, queue_id: int, logic_offset: int, start: int) -> Item:
        return Item(gen, queue_id, self.stage.broker_name, logic_offset, start)

    # ---- steps ----

    @property
    def last(self) -> int:
        """The number of the last step."""
        return len(self.steps) - 1

    @property
    def queues(self) -> dict[int, list[Item]]:
        """Logical queues, as they are in the last step."""
        return self.steps[-1].hosted_queues

    def undecided(self) -> list[int]:
        """Logical queues whose last item has no logical offset yet."""
        return [queue_id for queue_id, items in self.queues.items() if not items[-1].decided]

    def extend(self, queue_id: int, physical: int, start: int, epoch: int) -> None:
        """A step: a logical queue goes on in another physical one, from an offset there on."""
        items = self.queues[queue_id]
        self.logical[physical] = queue_id
        self._step(queue_id, [*items, self._item(items[-1].gen + 1, physical, -1, start)], epoch)

    def decide(self, queue_id: int, end: int) -> None:
        """A step: the last item of a logical queue has its place, behind the physical end of the one before it."""
        *before, last = self.queues[queue_id]
        logical = (before[-1].logical(end) // BLOCK + 1) * BLOCK
        decided = self._item(last.gen, last.queue_id, logical, last.start_offset)
        self._step(queue_id, [*before, decided], self.steps[-1].epoch)

    def _step(self, queue_id: int, items: list[Item], epoch: int) -> None:
        queues = {**self.queues, queue_id: items}
        self.steps.append(msgspec.structs.replace(self.steps[-1], epoch=epoch, hosted_queues=queues))

    def request(self, number: int) -> tuple[RequestCode, Header, bytes]:
        """What asks for a step."""
        header = CreateTopicRequest(
            topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, read_queue_nums=PHYSICAL, write_queue_nums=PHYSICAL, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, force=False,
        )  # fmt: skip
        return RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, self.steps[number].to_json()

    # ---- what brokers know ----

    def number_of(self, driver: NodeDriver) -> int:
        """The step that a broker knows, which runs; `NEVER`: none. Violation when it knows something else.

        First items whose messages are gone may have been taken away."""
        machine: Any = driver.machine
        row: Detail | None = machine.parts.mappings.rows.get(TOPIC)
        if row is None:
            return NEVER
        for number in range(self.last, -1, -1):
            step = self.steps[number]
            same = (row.epoch, row.total_queues, row.bname) == (step.epoch, QUEUES, step.bname)
            if same and all(_is_rest(row.hosted_queues.get(i), items) for i, items in step.hosted_queues.items()):
                return number
        raise Violation("a mapping is what was asked for", f"{driver.name} has {row}, of {len(self.steps)} steps")

    def look(self) -> int | None:
        """Which step does the master know now? `NEVER`: none; None: there is no master. Violation when a broker knows
        what nobody asked for, or the master less than what all brokers had on their disks."""
        stage = self.stage
        running = [driver for driver in stage.brokers() if driver.machine is not None]
        numbers = {driver.name: self.number_of(driver) for driver in running}
        machines: list[Any] = [driver.machine for driver in running]
        if len(running) == len(stage.brokers()) and all(machine.parts.saves.settled for machine in machines):
            self.durable = max(self.durable, min(numbers.values()))
        master = stage.master()
        if master is None or master.machine is None:
            return None
        known = numbers[master.name]
        if known < self.durable:
            if not stage.may_forget():
                raise Violation(OLDER, f"{master.name} leads, and knows step {known}; all have had {self.durable}")
            stage.count("mapping forgotten with its master")
            self.durable = known
        return known

    @staticmethod
    def knows(driver: NodeDriver | None) -> bool:
        """Does this broker, if it runs, know that the topic is static?"""
        machine: Any = None if driver is None else driver.machine
        return machine is None or TOPIC in machine.parts.mappings.rows

    def least(self, queue_id: int) -> int:
        """The logical offset that the next message of a queue has at least: its last item is known to all brokers."""
        items = self.steps[max(self.durable, 0)].hosted_queues[queue_id]
        return max(item.logic_offset for item in items)

    def in_doubt(self, queue_id: int, offset: int = (1 << 63) - 1) -> bool:
        """Does an item (the last one) begin behind messages that may be gone? What came in their place is not seen."""
        item = find(self.queues[queue_id], offset)
        mark = None if item is None else self.starts.get(item.queue_id)
        return mark is not None and not self.stage.holds(mark)


def _is_rest(known: Sequence[Item] | None, items: Sequence[Item]) -> bool:
    """Are these the last ones of the items?"""
    return bool(known) and list(known or ()) == list(items[len(items) - len(known or ()) :])


class MappedPlaces(Places):
    """What was sent to the logical queues, and at which logical offset it is."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.stage, TOPIC)
        self.plan = plan
        self.unplaced: dict[bytes, int] = {}
        """What was acknowledged, while its item had no logical offset yet; the mark."""

    def is_astray(self, sent: Sent, queue_id: int) -> bool:
        """Is it not where it was sent to? Who has lost the mapping takes logical queues for physical ones."""
        return sent.queue_id != queue_id and not self.stage.may_forget()

    def observed(self, place: tuple[int, int], value: bytes, mark: int) -> None:
        """A message stands there."""
        if not self.plan.in_doubt(*place):
            super().observed(place, value, mark)

    def acknowledged(self, place: tuple[int, int], sent: Sent, mark: int) -> None:
        """A send was answered."""
        if place[1] < 0:
            self.unplaced[sent.value] = mark
        elif not self.plan.in_doubt(*place):
            super().acknowledged(place, sent, mark)

    def surely_somewhere(self) -> list[tuple[int, bytes]]:
        """Logical queue and value of what was acknowledged without a place, and has to be there."""
        doubts = {queue_id for queue_id, items in self.plan.queues.items()
                  if any(item.start_offset and self.plan.in_doubt(queue_id, item.logic_offset) for item in items)}
        held = [(self.history.sent[value].queue_id, value) for value, mark in self.unplaced.items()
                if self.stage.holds(mark)]  # fmt: skip
        return [(queue_id, value) for queue_id, value in held if queue_id not in doubts]


def mark_of(driver: NodeDriver | None, mark: int) -> int:
    """The mark of what a broker says of logical queues: it holds for nothing if it takes them for physical ones."""
    return mark if Plan.knows(driver) else UNKNOWN

