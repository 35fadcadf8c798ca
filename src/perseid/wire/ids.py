"""Message ids: where a message is stored, and who made it."""

from __future__ import annotations

from datetime import UTC, datetime
from struct import Struct, pack

from perseid.base.errors import RemoteProtocolError
from perseid.wire.host import Host

_PORT_AND_OFFSET = Struct(">iq")


def offset_message_id(host: Host, physical_offset: int) -> str:
    """The id that a broker gives: upper-case hex of ip, port and physical offset; 32 or 56 digits."""
    return (host[0] + _PORT_AND_OFFSET.pack(host[1], physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[Host, int]:
    """The store's host and the physical offset of an id; RemoteProtocolError when it is none."""
    if len(text) not in (32, 56):
        raise RemoteProtocolError(f"not a message id (32 or 56 hex digits): {text[:80]!r}")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(text):
        raise RemoteProtocolError(f"not a message id (32 or 56 hex digits): {text[:80]!r}")
    port, offset = _PORT_AND_OFFSET.unpack_from(raw, len(raw) - 12)
    if not 0 <= port <= 65535 or offset < 0:
        raise RemoteProtocolError(f"not a message id (port {port}, offset {offset}): {text}")
    return Host(raw[:-12], port), offset


class UniqueIds:
    """Makes the ids (UNIQ_KEY) that a client gives to its messages.

    Hex of ip (4 or 16), pid (2), `salt` (4: Java's class loader hash; here a number drawn by the caller),
    milliseconds since the month began in UTC (4), counter (2). Unique for 65536 ids a millisecond.
    """

    def __init__(self, ip: bytes, pid: int, salt: int, counter: int = 0) -> None:
        self._prefix = (ip + pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()
        self._counter = counter
        self._month_start = 0
        self._month_end = 0
        self._last_ms = -1
        self._stem = ""
        """Of all ids of the last millisecond."""

    def next(self, now: int) -> str:
        """A new id; `now` in milliseconds since the Unix epoch."""
        stem, counter = self.ahead(now)
        self._counter = counter + 1
        return f"{stem}{counter:04X}"

    def ahead(self, now: int) -> tuple[str, int]:
        """What the ids that are made at `now` begin with, and the counter of the next one, which is their end."""
        if now != self._last_ms:
            if not self._month_start <= now < self._month_end:
                self._month_start, self._month_end = _month_of(now)
            self._last_ms, self._stem = now, f"{self._prefix}{now - self._month_start:08X}"
        return self._stem, self._counter & 0xFFFF

    def pass_over(self, count: int) -> None:
        """So many ids were made by another hand, out of what `ahead` said."""
        self._counter += count


def _month_of(now: int) -> tuple[int, int]:
    first = datetime.fromtimestamp(now / 1000, tz=UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() * 1000), int(after.timestamp() * 1000)
