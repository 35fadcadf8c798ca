"""Reading batch consume queues: by queue offset and by time. A record is read whole, whatever its messages are."""

from __future__ import annotations

from perseid.base.machine import Buffer, Millis
from perseid.store.batch_queue import BatchQueue, BatchUnit
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.reading import cold_records, outside
from perseid.store.results import ReadResult, ReadStatus, Wanted, WantedRecord
from perseid.store.segments import Part


def read(
    log: CommitLog,
    queue: BatchQueue,
    config: StoreConfig,
    offset: int,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
    wanted_record: WantedRecord | None = None,
) -> ReadResult:
    """The records that hold the messages of a queue from `offset` on, within the limits of one answer. The first one
    may begin before `offset`; `count` are messages."""
    low, high = queue.first_offset, queue.shown_offset
    missed = outside(offset, low, high)
    if missed is not None:
        return missed
    status, next_offset, count, total, last = ReadStatus.NO_MATCHED_MESSAGE, offset, 0, 0, -1
    buffers: list[Buffer] = []
    scan = _scan_units(config, max_messages)
    for unit in queue.batches(queue.number_of(offset), scan):
        if unit.base - offset >= scan:
            break
        if count and _is_full(log, config, unit, count, total, max_messages, max_bytes):
            break
        at, last, next_offset = next_offset, unit.physical_offset, unit.end
        if wanted is not None and not wanted(unit.tag_code):
            continue
        record = log.view(unit.physical_offset, unit.size)
        is_wanted = record is None or wanted_record is None or wanted_record(record)
        if is_wanted is None:
            next_offset = at
            break
        if record is None:
            status = status if count else ReadStatus.MESSAGE_WAS_REMOVING
        elif is_wanted:
            buffers.append(record)
            count, total, status = count + unit.messages, total + unit.size, ReadStatus.FOUND
    return ReadResult(status, next_offset, low, high, buffers, count, total, last)


def _scan_units(config: StoreConfig, max_messages: int) -> int:
    """So many units, and so many messages, are looked at for one answer."""
    return -(-max(config.max_filter_message_size, BatchQueue.unit_bytes * max_messages) // BatchQueue.unit_bytes)


def _is_full(
    log: CommitLog, config: StoreConfig, unit: BatchUnit, count: int, total: int, max_messages: int, max_bytes: int
) -> bool:
    """Has the answer no room for another record?"""
    if unit.physical_offset >= log.end - config.in_memory_bytes:
        most = config.max_transfer_count_on_message_in_memory
        most_bytes = config.max_transfer_bytes_on_message_in_memory
    else:
        most = config.max_transfer_count_on_message_in_disk
        most_bytes = config.max_transfer_bytes_on_message_in_disk
    return count + unit.messages > max_messages or count >= most or total + unit.size > min(max_bytes, most_bytes)


def cold(log: CommitLog, queue: BatchQueue, config: StoreConfig, offset: int, max_messages: int) -> list[Part]:
    """What a read from `offset` on would have to wait for: units first, and when they are there, records."""
    hot_from = log.end - config.hot_bytes
    if hot_from <= log.start or not queue.first_offset <= offset < queue.shown_offset:
        return []
    number, most = queue.number_of(offset), max(1, min(max_messages, config.max_transfer_count_on_message_in_memory))
    parts = queue.segments.cold(number * queue.unit_bytes, min(most, queue.shown - number) * queue.unit_bytes)
    if parts:
        return parts
    units = queue.batches(number, most)
    records = [(unit.physical_offset, unit.size) for unit in units if unit.physical_offset < hot_from and unit.size > 0]
    return cold_records(log, records[0][0], sum(records[-1]), records) if records else []


def offset_by_time(queue: BatchQueue, timestamp: Millis, upper: bool) -> int:
    """The base of the first record stored at `timestamp` or later; of the last one when all are older, as in the
    original. `upper`: of the last one stored at it or earlier, else of the first one there is."""
    low, high = queue.min, queue.shown
    first, end = low, high
    while low < high:
        middle = (low + high) // 2
        unit = queue.batch(middle)
        time = unit.store_timestamp if unit is not None else -1
        if time < timestamp or (upper and time == timestamp):
            low = middle + 1
        else:
            high = middle
    found = queue.batch(max(first, min(low - 1 if upper else low, end - 1))) if first < end else None
    return found.base if found is not None else queue.shown_offset
