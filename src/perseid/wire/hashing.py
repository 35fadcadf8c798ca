"""Hashes and checksums that Java peers compute too."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from perseid.base.machine import Buffer

crc32_raw: Callable[[Buffer], int]
"""The plain unsigned CRC32."""

try:
    from isal import isal_zlib

    crc32_raw = isal_zlib.crc32
except ImportError:  # no wheel for this machine: the same checksum, five times slower
    import zlib

    crc32_raw = zlib.crc32


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, wrapped to int32."""
    h = 0
    if text.isascii():
        for byte in text.encode():
            h = (31 * h + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - 0x100000000 if h & 0x80000000 else h


@lru_cache(maxsize=8192)
def _cached_hash(tag: str) -> int:
    return java_hash(tag)


MAX_CACHED_TAG = 128
"""Longer tags are hashed anew each time, so that the cache stays small."""


def tag_code(tag: str | None) -> int:
    """The code of a tag in a consume queue unit: its hash, 0 for no tag."""
    if not tag:
        return 0
    return _cached_hash(tag) if len(tag) <= MAX_CACHED_TAG else java_hash(tag)


def crc32(data: Buffer) -> int:
    """CRC32 without its sign bit, as records and registrations carry it."""
    return crc32_raw(data) & 0x7FFFFFFF
