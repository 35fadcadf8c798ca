"""The invariants of a store: each record that is shown has its unit, and no other unit is there."""

from __future__ import annotations

from collections.abc import Mapping

from perseid.base.errors import CorruptLog
from perseid.store import inner
from perseid.store.checkpoint import Checkpoint
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, units_of
from perseid.store.results import QueueKey
from perseid.wire.record import Record


def check_log_is_there(log: CommitLog, checkpoint: Checkpoint, config: StoreConfig) -> None:
    """CorruptLog when the original flushed a log of which no file is there: queues would be cut down to nothing."""
    unknown = not log.segments.starts and checkpoint.log_end < 0
    if unknown and log.promised(checkpoint.log_timestamp) > 0 and not config.truncate_corrupt_log:
        why = "no file is left of a log that RocketMQ flushed; is it in another folder (storePathCommitLog)?"
        raise CorruptLog(log.segments.path(0), 0, why)


class Checks:
    """What was looked at already, so that each call only looks at what is new."""

    def __init__(self) -> None:
        self._validated = self._loaded_end = 0

    def loaded(self, log: CommitLog) -> None:
        """A store was loaded, with this log."""
        self._validated, self._loaded_end = log.start, log.end

    def cut(self, end: int) -> None:
        """The log ends there now: what comes behind it is new, and queues that had begun anew behind it are the old
        ones again."""
        self._validated, self._loaded_end = 0, min(self._loaded_end, end)

    def run(
        self,
        log: CommitLog,
        queues: Mapping[QueueKey, ConsumeQueue],
        promised: int,
        deleted: set[str],
        *,
        lmq: bool = False,
    ) -> None:
        """AssertionError when something is broken. `promised`: what the checkpoint says is durable; `deleted`: topics
        whose queues may be gone; `lmq`: records stand in light queues too."""
        assert log.start <= log.flushed <= log.issued <= log.end, (
            f"log: start {log.start}, flushed {log.flushed}, issued {log.issued}, end {log.end}"
        )
        assert promised <= log.flushed, "a checkpoint promised what is not durable"
        if self._validated < log.end:
            self._records(log, queues, deleted, lmq)
        for queue in queues.values():
            assert 0 <= queue.min <= queue.end, f"{queue.segments.folder}: [{queue.min}, {queue.end})"
            assert queue.end * queue.unit_bytes <= queue.segments.end, f"{queue.segments.folder}: units without a file"

    def _records(
        self, log: CommitLog, queues: Mapping[QueueKey, ConsumeQueue], deleted: set[str], lmq: bool
    ) -> None:
        walk = log.walk(max(self._validated, log.start))
        for record in walk:
            if walk.offset >= log.end:
                break
            if not in_queue(record.sys_flag):
                continue
            span, queue = inner.span(record), queues.get((record.topic, record.queue_id))
            batch = span is not None or (queue is not None and queue.batched)
            own, *light = units_of(record, lmq=lmq and not batch)
            self._unit(log, queues, deleted, record, own[0], own[1] if span is None else span[0], batch=batch)
            if walk.offset >= self._loaded_end:  # what stood there at the start may say anything
                for key, offset in light:
                    self._unit(log, queues, deleted, record, key, offset, batch=False)
        assert walk.offset >= log.end, f"log: at {walk.offset}: {walk.why}, but its end is {log.end}"
        self._validated = log.end

    def _unit(
        self,
        log: CommitLog,
        queues: Mapping[QueueKey, ConsumeQueue],
        deleted: set[str],
        record: Record,
        key: QueueKey,
        offset: int,
        *,
        batch: bool,
    ) -> None:
        """Of the record, in a queue of that kind."""
        physical = record.physical_offset
        queue = queues.get(key)
        if queue is None or (batch and not queue.batched):
            gone = key[0] in deleted or physical < self._loaded_end
            assert gone, f"{_unit_at(key, offset)} of the record at {physical} is missing with its queue"
            return
        first = queue.raw(0)
        if first is not None and queue.end > 0 and physical < first.physical_offset < log.end:
            return  # the topic was deleted and made again later
        unit = queue.stored(offset)
        assert unit is not None, f"{_unit_at(key, offset)} of the record at {physical} is missing"
        assert (unit.physical_offset, unit.size) == (physical, record.size), (
            f"{_unit_at(key, offset)} is {unit}, the log has ({physical}, {record.size})"
        )


def _unit_at(key: QueueKey, offset: int) -> str:
    return f"{key[0]}/{key[1]}: unit {offset}"
