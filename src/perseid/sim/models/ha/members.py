"""The machines of a whole cluster, as the checkers see them: its controllers, and the brokers of its set.

After every event of a controller its tables are held against what was agreed on; after every event of a broker its log,
its epochs, its role and what it calls confirmed are looked at.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perseid.broker.node import Broker
from perseid.controller.node import Controller
from perseid.raft.node import Raft
from perseid.sim.driver import NodeDriver
from perseid.sim.models.broker.slaves import log_bytes
from perseid.sim.models.ha.broker import MAIN_PORT, Look
from perseid.sim.models.ha.chain import NOWHERE, Chain, Epoch
from perseid.sim.models.ha.queues import Stored
from perseid.sim.models.raft.group import Watched
from perseid.sim.promises import Violation
from perseid.wire.ha_auto import EpochEntry
from perseid.wire.record import QUEUE_OFFSET_AT

if TYPE_CHECKING:
    from perseid.sim.models.ha.cluster import Ha


class ControllerMember(Watched):
    """A controller."""

    group: Ha

    seen = -1
    """Up to this entry its state was compared."""

    @property
    def controller(self) -> Controller | None:
        machine: Any = self.driver.machine
        found: Controller | None = machine
        return found

    @property
    def raft(self) -> Raft | None:
        controller = self.controller
        return controller.raft if controller is not None else None

    @property
    def active(self) -> bool:
        return self.controller is not None and self.controller.active

    def after_event(self) -> None:
        super().after_event()
        controller, group = self.controller, self.group
        applier = controller.raft.applier if controller is not None else None
        if controller is None or applier is None or applier.applied == self.seen:
            return
        self.seen = applied = applier.applied
        if applied >= 0 and _state(controller) != group.oracle.states[applied]:
            what = f"{_state(controller)}, agreed: {group.oracle.states[applied]}"
            raise Violation("R7", f"{self.name} has after entry {applied}: {what}")


def _state(controller: Controller) -> tuple[Any, ...]:
    """A controller's tables, in the oracle's words."""
    found = []
    tables = controller.tables
    for name in sorted(tables.replicas):
        info, state = tables.replicas[name], tables.in_sync[name]
        ids = tuple((one, info.brokers[one].address, info.brokers[one].check_code) for one in sorted(info.brokers))
        members = tuple(sorted(state.members))
        found.append((name, ids, info.next_id, state.master, state.master_epoch, members, state.epoch))
    return tuple(found)


class Replica(Watched):
    """A broker of the set."""

    group: Ha

    def __init__(self, group: Ha, name: str, driver: NodeDriver) -> None:
        super().__init__(group, name, driver)
        self.log = Chain(driver.disk, group.settings.log_file_bytes)
        self.id = 0
        """Of the controllers, as far as it has one."""
        self.epoch = -1
        """The highest that it ever took."""
        self.is_master = False
        self.confirmed = 0
        self.epochs: list[Epoch] = []
        self.entries: list[EpochEntry] = []
        """The same, as the broker had them at the last look."""
        self.last_epoch = -1
        """Of its last byte, as it says."""
        self.flushed = 0
        self.trusted: tuple[int, bytes] = (0, b"")
        """Up to where its log has to be there after whatever happens, and its hash."""
        self.excused = False
        """Its disk was wiped, and it has not caught up since."""
        self.wiped = False
        """It was at any time."""

    @property
    def broker(self) -> Broker | None:
        machine: Any = self.driver.machine
        found: Broker | None = machine
        return found

    @property
    def raft(self) -> None:
        return None

    @property
    def address(self) -> str:
        """Of its main port."""
        return f"{self.driver.ip}:{MAIN_PORT}"

    @property
    def look(self) -> Look | None:
        """What there is to see of it, if it runs and has begun."""
        return Look(self.broker) if self.broker is not None and Look.began(self.broker) else None

    @property
    def start(self) -> int:
        """Where its log begins: later than at 0 where that was asked for (syncFromLastFile)."""
        return self.log.start

    @property
    def tail_epoch(self) -> int:
        """The last epoch that its log has."""
        return self.epochs[-1][0] if self.epochs else 0

    @property
    def end(self) -> int:
        """Of its log; of one that is down, where it ended when it was last seen."""
        return self.log.end

    def record(self, physical: int) -> bytes | None:
        """The record that its log has there."""
        size = self._bytes(physical, 4)
        if size is None or not int.from_bytes(size, "big"):
            return None
        return self._bytes(physical, int.from_bytes(size, "big"))

    def _bytes(self, offset: int, size: int) -> bytes | None:
        look = self.look
        if look is not None and offset + size > look.end:
            return None
        return log_bytes(self.driver.disk, self.group.settings.log_file_bytes, offset, offset + size)

    def has(self, stored: Stored) -> bool:
        """Is a message in its log, as it was, or too old for it?"""
        if stored.physical < self.start:
            return True
        raw = self._bytes(stored.physical, stored.end - stored.physical)
        if raw is None or stored.body not in raw or int.from_bytes(raw[:4], "big") != len(raw):
            return False
        queue_offset = int.from_bytes(raw[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big")
        return stored.place is None or stored.place[1] == queue_offset  # else it is the same message, sent again

    def unit(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where the message at a queue's offset stands in its log."""
        assert self.broker is not None
        unit = self.broker.parts.store.reads.unit(topic, queue_id, offset)
        return unit.physical_offset if unit is not None else None

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Where the queue ends, whether readers see all of it or not."""
        assert self.broker is not None
        queue = self.broker.parts.store.queues.get(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    # ---- after every event ----

    def after_event(self) -> None:
        look = self.look
        if look is None:
            return
        self._follow(look)
        self._role(look)
        if look.proposed:
            self.group.in_sync(look.master_epoch, look.proposed)

    def started(self) -> None:
        """A new life has begun: C9, and what was durable is there."""
        look = self.look
        if look is None:
            return
        self.log.dirty = 0
        self.epochs, self.entries, self.confirmed, self.is_master, self.epoch = [], [], 0, False, -1
        self._follow(look)
        end, digest = self.trusted
        if not self.excused and self.log.at(end) != digest:
            raise Violation("R10", f"{self.name} has not what was durable up to {end}; its log ends at {look.end}")
        self._role(look)

    def _follow(self, look: Look) -> None:
        group, log, confirmed_now = self.group, self.log, look.confirmed
        if (
            log.is_as_it_was(look.start, look.end) and confirmed_now == self.confirmed and look.entries == self.entries
            and look.flushed <= self.trusted[0] and confirmed_now <= look.end
        ):  # fmt: skip
            return
        before, confirmed, floor = log.end, self.confirmed, log.start
        begun = look.start != log.start
        if begun:
            log.begin(look.start, self._hash_of_master(look.start))
        changed = log.follow(look.end)
        if begun and floor:
            changed = floor  # it has dropped all that it had
        cut = min(changed, max(look.end, floor))
        if changed < NOWHERE and cut < before:
            self._was_cut(cut, before, confirmed)
        epochs = [(entry.epoch, entry.start) for entry in look.entries]
        again = changed if changed < NOWHERE else before
        if epochs != self.epochs:
            same = next((i for i, (a, b) in enumerate(zip(epochs, self.epochs, strict=False)) if a != b), None)
            first = min(len(epochs), len(self.epochs)) if same is None else same
            again = min(again, *(start for _, start in (*epochs[first:], *self.epochs[first:])), before)
            self._check_epochs(epochs)
            self.epochs = epochs
        self.entries = list(look.entries)
        if log.end != before or look.last_epoch != self.last_epoch:
            self._check_last_epoch(look)
        group.log_histories.check(self.name, log, self.epochs, again)
        self.confirmed = look.confirmed
        if look.confirmed > look.end:
            raise Violation("C10", f"{self.name}: confirmed up to {look.confirmed}, the log ends at {look.end}")
        if self.confirmed < confirmed and changed == NOWHERE:
            raise Violation(
                "C10", f"{self.name}: confirmed fell from {confirmed} to {self.confirmed}, and nothing was cut"
            )
        if self.excused and log.end != before and self.group.has_all(self):
            self.excused = False
            self.group.count("a wiped broker has everything again")
        if look.flushed > self.trusted[0]:
            digest = log.at(look.flushed)
            if digest is not None:
                self.trusted = look.flushed, digest

    def _hash_of_master(self, start: int) -> bytes:
        """Its log begins at `start`: the hash of all before, by the log of whom it follows."""
        if not start:
            return b""
        peers = [end.other.owner for end in self.group.network.ends.values() if end.owner is self.driver]
        for one in self.group.replicas:
            digest = one.log.at(start) if one.driver in peers and one is not self else None
            if digest is not None:
                self.group.count("began with the last file")
                return digest
        raise Violation("a log begins as its master's goes on", f"{self.name} begins at {start}, and nobody has that")

    def _was_cut(self, cut: int, before: int, confirmed: int) -> None:
        """C12."""
        group = self.group
        group.count("log cut")
        group.scheduler.note("checkers", f"{self.name} is cut at {cut}; it ended at {before}, confirmed {confirmed}")
        of_before = self.tail_epoch < group.agreed.unclean_at  # what nobody elected since had may go
        if cut < confirmed and group.strict and not self.excused and not of_before:
            raise Violation("C12", f"{self.name} is cut at {cut}, and knew that {confirmed} was confirmed")
        if cut < self.trusted[0]:
            self.trusted = cut, self.log.at(cut) or b""
        group.ambush(0.4, "killed after a cut", self)

    def _check_epochs(self, epochs: list[Epoch]) -> None:
        """C2, C9."""
        for (epoch, start), (after, later) in pairwise(epochs):
            if epoch >= after or start >= later:
                raise Violation("C9", f"{self.name}: epochs {epochs} do not ascend")
        if epochs and epochs[-1][0] > self.group.agreed.master_epoch:
            raise Violation("C2", f"{self.name} has epoch {epochs[-1]}, agreed: {self.group.agreed.master_epoch}")

    def _check_last_epoch(self, look: Look) -> None:
        """C6: whoever has the highest epoch is elected, of those the longest log: heartbeats say whose its last byte
        is."""
        self.last_epoch = look.last_epoch
        begun = [epoch for epoch, start in self.epochs if start < look.end]
        last = begun[-1] if begun else -1
        if look.last_epoch != last and not look.leads:
            what = f"{self.name} ends at {look.end}, with a byte of epoch {look.last_epoch}, it says"
            raise Violation("C6", f"{what}; its epochs are {self.epochs}")

    def _role(self, look: Look) -> None:
        group = self.group
        self.id = look.id or self.id
        epoch, was = self.epoch, self.is_master
        self.is_master, now = look.is_master, look.master_epoch
        if now < epoch:
            raise Violation("C2", f"{self.name}: its epoch fell from {epoch} to {now}")
        self.epoch = max(now, epoch)
        if self.is_master and (not was or now > epoch):
            group.became_master(self, again=was)
        elif was and not self.is_master:
            group.count("became slave")
        if self.is_master and look.confirmed and group.trusts(self):
            group.check_confirmed(self, look.confirmed)
