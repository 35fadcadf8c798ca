"""Checks that look behind the scenes: into the simulated disk and the store of the running broker.

- at each acknowledgement under SYNC_FLUSH: the record, and all the log before it, survives any power cut;
- at a power cut: what may be forgotten is what was not durable; acknowledged under SYNC_FLUSH: nothing;
- after each start: every acknowledged message that may not be forgotten is where it was said to be, with its
  bytes; what was forgotten is a suffix of the log; no group's offset is beyond its queue;
- a record that recovery cut off does not come back later: not as a stale tail behind newer records either;
- what retention takes away is gone from the log's start, and only when there was a reason;
- under ASYNC_FLUSH, what was acknowledged longer ago than the flush interval is durable when the disk was well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perseid.base.machine import Flush, SaveState
from perseid.broker.transactions.service import GROUP as TRANSACTIONS
from perseid.sim.history import VALUE_BYTES, History, Place, Sent, Stored, Violation
from perseid.wire import fastjson
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.pull import PullMessageResponse
from perseid.wire.names import HALF_TOPIC, OP_HALF_TOPIC
from perseid.wire.record import BLANK_MAGIC, MIN_RECORD_BYTES, Record, decode_all, size_and_magic

if TYPE_CHECKING:
    from perseid.sim.disk import SimDisk
    from perseid.sim.models.broker.cluster import Cluster

OFFSETS_PATH = "config/consumerOffset.json"
LOG_FOLDER = "commitlog"
SEND_OK = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)
STORE_TIMESTAMP_AT, BODY_AT = 56, 88
"""Of a record between IPv4 hosts."""
FLUSH_SLACK_US = 6_000_000
"""Beyond the flush interval, for a sync that is under way."""


def read_answer(history: History, reply: Command, now_us: int) -> list[Record]:
    """The records of an answer, each checked against the history."""
    if reply.code != ResponseCode.SUCCESS or not len(reply.body):
        return []
    records = decode_all(reply.body)
    for record in records:
        history.saw(record, now_us)
    return records


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


class Checkers:
    """The checks of one run. `doubtful`: what a power cut may have taken, until the next start tells."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.doubtful: set[Place] = set()
        self.doubtful_delayed: set[bytes] = set()
        self.doubtful_halves: set[bytes] = set()
        self.unsure: list[Written] = []
        """What the last power cut may have taken of the log, acknowledged or not."""
        self.gone: dict[int, Written] = {}
        """By their offset, records that a recovery cut off."""
        self.log_start = 0
        self.may_delete = False
        """Something happened that lets old files go: a full disk, a clock that jumped far."""
        self.disk_trouble_us = -(1 << 60)
        """When the broker's disk was last slow, failing or stalled."""

    # ---- while the broker runs ----

    def acknowledged(self, sent: Sent, physical: int) -> None:
        """A message was acknowledged as fully durable, by the life that still runs."""
        if self.cluster.sync_flush and not self._survives(physical, durable_end(self.cluster.broker.disk)):
            raise Violation("acknowledged is durable", f"{sent} at {physical} would not survive a power cut")

    def bounds(self, topic: str, queue_id: int, asked: int, header: PullMessageResponse, code: int) -> None:
        """A pull's answer names the bounds of its queue."""
        if header.next_begin_offset > max(header.max_offset, asked):
            raise Violation(
                "never past the maximum", f"{topic}/{queue_id}: next {header.next_begin_offset} of {header.max_offset}"
            )
        if header.min_offset > header.max_offset:
            raise Violation("min ≤ max", f"{topic}/{queue_id}: {header.min_offset} > {header.max_offset}")
        if code == ResponseCode.PULL_OFFSET_MOVED and header.min_offset <= asked < header.max_offset:
            raise Violation("an offset that is there is served", f"{topic}/{queue_id}: moved from {asked}")

    def job(self, effect: Flush | SaveState) -> Callable[[], None] | None:
        """A job of the broker's disk was asked for."""
        if isinstance(effect, SaveState) and effect.path == OFFSETS_PATH:
            table: dict[str, Any] = fastjson.loads(effect.data).get("offsetTable") or {}
            takeovers = self.history.takeovers
            return lambda: self.history.saved(table, takeovers)
        return None

    # ---- crashes ----

    def killed(self, *, crashed: bool = True) -> None:
        """The broker's process is gone."""
        self.history.life_ended(crashed=crashed)

    def before_power_cut(self) -> None:
        """Find out what may be lost, while the disk still knows what is synced."""
        end = durable_end(self.cluster.broker.disk)
        now = self.cluster.scheduler.now_us
        old = now - self.cluster.flush_limit_us - FLUSH_SLACK_US
        for place, stored in self.history.acked.items():
            if not self._survives(stored.physical, end):
                self._check_loss(str(place), stored, old)
                self.doubtful.add(place)
        for place, stored in list(self.history.read.items()):
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

    def _come_back(self, store: Any) -> None:
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

    def started(self, broker: Any) -> None:
        """The broker has recovered: look at everything that clients were promised."""
        history, store = self.history, broker.parts.store
        self._come_back(store)
        for topic in self.cluster.topics:
            row = broker.parts.topics.get(topic.name)
            if topic.name in self.cluster.created and (row is None or row.write_queue_nums != topic.queues):
                raise Violation("a topic that was made stays", f"{topic.name} with {topic.queues} queues is {row}")
        self.deleted(store)
        lost: list[Stored] = []
        kept_after = -1
        gone: list[Place] = []
        for place, stored in sorted(history.acked.items(), key=lambda item: item[1].physical):
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
        self._maxima(store)
        self._group_offsets(store, broker.parts.offsets)

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

    def _maxima(self, store: Any) -> None:
        """A queue's maximum may fall by what was lost only."""
        known: dict[tuple[str, int], int] = {}
        for table in (self.history.acked, self.history.read):
            for place in table:
                key = place[:2]
                known[key] = max(known.get(key, 0), place.offset + 1)
        for (topic, queue_id), offset in known.items():
            high = store.reads.max_offset(topic, queue_id)
            if high < offset:
                raise Violation("the maximum never falls", f"{topic}/{queue_id}: {high} after {offset}")
        for key, before in self.history.max_offsets.items():
            if known.get(key, 0) < before:
                self.history.queues.lost([key])
            self.history.max_offsets[key] = known.get(key, 0)

    def _group_offsets(self, store: Any, offsets: Any) -> None:
        for (group, topic, queue_id), commits in self.history.commits.items():
            offset = offsets.query(topic, group, queue_id)
            self.history.committed(group, topic, queue_id, offset)
            end = store.reads.max_offset(topic, queue_id)
            if offset is not None and offset > end and offset not in commits.ahead:
                raise Violation("no group is ahead of its queue", f"{group} in {topic}/{queue_id}: {offset} of {end}")
            commits.acked = -1
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            offset, end = offsets.query(topic, TRANSACTIONS, 0) or 0, store.reads.max_offset(topic, 0)
            if offset > end:
                raise Violation("no group is ahead of its queue", f"{TRANSACTIONS} in {topic}: {offset} of {end}")

    # ---- retention ----

    def deleted(self, store: Any) -> None:
        """Old files may have gone."""
        start = store.log.start
        if start < self.log_start:
            self.log_start = start  # a removal that was not synced came back with a power cut
        if start == self.log_start:
            return
        if not self.may_delete:
            raise Violation("files go for a reason", f"the log begins at {start}, was {self.log_start}")
        self.log_start = start
        self.cluster.slaves.master_lost = True  # a slave may have been further behind than that
        old = [place for place, stored in self.history.acked.items() if stored.physical < start]
        old += [place for place, stored in self.history.read.items() if stored.physical < start]
        self.history.forget(old, lost=False)
        for table in (self.history.delayed, self.history.halves):
            for value in [value for value, stored in table.items() if stored.physical < start]:
                del table[value]
        self.cluster.count("log file deleted")
