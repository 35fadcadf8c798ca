"""The classic HA stream between a master and a slave, on its own port.

    slave → master   report   offset 8                     the end of the slave's log; the first one is a request
    master → slave   packet   offset 8, size 4, body       bytes of the log from `offset` on; no body: a heartbeat

Big endian, nothing around it: no magic, no version, no checksum. Source: ha-classic.md §3.
"""

from __future__ import annotations

from struct import Struct

from perseid.base.machine import Buffer

REPORT_BYTES = 8
HEADER_BYTES = 12
_REPORT = Struct(">q")
_HEADER = Struct(">qi")


def encode_report(offset: int) -> bytes:
    """A report of a log that ends at `offset`."""
    return _REPORT.pack(offset)


def decode_report(data: Buffer, at: int = 0) -> int:
    """The offset that 8 bytes tell; whatever a stranger sent, negative ones too."""
    offset: int = _REPORT.unpack_from(data, at)[0]
    return offset


def encode_header(offset: int, size: int) -> bytes:
    """What stands before `size` bytes of the log from `offset` on; size 0: a heartbeat."""
    return _HEADER.pack(offset, size)


def decode_header(data: Buffer, at: int = 0) -> tuple[int, int]:
    """Offset and size that 12 bytes tell; whatever a stranger sent, negative ones too."""
    offset, size = _HEADER.unpack_from(data, at)
    return offset, size
