"""The log of a member as the protocol sees it, and one that is kept in memory (storeType=MEMORY).

    begin ≤ durable ≤ end        begin = end + 1: it is empty        entries begin … end have the terms that they were
    made in

`durable` is what an answer may stand for. A log is appended to, and cut; what is cut is gone before anything is
written in its place (`cut` returns the effects that make sure of that).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perseid.base.errors import StoreError
from perseid.base.machine import Buffer, Effect
from perseid.raft.runs import Run, Text, runs
from perseid.wire.dledger import Entry

EMPTY = -1
FLUSH_PAUSE_MS = 10
"""Between the starts of flushes that nobody waits for, as the original has it."""


class LogRefused(StoreError):
    """An entry that can't stand where it wants to; nothing has happened."""


class Mark(NamedTuple):
    """What a flush covers: entries up to `end`, and so many cuts."""

    end: int
    cuts: int


class RaftLog(Protocol):
    """What election and push need of a log."""

    @property
    def begin(self) -> int:
        """Of the first entry; 0 as long as there was none."""

    @property
    def end(self) -> int:
        """Of the last entry; one less than `begin`: there is none."""

    @property
    def end_term(self) -> int:
        """The last entry's; -1: there is none."""

    @property
    def durable(self) -> int:
        """Entries up to this one survive a power cut."""

    def load(self, trusted: int, *, checked: bool = False) -> list[str]:
        """Take in what is on the disk, of which entries up to `trusted` are known to be durable; notes about the
        rest. `checked`: all of it was written with checksums."""

    def append(self, term: int, body: bytes) -> Entry:
        """A new entry at the end. LogRefused: it is too long, or there is no room."""

    def put(self, entry: Entry) -> None:
        """A leader's entry at the end. LogRefused: it does not fit there, or there is no room."""

    def fits(self, run: Run) -> bool:
        """Are these the next entries, and do they stand where they would here?"""

    def extend(self, run: Run) -> None:
        """Put a run that fits at the end. LogRefused: there is no room, and nothing has happened."""

    def get(self, index: int) -> Entry | None:
        """An entry; None when the log has not got it."""

    def text(self, index: int, most: int) -> Text:
        """The entries from `index` on, which is there, as a push has them: so many as begin before `most` bytes of them
        are over, or fewer."""

    def term_of(self, index: int) -> int:
        """The term of an entry that is there; -1 of none."""

    def cut(self, index: int) -> None:
        """Take away all entries from `index` on. Nothing may be put before a flush that was asked for later has
        ended."""

    @property
    def cutting(self) -> bool:
        """Was something cut that no flush has covered yet?"""

    def mark(self) -> Mark:
        """What a flush covers that is asked for now."""

    def flush(self, then: list[Effect]) -> list[Effect]:
        """Make all that was written durable, then `then`."""

    def flushed(self, mark: Mark) -> None:
        """A flush has ended that was asked for at `mark`."""


class MemoryLog:
    """A log that ends with its process. It calls itself durable: nothing more can be had of it."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.begin = 0
        self._pos = 0
        self._runs = runs()

    @property
    def end(self) -> int:
        return len(self._entries) - 1

    @property
    def durable(self) -> int:
        return self.end

    @property
    def end_term(self) -> int:
        return self._entries[-1].term if self._entries else EMPTY

    def load(self, trusted: int, *, checked: bool = False) -> list[str]:
        return []

    def append(self, term: int, body: bytes) -> Entry:
        entry = Entry(self.end + 1, term, self._pos, body)
        self.put(entry)
        return entry

    def put(self, entry: Entry) -> None:
        if (entry.index, entry.pos) != (self.end + 1, self._pos):
            raise LogRefused(f"entry {entry.index} at {entry.pos}: {self.end + 1} at {self._pos} is the next")
        self._entries.append(entry)
        self._pos += entry.disk_bytes

    def fits(self, run: Run) -> bool:
        return (run.index, run.pos) == (self.end + 1, self._pos) and run.term >= self.end_term

    def extend(self, run: Run) -> None:
        for entry in run.entries():
            self.put(entry)

    def text(self, index: int, most: int) -> Text:
        found: list[Buffer] = []
        stop = self._entries[index].pos + most
        while index <= self.end and self._entries[index].pos < stop:
            found += self._entries[index].encode()
            index += 1
        return self._runs.text(b"".join(found), most)

    def get(self, index: int) -> Entry | None:
        return self._entries[index] if 0 <= index <= self.end else None

    def term_of(self, index: int) -> int:
        return self._entries[index].term if 0 <= index <= self.end else EMPTY

    def cut(self, index: int) -> None:
        self._pos = self._entries[index].pos if index <= self.end else self._pos
        del self._entries[index:]

    @property
    def cutting(self) -> bool:
        return False

    def mark(self) -> Mark:
        return Mark(self.end, 0)

    def flush(self, then: list[Effect]) -> list[Effect]:
        return then

    def flushed(self, mark: Mark) -> None: ...
