"""The logs of a broker set, as hashes: whether two of them are equal up to a place is one comparison.

Each record's end has a hash that covers all bytes before it. What a disk is written is seen by the disk itself
(`SimDisk.wrote`), so a cut that nobody tells of is seen too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

from perseid.sim.disk import SimDisk
from perseid.sim.models.broker.slaves import LOG_FOLDER, log_bytes
from perseid.sim.promises import Violation

NOWHERE = 1 << 62
BLANK_BYTES = 8
BLANK_MAGIC = 0xCBD43194

Epoch = tuple[int, int]
"""Epoch and start of an entry."""


class Chain:
    """The log of one broker."""

    def __init__(self, disk: SimDisk, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self.start = 0
        """Where it begins; the first of `ends`, if that is not 0."""
        self.ends: list[int] = []
        self.hashes: list[bytes] = []
        self.dirty = 0
        self.watch(disk)

    def watch(self, disk: SimDisk) -> None:
        """From now on it is the log on this disk."""
        self._disk = disk
        self.dirty = 0
        disk.wrote = self._wrote

    def begin(self, start: int, digest: bytes) -> None:
        """It is empty, and goes on from `start`; what stood before has this hash."""
        self.start = self.dirty = start
        self.ends, self.hashes = ([start], [digest]) if start else ([], [])

    def _wrote(self, path: str, offset: int) -> None:
        folder, _, name = path.rpartition("/")
        if folder == LOG_FOLDER:
            self.dirty = min(self.dirty, int(name) + offset)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def at(self, end: int) -> bytes | None:
        """The hash of all up to `end`; None when no record ends there. b"" of nothing."""
        if not end:
            return b""
        place = bisect_right(self.ends, end) - 1
        return self.hashes[place] if place >= 0 and self.ends[place] == end else None

    def is_as_it_was(self, start: int, end: int) -> bool:
        """Does the log begin and end where it did at the last look, and was nothing written before its end?"""
        if start != self.start or self.dirty < end or end != self.end:
            return False
        self.dirty = NOWHERE
        return True

    def follow(self, end: int) -> int:
        """Look at the disk again: the log ends at `end` now. From where on it is another one than at the last look;
        NOWHERE if it has only grown, or is as it was."""
        keep = bisect_right(self.ends, max(self.start, min(self.dirty, end)))
        before = list(zip(self.ends[keep:], self.hashes[keep:], strict=True))
        del self.ends[keep:], self.hashes[keep:]
        self.dirty = NOWHERE
        at = self.end
        data = log_bytes(self._disk, self.file_bytes, at, end) if end > at else b""
        if data is None:
            raise Violation("a log has its files", f"[{at}, {end}) can't be read")
        self._extend(at, data)
        for place, (old, digest) in enumerate(before, keep):
            if place >= len(self.ends) or self.ends[place] != old or self.hashes[place] != digest:
                return before[place - keep - 1][0] if place > keep else (self.ends[keep - 1] if keep else 0)
        return NOWHERE

    def _extend(self, at: int, data: bytes) -> None:
        begin = 0
        while begin + BLANK_BYTES <= len(data):
            size = int.from_bytes(data[begin : begin + 4], "big")
            blank = int.from_bytes(data[begin + 4 : begin + 8], "big") == BLANK_MAGIC
            if size < BLANK_BYTES or begin + size > len(data):
                break
            bytes_of = data[begin : begin + (BLANK_BYTES if blank else size)]
            before = self.hashes[-1] if self.hashes else b""
            begin += size
            self.ends.append(at + begin)
            self.hashes.append(blake2b(before + bytes_of, digest_size=12).digest())


class LogHistories:
    """C9: two logs with the same entry, epoch and start, have the same bytes as far as both go."""

    def __init__(self) -> None:
        self.met: dict[tuple[Epoch, int], tuple[bytes, str]] = {}

    def check(self, name: str, chain: Chain, epochs: Sequence[Epoch], begin: int) -> None:
        """Records that end behind `begin` came, or count as of another epoch than before."""
        if not epochs:
            return
        owner, after = 0, max(bisect_right(chain.ends, begin), int(chain.start > 0))
        for place in range(after, len(chain.ends)):
            first = chain.ends[place - 1] if place else 0
            while owner + 1 < len(epochs) and epochs[owner + 1][1] <= first:
                owner += 1
            if epochs[owner][1] > first:
                continue  # older than all epochs that are known
            key = epochs[owner], chain.ends[place]
            known, who = self.met.setdefault(key, (chain.hashes[place], name))
            if known != chain.hashes[place]:
                epoch, start = epochs[owner]
                raise Violation("C9", f"{name} and {who} differ before {chain.ends[place]}, epoch {epoch} from {start}")
