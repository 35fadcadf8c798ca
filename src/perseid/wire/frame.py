"""Finding whole frames in a stream of bytes.

    offset 0  length L of all that follows (= 4 + H + B)        4 bytes
           4  serializer                                        1
           5  header length H                                   3
           8  header                                            H
         8+H  body, may be empty                                B

A length that can't be true is refused as soon as the bytes show it, before anything is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The largest L that is accepted (com.rocketmq.remoting.frameMaxLength)."""

PREFIX_BYTES = 8
"""Length word and header word."""

MAX_HEADER_BYTES = 0xFFFFFF

_WORD = Struct(">I")
_word = _WORD.unpack_from
_words = Struct(">II").unpack_from


def complete(buf: Buffer, start: int = 0) -> int:
    """The end of the last whole frame in `buf` from `start` on; `start` when there is none.

    RemoteProtocolError when a frame, whole or not, has a length or a serializer that can't be.
    """
    total = len(buf)
    last = total - 8
    while start <= last:  # the usual frames: whole, and JSON, so that the header's word is its length
        length, header = _words(buf, start)
        end = start + 4 + length
        if end > total or header > length - 4 or length > MAX_FRAME_BYTES:
            break
        if end == total:
            return total
        start = end
    while True:
        rest = total - start
        if rest < 4:
            return start
        length = _word(buf, start)[0]
        if length > MAX_FRAME_BYTES or length < 4:
            raise RemoteProtocolError(f"a frame of {length} bytes: 4 to {MAX_FRAME_BYTES} are allowed")
        if rest >= 8:
            header = _word(buf, start + 4)[0]
            if header > 0x1FFFFFF:
                raise RemoteProtocolError(f"unknown serializer {header >> 24} of a frame's header")
            if header & 0xFFFFFF > length - 4:
                raise RemoteProtocolError(f"a header of {header & 0xFFFFFF} bytes in a frame of {length}")
        elif rest >= 5 and buf[start + 4] > 1:
            raise RemoteProtocolError(f"unknown serializer {buf[start + 4]} of a frame's header")
        if length > rest - 4:
            return start
        start += 4 + length


def missing(buf: Buffer, start: int = 0) -> int:
    """How many bytes at least are still needed to complete the frame that begins at `start`."""
    rest = len(buf) - start
    if rest < 4:
        return 4 - rest
    length: int = _word(buf, start)[0]
    return max(0, 4 + length - rest)


def split(data: Buffer) -> Iterator[memoryview]:
    """The whole frames in `data`, length words and all; RemoteProtocolError when bytes are left."""
    view = memoryview(data)
    start, total = 0, len(data)
    while start < total:
        end = start + 4 + _word(view, start)[0] if total - start >= 4 else total + 1
        if end > total:
            raise RemoteProtocolError(f"{total - start} bytes after the last whole frame")
        yield view[start:end]
        start = end
