"""Message bodies compressed by producers. The sysFlag tells how; brokers store what they get.

    0x100 lz4 (frame format)    0x200 zstd    0x300 and 0 (old clients) zlib
"""

from __future__ import annotations

import sys
import zlib

import lz4.frame

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.wire.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300

DEFAULT_LEVEL = 5
MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of a body that is decompressed, unless the caller says otherwise."""

MAX_ZSTD_WINDOW_LOG = 27
"""What a zstd frame may ask us to keep in memory: 128 MiB, as the logarithm of base 2; the library's own limit."""


def flag_of(kind: int) -> int:
    """What a message that was compressed by `kind` (LZ4, ZSTD, ZLIB) has in its sysFlag."""
    return SYS_COMPRESSED | kind


def compress(body: Buffer, kind: int = ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """A body compressed by `kind`: LZ4, ZSTD or ZLIB, or a sysFlag that says so."""
    kind &= SYS_COMPRESSION_MASK
    if kind == LZ4:
        packed: bytes = lz4.frame.compress(bytes(body), compression_level=level)
        return packed
    if kind == ZSTD:
        packed = zstd.compress(bytes(body), level)
        return packed
    if kind in (ZLIB, 0):
        return zlib.compress(body, level)
    raise LocalProtocolError(f"unknown kind of compression {kind:#x}")


def decompress(body: Buffer, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The plain body of a message with this sysFlag; as it is when that says it is not compressed.

    RemoteProtocolError when it can't be decompressed, is cut off, or would be longer than `max_bytes`.
    """
    if not sys_flag & SYS_COMPRESSED:
        return bytes(body)
    kind = sys_flag & SYS_COMPRESSION_MASK
    try:
        if kind == LZ4:
            plain, whole = _lz4(bytes(body), max_bytes)
        elif kind == ZSTD:
            plain, whole = _zstd(bytes(body), max_bytes)
        elif kind in (ZLIB, 0):
            inflate = zlib.decompressobj()
            plain = inflate.decompress(body, max_bytes + 1)
            whole = inflate.eof
        else:
            raise RemoteProtocolError(f"a body compressed in an unknown way: {kind:#x}")
    except (zlib.error, RuntimeError, EOFError, ValueError, zstd.ZstdError) as error:
        raise RemoteProtocolError(f"a body that can't be decompressed: {error}") from None
    if len(plain) > max_bytes:
        raise RemoteProtocolError(f"a body of more than {max_bytes} bytes when decompressed")
    if not whole:
        raise RemoteProtocolError("a compressed body that is cut off")
    return plain


def _lz4(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    inflate = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = inflate.decompress(body, max_length=max_bytes + 1)
    return plain, inflate.eof


def _zstd(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    inflate = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW_LOG})
    plain: bytes = inflate.decompress(body, max_bytes + 1)
    return plain, inflate.eof
