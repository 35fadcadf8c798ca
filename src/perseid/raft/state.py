"""What a member is: its role, its term and its vote; and the small file that both are kept in.

    CANDIDATE → LEADER, FOLLOWER;  FOLLOWER → CANDIDATE;  LEADER → CANDIDATE

A role changes in `Member.become`, and nowhere else. Terms only rise. A vote is given once a term, and kept: what
depends on a term or a vote leaves behind the `SaveState` that keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from perseid.base.errors import StoreError
from perseid.base.machine import Effect, SaveState
from perseid.disk.port import Disk

VOTE_FILE = "currterm"
MAX_TERM = 1 << 62
"""The original's terms are int64: a member with a higher one than this has little left to count to."""
LEFT_BEHIND = (".tmp", ".bak")
"""What the original leaves beside the file, and nothing else when it dies between its delete and its rename."""


class RaftEvent:
    """What comes back to a member from its own effects; a host hands it on."""

    __slots__ = ()


class Role(Enum):
    """What a member is in its term."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(slots=True)
class Member:
    """One member of a group."""

    group: str
    self_id: str
    peers: dict[str, str]
    role: Role = Role.CANDIDATE
    term: int = 0
    vote: str | None = None
    leader: str | None = None
    known_max_term: int = -1
    transferee: str | None = None
    term_to_take: int = -1
    """In that term this member takes the leadership over."""
    changed: Callable[[], None] = lambda: None
    """Called after each change of role, leader or term of a role."""
    live: dict[str, bool] = field(default_factory=dict)
    folder: str = ""
    """Of the file, with a `/` at its end."""

    @property
    def others(self) -> list[str]:
        return [peer for peer in self.peers if peer != self.self_id]

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def quorum(self) -> int:
        return len(self.peers) // 2 + 1

    def become(self, role: Role, term: int, leader: str | None = None) -> None:
        """The one place where a role changes. A candidate's `term` only makes known that there is such a term."""
        if role is Role.CANDIDATE:
            assert term >= self.term, f"a candidate of term {term} in term {self.term}"
            self.known_max_term = max(self.known_max_term, term)
        else:
            assert term == self.term, f"{role.value} of term {term} in term {self.term}"
        assert role is not Role.LEADER or self.role is Role.CANDIDATE, f"a {self.role.value} becomes leader"
        same = (role, leader) == (self.role, self.leader)
        self.role, self.leader = role, leader
        self.transferee = None
        if role is Role.LEADER:
            self.live.clear()
        if not same:
            self.changed()

    def next_term(self) -> int:
        """The term that a candidate goes to: the highest that is known, or one more."""
        assert self.role is Role.CANDIDATE, f"a {self.role.value} raises its term"
        self.term = max(self.known_max_term, self.term + 1) if self.known_max_term > self.term else self.term + 1
        self.vote = None
        return self.term

    # ---- the file ----

    def load(self, disk: Disk) -> str:
        """Take in term and vote; a note about what was found, "" when all is well. StoreError when nothing can be
        read."""
        path = self.folder + VOTE_FILE
        text = disk.read(path)
        if text is not None:
            self.term, self.vote = parse_vote(text, path)
            if not 0 <= self.term <= MAX_TERM:
                raise StoreError(
                    f"{path}: term {self.term} is none that elections came to: somebody made it up. Stop all members, "
                    f"and give all of them one new term with `perseid admin raft-term` (docs/raft.md)"
                )
            return ""
        found = []
        for suffix in LEFT_BEHIND:
            left = disk.read(path + suffix)
            with suppress(StoreError):  # half a file of a save that never ended: nothing left behind it
                found += [parse_vote(left, path + suffix)] if left is not None else []
        if not found:
            return ""
        self.term, self.vote = max(found, key=lambda pair: pair[0])
        return f"{path} is missing; term {self.term} comes from what a crash left beside it"

    def save(self, then: list[Effect]) -> SaveState:
        """Keep term and vote."""
        return SaveState(self.folder + VOTE_FILE, vote_text(self.term, self.vote), then)


def vote_text(term: int, vote: str | None) -> bytes:
    """The file's text."""
    return f"voteLeader={vote or ''}\ncurrTerm={term}\n".encode()


def parse_vote(data: bytes, path: str) -> tuple[int, str | None]:
    """Term and vote of the file's text (Java properties)."""
    values = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key.strip()] = value.strip()
    try:
        return int(values["currTerm"]), values.get("voteLeader") or None
    except (KeyError, ValueError):
        raise StoreError(
            f"{path}: no term can be read in it ({data[:60]!r}); this member may have voted already: restore the file, "
            f"or remove this member's whole folder and let it copy the log anew"
        ) from None
