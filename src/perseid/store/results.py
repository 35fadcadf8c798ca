"""What the store answers, and the events that come back to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

import msgspec

from perseid.base.errors import StoreError
from perseid.base.machine import Buffer, Millis

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""
OnAppend: TypeAlias = Callable[[str, int, int, int, int, int], None]
"""(topic, queue id, queue offset, tag code, physical offset, size) of a record that readers see now."""
OnUnits: TypeAlias = Callable[[str, int, int, Buffer], None]
"""(topic, queue id, queue offset of the first, packed units) of records of one queue that came together."""
Wanted: TypeAlias = Callable[[int], bool]
"""A filter over tag codes."""
WantedRecord: TypeAlias = Callable[[memoryview], bool | None]
"""A filter over records. None: it does not look at this one, and the read ends before it."""


class PutStatus(Enum):
    """How an append ended, in the original's names (broker.md §4.2)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendRefused(StoreError):
    """A message that was not stored; nothing of it is on disk."""

    def __init__(self, status: PutStatus, why: str) -> None:
        super().__init__(f"{status.value}: {why}")
        self.status = status
        self.why = why


class Appended(msgspec.Struct, gc=False):
    """Where a message went."""

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: Millis


class ReadStatus(Enum):
    """How a read ended, in the original's names (broker.md §6.2)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class ReadResult(msgspec.Struct):
    """What a read found. `buffers` joined are `count` whole records; they are windows on the log, good for
    as long as the answer needs them. `last_physical_offset` is that of the last record scanned, -1: none.
    """

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: Sequence[Buffer]
    count: int = 0
    total_bytes: int = 0
    last_physical_offset: int = -1


class ConsumeUnit(NamedTuple):
    """One entry of a consume queue."""

    physical_offset: int
    size: int
    tag_code: int


class QueryResult(msgspec.Struct):
    """What a query by key found, and how far the index is."""

    records: list[memoryview]
    index_timestamp: Millis
    index_physical_offset: int


class LoadReport(msgspec.Struct):
    """How a store came up. `clean`: the last stop was a clean one."""

    clean: bool
    min_offset: int
    max_offset: int
    truncated_bytes: int
    notes: list[str]


# ---- events that come back through Feed ----


class StoreEvent:
    """Goes to `MessageStore.handle`."""

    __slots__ = ()


class Flushed(StoreEvent):
    """The log is durable up to `upto`; `timestamp` is the store time of the last record before it, `cuts` how often the
    log had been cut when the flush was asked for."""

    __slots__ = ("cuts", "timestamp", "upto")

    def __init__(self, upto: int, timestamp: Millis, cuts: int = 0) -> None:
        self.upto = upto
        self.timestamp = timestamp
        self.cuts = cuts


class PieceFlushed(StoreEvent):
    """A part of a round that flushes consume queues and index is durable."""

    __slots__ = ()


class CheckpointSaved(StoreEvent):
    """A checkpoint is durable: the next recovery needs nothing before `replay_from`, and has to find the log up to
    `log_end`."""

    __slots__ = ("log_end", "replay_from")

    def __init__(self, replay_from: int, log_end: int) -> None:
        self.replay_from = replay_from
        self.log_end = log_end


class Removed(StoreEvent):
    """The removal of an old log file is durable, so the next one may go."""

    __slots__ = ()
