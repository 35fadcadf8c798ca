"""The timer checkpoint, `config/timercheck`: how far the timers were when their files were last durable.

The original keeps 56 bytes at the start of a file of 4096 in place; here it is replaced whole. Code 60 answers the same
56 bytes.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer, Millis

PATH = "config/timercheck"
FILE_BYTES = 4096
_FIELDS = Struct(">qqqqqqq")
_OLD = Struct(">qqqq")
"""Without the version, as it was at first."""
BYTES = _FIELDS.size


class TimerCheckpoint(msgspec.Struct):
    """Offsets in the timer topic's queue, and times."""

    read_ms: Millis = 0
    """Messages before `master_offset` whose slot is earlier than this are delivered."""
    log_end: int = 0
    """The timer log is durable up to here, and the wheel has its units."""
    queue_offset: int = 0
    """The units before `log_end` are those of the messages before it."""
    master_offset: int = 0
    """How far the master has taken messages in."""
    state_version: int = 0
    timestamp: Millis = 0
    counter: int = 0


def encode(checkpoint: TimerCheckpoint) -> bytes:
    """The 56 bytes."""
    return _FIELDS.pack(*msgspec.structs.astuple(checkpoint))


def decode(data: Buffer) -> TimerCheckpoint:
    """What a file, or an answer, says. RemoteProtocolError when it is too short, or a number is below 0."""
    if len(data) >= _FIELDS.size:
        fields = _FIELDS.unpack_from(data)
    elif len(data) >= _OLD.size:
        fields = (*_OLD.unpack_from(data), 0, 0, 0)
    else:
        raise RemoteProtocolError(f"a timer checkpoint of {len(data)} bytes; {_FIELDS.size} are wanted")
    if min(fields[:4]) < 0:
        raise RemoteProtocolError(f"a timer checkpoint with a number below 0: {fields[:4]}")
    return TimerCheckpoint(*fields)
