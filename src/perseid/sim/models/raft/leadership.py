"""Who leads a Raft group.

R1  a term has one leader      R2  a member votes once a term      R3  terms on disk never fall
"""

from __future__ import annotations

from perseid.sim.promises import Violation


class Leadership:
    """The terms of one run."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        """By term."""
        self._votes: dict[tuple[str, int], str] = {}
        """Member and term → candidate."""
        self._saved_terms: dict[str, int] = {}

    def leads(self, name: str, term: int) -> None:
        """A member is elected: R1."""
        leader = self.leaders.setdefault(term, name)
        if leader != name:
            raise Violation("R1", f"{leader} and {name} lead in term {term}")

    def votes(self, name: str, term: int, candidate: str) -> None:
        """A member gives its vote: R2."""
        before = self._votes.setdefault((name, term), candidate)
        if before != candidate:
            raise Violation("R2", f"{name} voted for {before} and {candidate} in term {term}")

    def saved(self, name: str, term: int) -> None:
        """A member's term is durable."""
        self._saved_terms[name] = max(self._saved_terms.get(name, 0), term)

    def starts(self, name: str, term: int) -> None:
        """A member has read its term: R3."""
        saved = self._saved_terms.get(name, 0)
        if term < saved:
            raise Violation("R3", f"{name}: term {saved} was on disk, {term} is")
