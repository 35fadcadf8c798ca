"""Messages that readers can see from now on: who hears of each of them, in each role and kind of log.

A message for a time, a delayed one, and a record of POP are heard of by their services, any other by the pulls and pops
that wait, whichever way it came: one by one, as units of the quick way (`Appends.on_units`), or shown by a gate.
Statistics count what a master takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from perseid.base.machine import Buffer
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.roles import Roles
from perseid.raft.store import GroupAppends
from perseid.store import consume_queue
from perseid.store.appends import Appends
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.consume_queue import UNIT, ConsumeQueue
from perseid.wire import lite


class WaitList(consume_queue.WaitList, Protocol):
    """Requests that wait for messages."""

    def waits(self, topic: str, queue_id: int) -> bool:
        """Does anyone wait for a message of this queue?"""


class Service(NamedTuple):
    """A topic of the broker's own, and what hears of its messages: queue id and tag code of the first new one."""

    topic: str
    heard: Callable[[int, int], None]
    on_slave: bool = False
    """A slave's hears of them, too."""


class Arrivals:
    """Of one broker. Its store, or its group's, calls in the middle of a turn."""

    def __init__(
        self, appends: Appends, gate: ConfirmGate | None, roles: Roles, waits: WaitList, counts: Counts,
        services: Iterable[Service], lite_arrived: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`lite_arrived` hears of each lite topic that got a message."""
        self._appends = appends
        self._gate = gate
        self._roles = roles
        self._waits = waits
        self._counts = counts
        self._services = {service.topic: service for service in services}
        self._lite_arrived = lite_arrived

    def listen(self) -> None:
        """Let each message that readers can see be heard of, as it is done in our role."""
        appends, gate, slave = self._appends, self._gate, self._roles.is_slave
        appends.on_units = self._units
        appends.on_light = self._light if gate is None else None  # a gate tells of all queues alike
        if gate is not None:
            gate.on_shown = self._shown
            appends.on_append = None if slave else self._taken
        elif isinstance(appends, GroupAppends):
            appends.on_entry = self._counted
            appends.on_append = self._copied if slave else self._arrived
        else:
            appends.on_append = self._copied if slave else self._appended

    def _copied(self, topic: str, queue_id: int, queue_offset: int, tag_code: int, offset: int, size: int) -> None:
        """A slave's log got a message."""
        self._waits.arrived(topic, queue_id, queue_offset, tag_code)

    def _light(self, topic: str, queue_id: int, queue_offset: int, tag_code: int, offset: int, size: int) -> None:
        """A light queue got a message."""
        self._waits.arrived(topic, queue_id, queue_offset, tag_code)
        if lite.is_lite(topic):
            self._lite_arrived(topic)

    def _appended(self, topic: str, queue_id: int, queue_offset: int, tag_code: int, offset: int, size: int) -> None:
        """The store took a message."""
        self._counted(topic, size)
        self._arrived(topic, queue_id, queue_offset, tag_code, offset, size)

    def _taken(self, topic: str, queue_id: int, queue_offset: int, tag_code: int, offset: int, size: int) -> None:
        """The store took a message that readers see later."""
        self._counted(topic, size)

    def _counted(self, topic: str, size: int) -> None:
        self._counts.put(topic, 1, size)

    def _serves(self, topic: str, queue_id: int, tag_code: int) -> bool:
        """Is this a topic of a service? Then it has heard of its first new message, whose tag code this is."""
        service = self._services.get(topic)
        if service is None:
            return False
        if service.on_slave or not self._roles.is_slave:
            service.heard(queue_id, tag_code)
        return True

    def _read(self, topic: str) -> None:
        """Clients that read a lite topic have a message there."""
        if self._appends.lmq and lite.is_lite(topic):
            self._lite_arrived(topic)

    def _units(self, topic: str, queue_id: int, first: int, units: Buffer) -> None:
        """Readers see these units, from offset `first` on."""
        if not self._serves(topic, queue_id, UNIT.unpack_from(units)[2]):
            self._waits.units_arrived(topic, queue_id, first, units)
            self._read(topic)

    def _shown(self, queue: ConsumeQueue, first: int, end: int) -> None:
        """Readers see units of a queue: called at the end of a turn, or in the middle of one."""
        topic, queue_id, unit = queue.topic, queue.queue_id, queue.raw(first)
        if not queue.batched and self._serves(topic, queue_id, unit.tag_code if unit is not None else 0):
            return
        if self._waits.waits(topic, queue_id):
            queue.tell(first, end, self._waits)
        self._read(topic)

    def _arrived(self, topic: str, queue_id: int, queue_offset: int, tag_code: int, offset: int, size: int) -> None:
        """Readers see a message that was taken."""
        if not self._serves(topic, queue_id, tag_code):
            self._waits.arrived(topic, queue_id, queue_offset, tag_code)
            self._read(topic)  # sent to the queue itself
