"""Which broker a lite topic belongs to: the same answer as the original's, so that clients and brokers agree.

The parent's queues that can be written to, in the order of a producer, are buckets of Guava's consistent hash; the hash
is that of Java's String.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from perseid.wire.hashing import java_hash

T = TypeVar("T")
_MASK = (1 << 64) - 1
_MULTIPLIER = 2_862_933_555_777_941_757


def bucket(hash_code: int, count: int) -> int:
    """The bucket of a 64-bit hash among so many (Lamping and Veach's jump hash, as Guava computes it)."""
    state = hash_code & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        part = (state >> 33) + 1  # Guava's is 32 bits: the highest is below 0
        if part == 1 << 31:
            return candidate
        following = int((candidate + 1) / (part / 2_147_483_648.0))
        if not 0 <= following < count:
            return candidate
        candidate = following


def place_of(lite_topic: str, writable: Sequence[T]) -> T:
    """The queue that a lite topic's messages go to, of all that can be written to (at least one), or whatever stands
    for each of them: its broker's name."""
    return writable[bucket(java_hash(lite_topic), len(writable))]
