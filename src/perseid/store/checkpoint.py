"""The checkpoint: how far log, queues and index are known to be durable.

The original keeps five numbers at the start of a file of 4096 bytes. A recovery has to begin at a file
whose first record is older than the oldest of the first two, less three seconds. Perseid adds the exact
offsets behind them, where the original neither reads nor writes, with a checksum over both: once the
original has used the folder, its numbers are newer, the checksum fails and the rule of times counts again.

It is written whole (`SaveState`): a torn checkpoint would be worse than an old one.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from perseid.base.machine import Millis
from perseid.wire.hashing import crc32

PATH = "checkpoint"
FILE_BYTES = 4096
SLACK_MS = 3_000

_FIELDS = Struct(">qqqqq")
_EXACT = Struct(">8sqqqq")
_CRC = Struct(">i")
_MARK = b"PERSEID1"
_CRC_AT = _FIELDS.size + _EXACT.size


class Checkpoint(msgspec.Struct):
    """`log_end` and `replay_from` are -1 when the original wrote the file, or when there is none."""

    log_timestamp: Millis = 0
    queues_timestamp: Millis = 0
    index_timestamp: Millis = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    log_end: int = -1
    """The log is durable up to here."""
    replay_from: int = -1
    """Log, consume queues and index are durable for all records before this offset."""
    last_record: int = -1
    """Where the last append before `replay_from` began: a recovery looks at it again."""
    index_end: int = -1
    """The newest record of which the index has durable entries; -1: none."""

    @property
    def min_timestamp(self) -> Millis:
        return max(min(self.log_timestamp, self.queues_timestamp) - SLACK_MS, 0)


def encode(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    c = checkpoint
    head = _FIELDS.pack(
        c.log_timestamp, c.queues_timestamp, c.index_timestamp, c.master_flushed_offset, c.confirm_offset
    )
    if c.log_end >= 0:
        head += _EXACT.pack(_MARK, c.log_end, c.replay_from, c.last_record, c.index_end)
        head += _CRC.pack(crc32(head))
    return head.ljust(FILE_BYTES, b"\0")


def decode(data: bytes | None) -> Checkpoint:
    """What a checkpoint file says; a missing or short one says nothing."""
    if data is None or len(data) < _FIELDS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_FIELDS.unpack_from(data))
    if len(data) >= _CRC_AT + _CRC.size and _CRC.unpack_from(data, _CRC_AT)[0] == crc32(data[:_CRC_AT]):
        mark, *offsets = _EXACT.unpack_from(data, _FIELDS.size)
        if mark == _MARK and 0 <= offsets[1] <= offsets[0]:
            c = checkpoint
            c.log_end, c.replay_from, c.last_record, c.index_end = offsets
    return checkpoint
