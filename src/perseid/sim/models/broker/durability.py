"""What is durable, seen from behind the scenes: in the simulated disk, and in the store of the running broker.

- at each acknowledgement under SYNC_FLUSH: the record, and all the log before it, survives any power cut;
- at a power cut: what may be forgotten is what was not durable; acknowledged under SYNC_FLUSH: nothing;
- after each start: every acknowledged message that may not be forgotten is where it was said to be, with its
  bytes; what was forgotten is a suffix of the log;
- a record that recovery cut off does not come back later: not as a stale tail behind newer records either;
- under ASYNC_FLUSH, what was acknowledged longer ago than the flush interval is durable when the disk was well.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from perseid.sim.disk import SimDisk
from perseid.sim.driver import NodeDriver
from perseid.sim.facts import VALUE_BYTES, Place, Sent, Stored
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.sim.scheduler import Scheduler
from perseid.wire.record import BLANK_MAGIC, MIN_RECORD_BYTES, size_and_magic

LOG_FOLDER = "commitlog"
STORE_TIMESTAMP_AT, BODY_AT = 56, 88
"""Of a record between IPv4 hosts."""
FLUSH_SLACK_US = 6_000_000
"""Beyond the flush interval, for a sync that is under way."""


def durable_end(disk: SimDisk) -> int:
    """Up to which offset of the log every byte survives any power cut."""
    end = 0
    for name in disk.names.names_in(LOG_FOLDER):
        file = disk.names.get(f"{LOG_FOLDER}/{name}")
        if file is None or not name.isdigit():
            continue
        start = int(name)
        if end and start != end:
            return end
        if not disk.names.is_durable(file.path):
            return end or start
        end = start + file.durable_bytes()
        if end < start + file.size:
            return end
    return end


class Written(NamedTuple):
    """A record as it stands in the log: enough to know it again."""

    physical: int
    value: bytes
    timestamp: bytes

    def is_at(self, view: memoryview) -> bool:
        stored_at = view[STORE_TIMESTAMP_AT : STORE_TIMESTAMP_AT + 8]
        return bytes(view[BODY_AT : BODY_AT + VALUE_BYTES]) == self.value and stored_at == self.timestamp


class Played(Protocol):
    """The broker that is looked at, and how it flushes."""

    broker: NodeDriver
    scheduler: Scheduler
    history: History
    sync_flush: bool
    flush_limit_us: int
    log_file_bytes: int

    def count(self, what: str, times: int = 1) -> None:
        """That is met."""


class Durability:
    """That of one run. `doubtful`: what a power cut may have taken, until the next start tells."""

    def __init__(self, cluster: Played) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.doubtful: set[Place] = set()
        self.doubtful_delayed: set[bytes] = set()
        self.doubtful_halves: set[bytes] = set()
        self.unsure: list[Written] = []
        """What the last power cut may have taken of the log, acknowledged or not."""
        self.gone: dict[int, Written] = {}
        """By their offset, records that a recovery cut off."""
        self.disk_trouble_us = -(1 << 60)
        """When the broker's disk was last slow, failing or stalled."""

    # ---- while the broker runs ----

    def acknowledged(self, sent: Sent, physical: int) -> None:
        """A message was acknowledged as fully durable, by the life that still runs."""
        if self.cluster.sync_flush and not self._survives(physical, durable_end(self.cluster.broker.disk)):
            raise Violation("acknowledged is durable", f"{sent} at {physical} would not survive a power cut")

    # ---- a power cut ----

    def before_power_cut(self) -> None:
        """Find out what may be lost, while the disk still knows what is synced."""
        end = durable_end(self.cluster.broker.disk)
        now = self.cluster.scheduler.now_us
        old = now - self.cluster.flush_limit_us - FLUSH_SLACK_US
        for place, stored in self.history.order.acked.items():
            if not self._survives(stored.physical, end):
                self._check_loss(str(place), stored, old)
                self.doubtful.add(place)
        for place, stored in list(self.history.order.read.items()):
            if place not in self.doubtful and not self._survives(stored.physical, end):
                self.history.forget([place])
        self.unsure += self._written(end)
        for what, table, doubtful in (
            ("delayed", self.history.delayed, self.doubtful_delayed),
            ("half", self.history.halves, self.doubtful_halves),
        ):
            for value, stored in table.items():
                if not self._survives(stored.physical, end):
                    self._check_loss(f"{what} {value!r}", stored, old)
                    doubtful.add(value)
        self.cluster.scheduler.note("checkers", f"log durable up to {end}, {len(self.doubtful)} acknowledged in doubt")

    def _written(self, end: int) -> list[Written]:
        """The records of the page cache that are not durable: those that end behind `end`."""
        found: list[Written] = []
        disk, step = self.cluster.broker.disk, self.cluster.log_file_bytes
        for name in disk.names.names_in(LOG_FOLDER):
            file = disk.names.get(f"{LOG_FOLDER}/{name}")
            if file is None or not name.isdigit() or int(name) + step <= end:
                continue
            at = 0
            while at < file.size:
                size, magic = size_and_magic(file.view(at, 8))
                if magic == BLANK_MAGIC or size < MIN_RECORD_BYTES:
                    break
                timestamp = bytes(file.view(at + STORE_TIMESTAMP_AT, 8))
                written = Written(int(name) + at, bytes(file.view(at + BODY_AT, VALUE_BYTES)), timestamp)
                if written.physical + size > end:
                    found.append(written)
                at += size
        return found

    def come_back(self, store: Any) -> None:
        """Look whether something stands in the log again that an earlier recovery had cut off."""
        end = store.log.end
        for written in self.gone.values():
            view = store.reads.record_at(written.physical) if written.physical < end else None
            if view is not None and written.is_at(view):
                raise Violation("what was lost stays lost", f"{written.value!r} is at {written.physical} again")
        for written in self.unsure:
            if written.physical >= end:
                self.gone[written.physical] = written
        self.unsure.clear()

    def _check_loss(self, what: str, stored: Stored, old: int) -> None:
        if self.cluster.sync_flush and stored.sure:
            raise Violation("acknowledged is durable", f"{what}: {stored.sent} at {stored.physical} may be lost")
        if stored.at_us < old and self.disk_trouble_us < old:
            raise Violation(
                "flushed in time", f"{what}: {stored.sent} of {stored.at_us / 1e6:.3f} s is not yet durable"
            )

    def _survives(self, physical: int, end: int) -> bool:
        return physical + self._size(physical) <= end

    def _size(self, physical: int) -> int:
        """The size of the record at an offset of the log; 0 when its file is gone."""
        disk, step = self.cluster.broker.disk, self.cluster.log_file_bytes
        file = disk.names.get(f"{LOG_FOLDER}/{physical - physical % step:020d}")
        return int.from_bytes(file.view(physical % step, 4), "big") if file is not None else 0

    # ---- starts ----

    def recovered(self, store: Any) -> None:
        """The broker has recovered: look at all that was acknowledged."""
        history = self.history
        lost: list[Stored] = []
        kept_after = -1
        gone: list[Place] = []
        for place, stored in sorted(history.order.acked.items(), key=lambda item: item[1].physical):
            problem = self._problem(store, place, stored)
            if not problem:
                if place in self.doubtful:
                    kept_after = stored.physical
            elif place in self.doubtful:
                gone.append(place)
                lost.append(stored)
            else:
                raise Violation(
                    "nothing acknowledged is lost", f"{stored.sent} at {place}, log {stored.physical}: {problem}"
                )
        if lost and lost[0].physical < kept_after:
            raise Violation("only a suffix is lost", f"{lost[0].physical} is lost, {kept_after} is not")
        history.forget(gone)
        if gone:
            self.cluster.count("unflushed messages lost", len(gone))
        for table, doubtful in ((history.delayed, self.doubtful_delayed), (history.halves, self.doubtful_halves)):
            for value in doubtful & table.keys():
                if not self._holds(store, table[value]):
                    del table[value]
            doubtful.clear()
        self.doubtful.clear()

    def _problem(self, store: Any, place: Place, stored: Stored) -> str:
        """Why a message is not where it was said to be; "" when it is."""
        unit = store.reads.unit(place.topic, place.queue_id, place.offset)
        if unit is None:
            low, high = store.reads.min_offset(*place[:2]), store.reads.max_offset(*place[:2])
            return f"the queue has [{low}, {high})"
        if unit.physical_offset != stored.physical:
            return f"the queue points to {unit.physical_offset}"
        return "" if self._holds(store, stored) else "the log holds something else"

    @staticmethod
    def _holds(store: Any, stored: Stored) -> bool:
        view = store.reads.record_at(stored.physical)
        body = stored.sent.body
        return view is not None and bytes(view[BODY_AT : BODY_AT + len(body)]) == body
