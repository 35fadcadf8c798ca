"""The epochs of one log: who wrote which bytes, and up to where two logs are the same (ha-autoswitch.md §5, §6).

    entries ascend in epoch and in start; entry i owns [start i, start i+1), the last one all that follows

Bytes of one epoch were written by one master, so two logs that have the same entry (epoch and start) have the same
bytes from there on, up to where one of them ends or begins another epoch.

An entry stands in the file before the first byte of its epoch stands in the log: the other way round a crash would
leave bytes that count as an older epoch's, and a comparison would take them for equal to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Effect, SaveState
from perseid.disk.port import Disk
from perseid.wire.ha_auto import NO_EPOCH, EpochEntry, decode_epoch_file, encode_epoch_file

PATH = "epochFileCheckpoint"
BACKUP = PATH + ".bak"
OPEN_END = 1 << 62


class Epochs:
    """The epochs of our log, and their file."""

    def __init__(self, entries: Sequence[EpochEntry] = ()) -> None:
        self.entries: list[EpochEntry] = list(entries)
        self.lost = False
        """There was no file, or none that could be read."""

    # ---- the file ----

    def load(self, disk: Disk) -> list[str]:
        """Take in the file, or the `.bak` that the original keeps, when the file can't be read; what people are told.
        Without any the log counts as one whose epochs nobody knows."""
        notes: list[str] = []
        self.lost = True
        for path in (PATH, BACKUP):
            text = disk.read(path)
            if text is None:
                continue
            try:
                self.entries = decode_epoch_file(text)
            except RemoteProtocolError as error:
                notes.append(f"{path}: {error}")
                continue
            self.lost = False
            if self.entries or path == BACKUP:
                break
        if notes and not self.entries:
            notes.append(f"{PATH}: nobody knows which master wrote our log; it is copied anew when it can be")
        return notes

    def save(self, disk: Disk, then: list[Effect]) -> SaveState:
        """Make the file say what is here, durably, then `then`. The original's `.bak` would bring back what was
        dropped, where the file is empty (B12)."""
        self.lost = False
        disk.remove(BACKUP)
        return SaveState(PATH, encode_epoch_file(self.entries), then)

    # ---- looking ----

    @property
    def last(self) -> int:
        """The last epoch that is known; -1: none is."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def at_end(self, end: int) -> int:
        """The epoch of the last byte of a log that ends at `end`; that of the first entry for bytes before it; -1:
        there is none."""
        owned = [entry.epoch for entry in self.entries if entry.start < end]
        return owned[-1] if owned else NO_EPOCH

    def owner(self, offset: int) -> tuple[EpochEntry, int]:
        """The entry that owns a byte, and where its epoch ends. Bytes before the first entry count as its own: the
        log is older than its epochs."""
        found, end = self.entries[-1], OPEN_END
        if found.start <= offset:  # nearly always
            return found, end
        found = self.entries[0]
        for entry, after in pairwise((*self.entries, EpochEntry(0, OPEN_END))):
            if entry.start > offset:
                break
            found, end = entry, after.start
        if offset < self.entries[0].start:
            end = self.entries[0].start
        return found, end

    # ---- changing ----

    def begin(self, epoch: int, end: int) -> None:
        """We are the master of `epoch`, whose first byte will be that at `end`. Epochs of which we have no byte go:
        their entries would say that what we write is theirs."""
        self.entries = [entry for entry in self.entries if entry.start < end and entry.epoch < epoch]
        self.entries.append(EpochEntry(epoch, end))

    def drop_before(self, offset: int) -> bool:
        """Forget the epochs all of whose bytes stand before `offset`; did that change anything?"""
        kept = [
            entry for entry, after in pairwise((*self.entries, EpochEntry(0, OPEN_END))) if after.start > offset
        ]  # fmt: skip
        changed = kept != self.entries
        self.entries = kept
        return changed

    def adopt(self, theirs: Sequence[EpochEntry], upto: int) -> bool:
        """Our log is the master's up to `upto`, and goes on as the master's does; did that change anything?

        Of our own entries those before `upto` stay, and that at `upto` if the master has the same. Of the master's
        those come that are newer."""
        kept = [entry for entry in self.entries if entry.start < upto or (entry.start == upto and entry in theirs)]
        for entry in theirs:
            if not kept or (entry.epoch > kept[-1].epoch and entry.start > kept[-1].start):
                kept.append(entry)
        changed = kept != self.entries
        self.entries = kept
        return changed

    def validate(self) -> None:
        """AssertionError unless epochs and starts ascend."""
        for entry, after in pairwise(self.entries):
            assert entry.epoch < after.epoch and entry.start < after.start, self.entries


def consistent_point(
    ours: Sequence[EpochEntry], our_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> int:
    """Up to where a slave's log is its master's, by their epochs; -1: they have none in common."""
    their_ends = dict(zip(theirs, _ends(theirs, their_end), strict=True))
    for entry, end in reversed(list(zip(ours, _ends(ours, our_end), strict=True))):
        if entry in their_ends:
            return min(end, their_ends[entry])
    return -1


def _ends(entries: Sequence[EpochEntry], end: int) -> list[int]:
    """Where each epoch ends, in a log that ends at `end`."""
    starts = [entry.start for entry in entries]
    return [*starts[1:], max(starts[-1], end)] if starts else []
