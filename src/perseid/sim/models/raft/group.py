"""A Raft group in virtual time: 3 or 5 members, clients that append and read, and what must hold after every event.

R1  a term has one leader              R6  a leader has what earlier terms committed
R2  a member votes once a term         R7  nothing else is committed at an index, and nothing is left out
R3  terms on disk never fall           R8  what is committed stays so, and is in the log
R4  a leader's log only grows          R9  what was acknowledged is committed
R5  equal entries, equal logs before   R10 a start finds what was durable before it, and nothing that was not there

Each log has a chain: the hash of an entry covers all before it, so that two logs are equal up to an entry if its hash
is.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from random import Random
from typing import Any

from perseid.base.machine import Flush, SaveState
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import LISTENER, Raft
from perseid.raft.runs import Run
from perseid.raft.state import Role
from perseid.sim.disk import SimDisk
from perseid.sim.driver import NodeDriver
from perseid.sim.history import Violation
from perseid.sim.models.raft.strangers import Stranger
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.told import RAFT, besides
from perseid.wire.dledger import Entry

PORT = 20911
NAME = "g"
NAMED = 0.3
"""So many of the groups know their members by names."""
NAMELESS_MS = (1, 20_000)
"""So long, at the beginning of a life in some cases, names can't be resolved."""
FOLDERS = ("data", "index", "crc")
MAX_FAILED_STARTS = 30
FAILED = (
    "disk failed", "what was not yet durable may be lost", "the store could not be closed", "was not saved",
    "the log could not be cut",
)  # fmt: skip
"""Words of a member, or a broker, that ends because of its disk."""


def link(before: bytes, entry: Entry) -> bytes:
    """The next hash of a chain."""
    head = f"{entry.index} {entry.term} {entry.pos}".encode()
    return blake2b(before + head + entry.body, digest_size=12).digest()


class WatchedLog(FileLog):
    """A log that tells its member what happens to it."""

    watcher: Watched

    def load(self, trusted: int, *, checked: bool = False) -> list[str]:
        notes = super().load(trusted, checked=checked)
        self.watcher.loaded(self)
        return notes

    def _append(self, entry: Entry) -> None:
        self.watcher.appends(entry)
        super()._append(entry)
        self.watcher.appended(entry)

    def extend(self, run: Run) -> None:
        entries = list(run.entries())
        self.watcher.appends(*entries)
        super().extend(run)
        self.watcher.appended(*entries)

    def cut(self, index: int) -> None:
        self.watcher.cut(index)
        super().cut(index)


class Fold:
    """A state machine whose state is the chain of what it was given."""

    def __init__(self) -> None:
        self.count, self.chain = 0, b""

    def apply(self, entry: Entry) -> None:
        self.count, self.chain = self.count + 1, link(self.chain, entry)

    def snapshot(self) -> bytes:
        return b"%d %b" % (self.count, self.chain)

    def restore(self, data: bytes) -> None:
        count, _, self.chain = data.partition(b" ")
        self.count = int(count or b"0")


class Watched:
    """One member: its machine, and what is known of it across its lives."""

    def __init__(self, group: Group, name: str, driver: NodeDriver) -> None:
        self.group, self.name, self.driver = group, name, driver
        self.chain: list[bytes] = []
        """Of its log as it is, from entry 0 on."""
        self.durable: list[bytes] = []
        """Of what must be there after whatever happens."""
        self.whole: list[bytes] | None = None
        """Of what must be there after the death of the process alone; None: it died in the middle of a step."""
        self.trying: list[bytes] = []
        """The chain's next hash, while its entry is written."""
        self.cut_off: list[list[bytes]] = []
        """Chains before cuts that nothing has made durable yet: they may come back."""
        self.fold: Fold | None = None
        """The state of its present life, if it has one."""
        self.saved_term = 0
        self.votes: dict[int, str] = {}
        self.committed = self.committed_before = -1
        """Its committed index, and that of its earlier lives."""

    @property
    def raft(self) -> Raft | None:
        machine: Any = self.driver.machine
        found: Raft | None = machine
        return found

    def loaded(self, log: FileLog) -> None:
        """R3 and R10: a start has read its files."""
        chain = self.durable[: log.begin]  # retention takes away what was durable, and nothing else
        if len(chain) < log.begin:
            raise Violation("R10", f"{self.name} begins with entry {log.begin}; what was durable were {len(chain)}")
        for index in range(log.begin, log.end + 1):
            entry = log.get(index)
            assert entry is not None
            chain.append(link(chain[-1] if chain else b"", entry))
        for what, before in (("what was durable", self.durable), ("what was written", self.whole or [])):
            if chain[: len(before)] != before:
                same = next((i for i, (a, b) in enumerate(zip(chain, before, strict=False)) if a != b), len(chain))
                raise Violation(
                    "R10", f"{self.name} found {len(chain)} entries; {what} were {len(before)}, equal to {same}"
                )
        if not any(chain == known[: len(chain)] for known in (self.chain + self.trying, *self.cut_off)):
            same = next((i for i, (a, b) in enumerate(zip(chain, self.chain, strict=False)) if a != b), len(self.chain))
            raise Violation(
                "R10", f"{self.name} found {len(chain)} entries that it never had so; {len(self.chain)} were its last"
                f" ones, equal to {same}"
            )  # fmt: skip
        self.chain = chain
        self.whole = None
        self.trying.clear()
        self.cut_off.clear()
        self.committed_before, self.committed = max(self.committed_before, self.committed), -1

    def appends(self, *entries: Entry) -> None:
        """Entries are about to be written, and perhaps in the place of others."""
        self.trying = []
        for entry in entries:
            self.trying.append(link((self.trying or self.chain[-1:] or [b""])[-1], entry))
        self.cut_off.clear()

    def appended(self, *entries: Entry) -> None:
        """R5."""
        for entry, chain in zip(entries, self.trying, strict=True):
            self.chain.append(chain)
            self.group.met(self, entry)
        self.trying.clear()

    def cut(self, index: int) -> None:
        """R4: the log is about to be cut."""
        raft = self.raft
        if raft is not None and raft.member.is_leader:
            raise Violation("R4", f"{self.name} leads in term {raft.member.term} and cuts its log at {index}")
        self.cut_off.append(list(self.chain))
        del self.chain[index:], self.durable[index:]
        self.whole = None
        self.group.count("log cut")
        self.group.ambush(0.2, "killed after a cut", self)

    def after_event(self) -> None:
        """Everything that a look at the member tells."""
        raft = self.raft
        if raft is None:
            return
        log = raft.log
        if len(self.chain) != log.end + 1:
            return  # it is not loaded yet
        if not log.cutting:
            self.cut_off.clear()
        if raft.committed > log.end:
            raise Violation("R8", f"{self.name}: {raft.committed} is committed, the log ends at {log.end}")
        if log.durable >= len(self.durable):
            self.durable = self.chain[: log.durable + 1]
        self.whole = list(self.chain) if self.whole is None or len(self.whole) != len(self.chain) else self.whole
        if raft.committed < self.committed:
            raise Violation("R8", f"{self.name}: committed fell from {self.committed} to {raft.committed}")
        self.committed = raft.committed
        fold = self.fold
        if fold is not None and fold.count and fold.chain != self.group.committed[fold.count - 1]:
            raise Violation("R7", f"{self.name}: its state is not that of {fold.count} committed entries")


class Group:
    """The members of one run."""

    def __init__(
        self, seed: int, size: int = 0, *, strangers: bool = True, selection: Selection = WHOLE, **given: Any
    ) -> None:
        """Size and settings are drawn, but for those that are given. `strangers`: in some seeds a stranger speaks to
        the members, and in some they know each other by names. `selection`: what of it is played."""
        self.scheduler = Scheduler(seed, selection)
        self.random = random = self.scheduler.stream("group")
        self.counts: Counter[str] = Counter()
        self.network = Network(self.scheduler, self.count)
        self.operations = 0
        self.leaders: dict[int, str] = {}
        self.entries: dict[tuple[int, int], bytes] = {}
        """(index, term) → the chain up to it: R5."""
        self.committed: list[bytes] = []
        self.bodies: list[bytes] = []
        """What is committed, by any member."""
        self.commit_terms: list[int] = []
        """And in which term it first was."""
        self.healed = False
        self.ambushes = False
        """Members are killed soon after they did something delicate."""
        self.sizes = random.choice(((1, 20, 100, 400), (1, 20, 100, 400), (20,), (400,)))
        """Of the clients' bodies. Of one size: what was cut then stands where its successors end."""
        self.synced = random.random() < 0.8
        """Answers wait for the disk; otherwise power stays on."""
        self.down: set[str] = set()
        self._failed_starts = 0
        size = size or random.choice((3, 3, 5))
        names = [f"n{number}" for number in range(size)]
        self._names = self.scheduler.stream("names")
        named = strangers and self._names.random() < NAMED
        hosts = [f"{name}.sim" if named else f"10.0.3.{number}" for number, name in enumerate(names)]
        self.network.names = {host: f"10.0.3.{number}" for number, host in enumerate(hosts) if named}
        self.addresses = [f"{host}:{PORT}" for host in hosts]
        peers = ";".join(f"{name}-{address}" for name, address in zip(names, self.addresses, strict=True))
        beat_ms = random.choice((200, 500, 2_000))
        self.silence_us = beat_ms * 3 * US_PER_MS
        self.data_bytes = random.choice((1 << 10, 4 << 10, 16 << 10))
        settings = {
            "group": NAME, "peers": peers, "heart_beat_time_interval_ms": beat_ms,
            "min_vote_interval_ms": random.choice((50, 300)), "sync_before_answer": self.synced,
            "mapped_file_size_for_entry_data": self.data_bytes, "mapped_file_size_for_entry_index": 32 * 64,
            "push_batch_bytes": random.choice((1, 400, 256 << 10)), "push_window_bytes": random.choice((300, 8 << 20)),
            "check_point_interval": random.choice((300, 3_000)),
            "preferred_leader_ids": random.choice(("", "", "n1")), "snapshot_threshold": random.choice((20, 200)),
        } | given | besides(self.scheduler, RAFT)  # fmt: skip
        self.members = [self._member(name, number, settings) for number, name in enumerate(names)]
        self.stranger = Stranger(self)
        self.stranger.running &= strangers and self.scheduler.chosen.has("strangers")

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def _member(self, name: str, number: int, settings: dict[str, Any]) -> Watched:
        config = RaftConfig(self_id=name, **settings)
        made: list[Watched] = []

        def build(disk: SimDisk, random: Random) -> Raft:
            watched = made[0]
            log = WatchedLog(disk, config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index)
            log.watcher = watched
            watched.fold = Fold()
            raft = Raft(config, log, disk, random, machine=watched.fold)
            self.hear(watched, raft)
            return raft

        driver = NodeDriver(name, f"10.0.3.{number}", self.scheduler, self.network, build, {LISTENER: PORT}, self.count)
        watched = Watched(self, name, driver)
        made.append(watched)
        self._watch(watched)
        return watched

    def hear(self, watched: Watched, raft: Raft) -> None:
        """Let a member tell of its roles, votes and commits, besides whomever it tells already."""
        role, commit = raft.on_role, raft.on_commit

        def on_role(new: Role, term: int) -> None:
            self._role(watched, raft, new, term)
            role(new, term)

        def on_commit(index: int) -> None:
            self._commit(watched, index)
            commit(index)

        raft.on_role, raft.on_commit = on_role, on_commit
        raft.on_vote = lambda term, candidate: self._vote(watched, term, candidate)

    def _watch(self, watched: Watched) -> None:
        """Hear what happens to a member."""
        driver = watched.driver
        driver.on_error = self._broke
        driver.validate_every = 5
        driver.after_event = watched.after_event
        driver.on_end = lambda reason: self._ended(watched, reason)
        driver.on_job = lambda effect: self._job(watched, effect)
        driver.on_note = lambda text: self._noted(watched, text)

    # ---- life ----

    def start(self) -> None:
        for watched in self.members:
            self._start(watched)
        self.stranger.begin()

    def _start(self, watched: Watched) -> None:
        self.down.discard(watched.name)
        if self.network.names and self._names.random() < 0.3:
            self.network.nameless.add(watched.name)
            nameless_us = self._names.randint(*NAMELESS_MS) * US_PER_MS
            self.scheduler.after(nameless_us, self.network.nameless.discard, watched.name)
        watched.driver.start()
        raft = watched.raft
        if raft is None:
            return
        self._failed_starts = 0
        if raft.member.term < watched.saved_term:
            raise Violation("R3", f"{watched.name}: term {watched.saved_term} was on disk, {raft.member.term} is")
        if raft.committed > watched.committed_before:
            before = watched.committed_before
            raise Violation("R8", f"{watched.name}: starts with {raft.committed} committed, {before} were")

    def restart(self, watched: Watched) -> None:
        if watched.driver.machine is None:
            self._start(watched)

    def restart_later(self, watched: Watched, low_ms: int, high_ms: int) -> None:
        self.down.add(watched.name)
        self.scheduler.after(self.random.randint(low_ms, high_ms) * US_PER_MS, self.restart, watched)

    def crash(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            watched.driver.crash()

    def cut_power(self, watched: Watched) -> None:
        watched.whole = None
        watched.driver.cut_power()

    def _ended(self, watched: Watched, reason: str) -> None:
        known = "crash point" if reason == "crash point" else "" if reason else "cleanly"
        kind = known or ("disk failed" if any(words in reason for words in FAILED) else "other")
        self.count(f"member ended: {kind}")
        if kind == "other":
            self._failed_starts += 1
            if not reason.startswith("can't start") or self._failed_starts > MAX_FAILED_STARTS:
                raise Violation("a member runs", f"{watched.name}: {reason}")
        watched.whole = None
        self.restart_later(watched, 300, 2_000)

    def _broke(self, error: BaseException) -> None:
        raise Violation("no member breaks", f"{type(error).__name__}: {error}") from error

    def ambush(self, share: float, what: str, *struck: Watched, power: bool = False) -> None:
        """After something delicate, in so many of the cases, some members die."""
        if self.healed or not self.ambushes or self.random.random() >= share:
            return
        if not self.scheduler.chosen.has("ambushes"):
            return
        self.count(what)
        power = self.synced and (power or self.random.random() < 0.5)
        after_us = self.random.randint(0, self.random.choice((1, 20)) * US_PER_MS)
        for one in struck:
            self.scheduler.after(after_us, self._strike, one, one.driver.lives, what, power)

    def _strike(self, watched: Watched, life: int, what: str, power: bool) -> None:
        if watched.driver.lives == life and watched.driver.machine is not None and not self.healed:
            self.scheduler.note("fault", f"{watched.name}: {what}")
            (self.cut_power if power else self.crash)(watched)
            self.restart_later(watched, 50, 5_000)

    def _noted(self, watched: Watched, text: str) -> None:
        if "follows from entry" in text and watched.raft is not None:
            raft, behind = watched.raft, int(text.rsplit(" ", 1)[1]) <= watched.raft.log.end
            young = raft.log.end_term < raft.member.term  # all of its log is of older terms
            self.ambush(0.3 if behind and young else 0.03, "killed when it was followed", watched)
        for words, name in NOTES.items():
            if words in text:
                self.count(name)

    def _job(self, watched: Watched, effect: Flush | SaveState) -> Any:
        if not isinstance(effect, SaveState) or not effect.path.endswith("currterm"):
            return None
        raft = watched.raft
        assert raft is not None
        term = raft.member.term

        def durable() -> None:
            watched.saved_term = max(watched.saved_term, term)

        return durable

    # ---- what must hold ----

    def met(self, watched: Watched, entry: Entry) -> None:
        """R5: an entry was put into a log."""
        key, chain = (entry.index, entry.term), watched.chain[-1]
        if self.entries.setdefault(key, chain) != chain:
            raise Violation("R5", f"{watched.name}: entry {entry.index} of term {entry.term} follows on another log")

    def _role(self, watched: Watched, raft: Raft, role: Role, term: int) -> None:
        self.count(f"became {role.value}")
        if role is not Role.LEADER:
            return
        if self.leaders.setdefault(term, watched.name) != watched.name:
            raise Violation("R1", f"{self.leaders[term]} and {watched.name} lead in term {term}")
        must = sum(committed <= term for committed in self.commit_terms)
        if watched.chain[:must] != self.committed[:must]:
            raise Violation("R6", f"{watched.name} leads in term {term} without all {must} that were committed by then")

    def _vote(self, watched: Watched, term: int, candidate: str) -> None:
        self.count("vote given")
        if watched.votes.setdefault(term, candidate) != candidate:
            raise Violation("R2", f"{watched.name} voted for {watched.votes[term]} and {candidate} in term {term}")

    def _commit(self, watched: Watched, index: int) -> None:
        """R6, R7, R8."""
        if index >= len(watched.chain):
            raise Violation("R8", f"{watched.name}: {index} is committed, the log ends at {len(watched.chain) - 1}")
        begin = max(0, watched.committed + 1)
        if watched.chain[begin : min(index + 1, len(self.committed))] != self.committed[begin : index + 1]:
            raise Violation("R7", f"{watched.name}: other entries are committed between {begin} and {index}")
        raft = watched.raft
        assert raft is not None
        if raft.member.is_leader and raft.log.term_of(index) != raft.member.term:
            term = raft.log.term_of(index)
            raise Violation("R6", f"{watched.name}: {index} of term {term} is committed by counting")
        for at in range(len(self.committed), index + 1):
            entry = raft.log.get(at)
            assert entry is not None
            self.committed.append(watched.chain[at])
            self.bodies.append(entry.body)
            self.commit_terms.append(raft.member.term)
            self._committed(raft, entry)
        self.count("committed")
        if raft.member.is_leader and self.synced:
            self.ambush(0.004, "all lose power after a commit", *self.members, power=True)

    def _committed(self, raft: Raft, entry: Entry) -> None:
        """An entry is committed for the first time."""

    def acknowledged(self, index: int, body: bytes) -> None:
        """R9: a client was told so."""
        if index >= len(self.bodies) or self.bodies[index] != body:
            raise Violation("R9", f"entry {index} was acknowledged and is not committed, or is another one")
        self.count("append acknowledged")

    def was_read(self, index: int, body: bytes) -> None:
        """R9: a client has read an entry."""
        if index >= len(self.bodies) or self.bodies[index] != body:
            raise Violation("R9", f"entry {index} was read and is not committed, or is another one")
        self.count("read")

    def settled(self) -> str:
        """Why not all members have the same log yet; "" when they have."""
        for watched in self.members:
            raft = watched.raft
            if raft is None:
                return f"{watched.name} is down"
            if raft.committed + 1 < len(self.committed):
                return f"{watched.name} has {raft.committed + 1} committed of {len(self.committed)}"
        return ""


NOTES = {
    "cut off": "recovery cut off a tail",
    "are not those of leader": "follower had other entries",
    "follows from entry": "follower follows",
    "only its connection was gone": "doubt: the leader answers",
    "don't hear it either": "doubt: a quorum is deaf",
    "has been silent": "leader silent",
    "no quorum has answered": "leader without a quorum",
    "is asked to lead": "leadership handed over",
    "is taken from": "start from a snapshot",
    "revote immediately": "votes: revote immediately",
    "wait to vote next": "votes: wait to vote next",
    "wait to revote": "votes: wait to revote",
    "passed": "votes: passed",
    "no longer": "leader met a higher term",
    "is master here": "became master",
    "is slave here": "became slave again",
    "by a message of our own": "older terms committed by a mark",
}
"""Words of a log line, and what they are counted as."""
