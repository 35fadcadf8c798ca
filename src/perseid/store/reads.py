"""What can be read of a store: by queue offset, by time, by key, by place in the log. Changes nothing."""

from __future__ import annotations

from perseid.base.machine import Millis
from perseid.core.layout import INDEXED_TAG
from perseid.store import reading
from perseid.store.commit_log import CommitLog
from perseid.store.compaction.service import CompactionService
from perseid.store.config import StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.index import Index
from perseid.store.queues import Queues
from perseid.store.results import ConsumeUnit, QueryResult, ReadResult, ReadStatus, Wanted, WantedRecord
from perseid.store.segments import Part

TAG_INDEX = "T"


class Reads:
    """Of one store."""

    def __init__(
        self, log: CommitLog, index: Index, queues: Queues, compaction: CompactionService, gate: ConfirmGate | None,
        config: StoreConfig,
    ) -> None:  # fmt: skip
        self.config = config
        """As it is now; its owner sets it."""
        self._log = log
        self._index = index
        self._queues = queues.table
        self._compaction = compaction
        self._gate = gate

    @property
    def confirmed(self) -> int:
        """Readers see the records before it."""
        return self._log.end if self._gate is None else self._gate.confirmed

    @property
    def all_hot(self) -> bool:
        """Is all of the log so new that none of it is waited for?"""
        return self._log.end - self._log.start <= self.config.hot_bytes

    def in_memory(self, physical_offset: int) -> bool:
        """Does what stands there count as being in memory?"""
        return self._log.end - physical_offset <= self.config.in_memory_bytes

    # ---- a queue ----

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the queue's last message that readers see; 0 for a queue that has had none."""
        queue = self._queues.get((topic, queue_id))
        return queue.shown_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the first message that is still there, the max offset when none is."""
        queue = self._queues.get((topic, queue_id))
        return queue.first_offset if queue is not None else 0

    def read(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int,
        wanted: Wanted | None = None, wanted_record: WantedRecord | None = None,
    ) -> ReadResult:  # fmt: skip
        """Records from `offset` on that are wanted by their tag code and by themselves (None: all), within the limits
        of one answer."""
        queue = self._queues.get((topic, queue_id))
        if self._compaction.has(topic):
            return self._compaction.read(topic, queue_id, offset, max_messages, max_bytes)
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
        return queue.read(self._log, self.config, offset, max_messages, max_bytes, wanted, wanted_record)

    def cold(
        self, topic: str, queue_id: int, offset: int, most: int, codes: frozenset[int] | None, each: bool = False
    ) -> list[Part]:
        """Parts of files that `read` would wait for the disk for. `each`: it looks at records before it chooses."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or self._compaction.has(topic):
            return []
        return queue.cold(self._log, self.config, offset, most, codes, each)

    def unit(self, topic: str, queue_id: int, offset: int) -> ConsumeUnit | None:
        """The consume queue's entry for an offset; None when there is none."""
        queue = self._queues.get((topic, queue_id))
        return queue.unit(offset) if queue is not None else None

    def record(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """The record of a queue's message; None when it is not there."""
        unit = self.unit(topic, queue_id, offset)
        return None if unit is None else self._log.view(unit.physical_offset, unit.size)

    # ---- the log ----

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log; None when there is none. The bytes at an offset
        that a stranger named may be anything: decode them with care."""
        return self._log.record_at(physical_offset) if physical_offset < self.confirmed else None

    def last_record(self) -> int | None:
        """The offset of the log's last record that a queue points to, or of its very last one; None: there is none."""
        last = self._log.last_offset
        if last < self._log.end and self._log.record_at(last) is not None:
            return last
        units = (queue.raw(queue.end - 1) for queue in self._queues.values() if queue.end > queue.min)
        return max((unit.physical_offset for unit in units if unit is not None), default=None)

    # ---- time ----

    def store_time(self, topic: str, queue_id: int, offset: int) -> Millis:
        """Store time of a queue's message; -1 when it is not there."""
        unit = self.unit(topic, queue_id, offset)
        return -1 if unit is None else reading.record_time(self._log, unit.physical_offset, unit.size)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: Millis, upper: bool = False) -> int:
        """The first offset stored at `timestamp` or later; `upper`: the last one at it or earlier (0: none)."""
        queue = self._queues.get((topic, queue_id))
        return queue.offset_by_time(self._log, timestamp, upper) if queue is not None else 0

    def earliest_time(self) -> Millis:
        """Store time of the log's first record; -1 when the log is empty."""
        log = self._log
        return log.first_timestamp(log.start) or -1 if log.end > log.start else -1

    # ---- keys ----

    def query(
        self, topic: str, key: str, max_count: int, begin: Millis, end: Millis, index_type: str | None = None
    ) -> QueryResult:
        """Records that may carry a key (`index_type` T: a tag), the oldest first; only the hash was compared."""
        key = INDEXED_TAG + key if index_type == TAG_INDEX else key
        most = min(max_count, self.config.max_msgs_num_batch)
        return reading.query(self._log, self._index, topic, key, most, begin, end, self.confirmed)
