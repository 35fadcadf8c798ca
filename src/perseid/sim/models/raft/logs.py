"""The logs of a Raft group's members.

R4   a leader's log only grows
R5   equal entries, equal logs before
R10  a start finds what was durable before it, and nothing that was not there

Each log has a chain: the hash of an entry covers all before it, so that two logs are equal up to an entry if its hash
is.
"""

from __future__ import annotations

from hashlib import blake2b

from perseid.raft.files import FileLog
from perseid.sim.promises import Violation
from perseid.wire.dledger import Entry


def link(before: bytes, entry: Entry) -> bytes:
    """The next hash of a chain."""
    head = f"{entry.index} {entry.term} {entry.pos}".encode()
    return blake2b(before + head + entry.body, digest_size=12).digest()


class LogMatching:
    """R5, for all members."""

    def __init__(self) -> None:
        self._chains: dict[tuple[int, int], bytes] = {}
        """(index, term) → the chain up to it."""

    def met(self, name: str, entry: Entry, digest: bytes) -> None:
        """An entry was put into a log, which has this hash then."""
        if self._chains.setdefault((entry.index, entry.term), digest) != digest:
            raise Violation("R5", f"{name}: entry {entry.index} of term {entry.term} follows on another log")


class LogChain:
    """One member's log, across its lives."""

    def __init__(self, name: str, matching: LogMatching) -> None:
        self.name, self._matching = name, matching
        self.hashes: list[bytes] = []
        """Of its log as it is, from entry 0 on."""
        self._durable: list[bytes] = []
        """Of what must be there after whatever happens."""
        self._whole: list[bytes] | None = None
        """Of what must be there after the death of the process alone; None: it died in the middle of a step."""
        self._trying: list[bytes] = []
        """The chain's next hash, while its entry is written."""
        self._cut_off: list[list[bytes]] = []
        """Chains before cuts that nothing has made durable yet: they may come back."""

    def loaded(self, log: FileLog) -> None:
        """A start has read its files: R10."""
        chain = self._durable[: log.begin]  # retention takes away what was durable, and nothing else
        if len(chain) < log.begin:
            raise Violation("R10", f"{self.name} begins with entry {log.begin}; what was durable were {len(chain)}")
        for index in range(log.begin, log.end + 1):
            entry = log.get(index)
            assert entry is not None
            chain.append(link(chain[-1] if chain else b"", entry))
        for what, before in (("what was durable", self._durable), ("what was written", self._whole or [])):
            if chain[: len(before)] != before:
                same = next((i for i, (a, b) in enumerate(zip(chain, before, strict=False)) if a != b), len(chain))
                raise Violation(
                    "R10", f"{self.name} found {len(chain)} entries; {what} were {len(before)}, equal to {same}"
                )
        last = self.hashes
        if not any(chain == known[: len(chain)] for known in (last + self._trying, *self._cut_off)):
            same = next((i for i, (a, b) in enumerate(zip(chain, last, strict=False)) if a != b), len(last))
            raise Violation(
                "R10", f"{self.name} found {len(chain)} entries that it never had so; {len(last)} were its last"
                f" ones, equal to {same}"
            )  # fmt: skip
        self.hashes = chain
        self._whole = None
        self._trying.clear()
        self._cut_off.clear()

    def appends(self, *entries: Entry) -> None:
        """Entries are about to be written, and perhaps in the place of others."""
        self._trying = []
        for entry in entries:
            self._trying.append(link((self._trying or self.hashes[-1:] or [b""])[-1], entry))
        self._cut_off.clear()

    def appended(self, *entries: Entry) -> None:
        """They are written: R5."""
        for entry, digest in zip(entries, self._trying, strict=True):
            self.hashes.append(digest)
            self._matching.met(self.name, entry, digest)
        self._trying.clear()

    def cut(self, index: int, *, leads_in: int | None) -> None:
        """The log is about to be cut: R4. `leads_in`: the term in which its member leads, if it does."""
        if leads_in is not None:
            raise Violation("R4", f"{self.name} leads in term {leads_in} and cuts its log at {index}")
        self._cut_off.append(list(self.hashes))
        del self.hashes[index:], self._durable[index:]
        self._whole = None

    def look(self, end: int, *, cutting: bool) -> bool:
        """After each event: the log ends with entry `end`, and a cut is under way, or none. Is it loaded?"""
        if len(self.hashes) != end + 1:
            return False
        if not cutting:
            self._cut_off.clear()
        return True

    def settled(self, durable: int) -> None:
        """Nothing is wrong with it after an event: entries up to `durable` have to be there from now on."""
        if durable >= len(self._durable):
            self._durable = self.hashes[: durable + 1]
        if self._whole is None or len(self._whole) != len(self.hashes):
            self._whole = list(self.hashes)

    def died_within_a_step(self) -> None:
        """What was written and is not durable may be gone."""
        self._whole = None
