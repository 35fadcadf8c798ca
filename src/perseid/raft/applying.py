"""A state machine on the log: it is given each committed entry once in a life, in order, and its state is kept now and
then, so that a start has less to read (dledger.md §8).

    applied ≤ committed;   after each turn they are equal

A snapshot is this member's own: the file `state.snapshot` beside its log, a line of JSON and the machine's bytes. No
entry goes because of it, and none is sent to others: the original's snapshots have no data, and a member that got less
than the whole log from one would lack the rest for ever. A snapshot that does not fit the log is not used; then all is
applied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from perseid.base.errors import StoreError
from perseid.base.machine import Feed, SaveState
from perseid.disk.port import Disk
from perseid.raft.log import RaftLog
from perseid.raft.state import RaftEvent
from perseid.wire.dledger import Entry
from perseid.wire.hashing import crc32_raw

SNAPSHOT = "state.snapshot"
MAX_HEAD_BYTES = 200


class StateMachine(Protocol):
    """What a host keeps by its group's entries."""

    def apply(self, entry: Entry) -> None:
        """An entry is committed. Never raises: what it can't read it passes over, as every other member does."""

    def snapshot(self) -> bytes:
        """All of the state."""

    def restore(self, data: bytes) -> None:
        """Be what `snapshot` once was."""


class Head(msgspec.Struct, rename="camel"):
    """The first line of a snapshot, as the original writes it."""

    last_included_index: int
    last_included_term: int
    crc: int
    """Of the state."""


@dataclass(slots=True)
class Kept(RaftEvent):
    """Fed back when a snapshot is on disk."""

    index: int


class Applier:
    """Applies entries, and keeps snapshots."""

    def __init__(self, machine: StateMachine, log: RaftLog, folder: str, threshold: int) -> None:
        """`threshold`: a snapshot is kept after so many entries."""
        self._machine = machine
        self._log = log
        self._threshold = threshold
        self.path = folder + SNAPSHOT
        self.applied = -1
        self._kept = -1
        self._keeping = False

    def load(self, disk: Disk, committed: int) -> str:
        """Take up what was kept; a note, "" for none. StoreError: entries are gone that no snapshot has."""
        data, note = disk.read(self.path), ""
        if data is not None:
            note = self._restore(data, committed)
        if self._log.begin > self.applied + 1:
            raise StoreError(
                f"{self.path}: the log begins with entry {self._log.begin}, and no snapshot has what was before: copy "
                "the folder of another member here, but for its vote and term"
            )
        return note

    def _restore(self, data: bytes, committed: int) -> str:
        line, _, state = data.partition(b"\n")
        try:
            head = msgspec.json.decode(line[:MAX_HEAD_BYTES], type=Head)
        except msgspec.MsgspecError as error:
            return f"{self.path} is no snapshot ({error}): all entries are applied again"
        index = head.last_included_index
        if crc32_raw(state) != head.crc:
            return f"{self.path} does not match its checksum: all entries are applied again"
        known = self._log.term_of(index) if index >= self._log.begin else head.last_included_term
        if known != head.last_included_term or index < 0:
            return f"{self.path} is of another log, up to entry {index}: all entries are applied again"
        self._machine.restore(state)
        self.applied = self._kept = index
        return f"state up to entry {index} is taken from {self.path}"

    def advance(self, committed: int) -> None:
        """Apply what is committed."""
        while self.applied < committed:
            entry = self._log.get(self.applied + 1)
            assert entry is not None, f"entry {self.applied + 1} is committed and not there"
            self._machine.apply(entry)
            self.applied += 1

    def keep(self) -> SaveState | None:
        """The save of a snapshot, if one is due."""
        if self._keeping or self.applied - self._kept < self._threshold:
            return None
        self._keeping = True
        state = self._machine.snapshot()
        head = msgspec.json.encode(Head(self.applied, self._log.term_of(self.applied), crc32_raw(state)))
        return SaveState(self.path, head + b"\n" + state, [Feed(Kept(self.applied))])

    def kept(self, event: Kept) -> None:
        """A snapshot is on disk."""
        self._kept, self._keeping = event.index, False

    def failed(self) -> None:
        """It could not be kept; the next one comes after as many entries again."""
        self._kept, self._keeping = self.applied, False
