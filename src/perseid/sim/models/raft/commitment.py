"""What a Raft group has committed.

R6  a leader has what earlier terms committed      R7  nothing else is committed at an index, and nothing is left out
R8  what is committed stays so, and is in the log  R9  what was acknowledged is committed
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.sim.promises import Violation


class Commitment:
    """The committed entries of one run, by any member."""

    def __init__(self) -> None:
        self.chain: list[bytes] = []
        """The hash of each entry and all before it."""
        self.bodies: list[bytes] = []
        self._terms: list[int] = []
        """In which term each was committed first."""

    def check_leader(self, name: str, term: int, chain: Sequence[bytes]) -> None:
        """A member is elected, with this log: R6."""
        must = sum(committed <= term for committed in self._terms)
        if chain[:must] != self.chain[:must]:
            raise Violation("R6", f"{name} leads in term {term} without all {must} that were committed by then")

    def check_counted(self, name: str, index: int, entry_term: int, term: int) -> None:
        """A leader commits an entry by its followers' answers: R6, it is of its own term."""
        if entry_term != term:
            raise Violation("R6", f"{name}: {index} of term {entry_term} is committed by counting")

    def check_commit(self, name: str, index: int, begin: int, chain: Sequence[bytes]) -> None:
        """A member with this log commits from `begin` up to `index`: R7, R8."""
        if index >= len(chain):
            raise Violation("R8", f"{name}: {index} is committed, the log ends at {len(chain) - 1}")
        if chain[begin : min(index + 1, len(self.chain))] != self.chain[begin : index + 1]:
            raise Violation("R7", f"{name}: other entries are committed between {begin} and {index}")

    def add(self, digest: bytes, body: bytes, term: int) -> None:
        """The next entry is committed for the first time."""
        self.chain.append(digest)
        self.bodies.append(body)
        self._terms.append(term)

    def check_state(self, name: str, count: int, digest: bytes) -> None:
        """A member has applied so many entries, which made this state: R7."""
        if count and digest != self.chain[count - 1]:
            raise Violation("R7", f"{name}: its state is not that of {count} committed entries")

    def check_index(self, name: str, before: int, index: int, end: int) -> None:
        """A member's committed index, and where its log ends: R8."""
        if index > end:
            raise Violation("R8", f"{name}: {index} is committed, the log ends at {end}")
        if index < before:
            raise Violation("R8", f"{name}: committed fell from {before} to {index}")

    def check_start(self, name: str, before: int, index: int) -> None:
        """A member starts with a committed index: R8, it knew that."""
        if index > before:
            raise Violation("R8", f"{name}: starts with {index} committed, {before} were")

    def check_client(self, index: int, body: bytes, what: str) -> None:
        """A client was told of an entry: R9."""
        if index >= len(self.bodies) or self.bodies[index] != body:
            raise Violation("R9", f"entry {index} was {what} and is not committed, or is another one")
