"""A Raft group in virtual time: 3 or 5 members, and clients that append and read. What must hold after every event is
in `leadership.py` (R1 to R3), `logs.py` (R4, R5, R10) and `commitment.py` (R6 to R9).
"""

from __future__ import annotations

from collections import Counter
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
from perseid.sim.models.raft.commitment import Commitment
from perseid.sim.models.raft.leadership import Leadership
from perseid.sim.models.raft.logs import LogChain, LogMatching, link
from perseid.sim.models.raft.strangers import Stranger
from perseid.sim.net import Network
from perseid.sim.promises import Violation
from perseid.sim.rare_settings import RAFT, rare_settings
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.sim.secured import Secured
from perseid.sim.security import has_tls
from perseid.sim.selection import WHOLE, Selection
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


class WatchedLog(FileLog):
    """A log that tells its member what happens to it."""

    watcher: Watched

    def load(self, trusted: int, *, checked: bool = False) -> list[str]:
        notes = super().load(trusted, checked=checked)
        self.watcher.loaded(self)
        return notes

    def _append(self, entry: Entry) -> None:
        self.watcher.chain.appends(entry)
        super()._append(entry)
        self.watcher.chain.appended(entry)

    def extend(self, run: Run) -> None:
        entries = list(run.entries())
        self.watcher.chain.appends(*entries)
        super().extend(run)
        self.watcher.chain.appended(*entries)

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
        self.chain = LogChain(name, group.matching)
        self.fold: Fold | None = None
        """The state of its present life, if it has one."""
        self.committed = self.committed_before = -1
        """Its committed index, and that of its earlier lives."""

    @property
    def raft(self) -> Raft | None:
        machine: Any = self.driver.machine
        found: Raft | None = machine
        return found

    def loaded(self, log: FileLog) -> None:
        """A start has read its files."""
        self.chain.loaded(log)
        self.committed_before, self.committed = max(self.committed_before, self.committed), -1

    def cut(self, index: int) -> None:
        """The log is about to be cut."""
        raft = self.raft
        leads = raft is not None and raft.member.is_leader
        self.chain.cut(index, leads_in=raft.member.term if raft is not None and leads else None)
        self.group.count("log cut")
        self.group.ambush(0.2, "killed after a cut", self)

    def after_event(self) -> None:
        """Everything that a look at the member tells."""
        raft = self.raft
        if raft is None or not self.chain.look(raft.log.end, cutting=raft.log.cutting):
            return
        commitment = self.group.commitment
        commitment.check_index(self.name, self.committed, raft.committed, raft.log.end)
        self.chain.settled(raft.log.durable)
        self.committed = raft.committed
        if self.fold is not None:
            commitment.check_state(self.name, self.fold.count, self.fold.chain)


class Group:
    """The members of one run."""

    model = "raft"
    """By which name it is played."""

    def __init__(
        self, seed: int, size: int = 0, *, strangers: bool = True, selection: Selection = WHOLE, **given: Any
    ) -> None:
        """Size and settings are drawn, but for those that are given. `strangers`: in some seeds a stranger speaks to
        the members, and in some they know each other by names. `selection`: what of it is played."""
        self.scheduler = Scheduler(seed, selection)
        self.random = random = self.scheduler.stream("group")
        self.counts: Counter[str] = Counter()
        self.network = Network(self.scheduler, self.count)
        if has_tls(self.model, seed):
            self.network.tls = Secured(self.scheduler.stream("tls"), self.count)
        self.operations = 0
        self.leadership = Leadership()
        self.matching = LogMatching()
        self.commitment = Commitment()
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
        } | given | rare_settings(self.scheduler, RAFT)  # fmt: skip
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
        self.leadership.starts(watched.name, raft.member.term)
        self.commitment.check_start(watched.name, watched.committed_before, raft.committed)

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
        watched.chain.died_within_a_step()
        watched.driver.cut_power()

    def _ended(self, watched: Watched, reason: str) -> None:
        known = "crash point" if reason == "crash point" else "" if reason else "cleanly"
        kind = known or ("disk failed" if any(words in reason for words in FAILED) else "other")
        self.count(f"member ended: {kind}")
        if kind == "other":
            self._failed_starts += 1
            if not reason.startswith("can't start") or self._failed_starts > MAX_FAILED_STARTS:
                raise Violation("a member runs", f"{watched.name}: {reason}")
        watched.chain.died_within_a_step()
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
        return lambda: self.leadership.saved(watched.name, term)

    # ---- what must hold ----

    def _role(self, watched: Watched, raft: Raft, role: Role, term: int) -> None:
        self.count(f"became {role.value}")
        if role is Role.LEADER:
            self.leadership.leads(watched.name, term)
            self.commitment.check_leader(watched.name, term, watched.chain.hashes)

    def _vote(self, watched: Watched, term: int, candidate: str) -> None:
        self.count("vote given")
        self.leadership.votes(watched.name, term, candidate)

    def _commit(self, watched: Watched, index: int) -> None:
        raft, chain = watched.raft, watched.chain.hashes
        self.commitment.check_commit(watched.name, index, max(0, watched.committed + 1), chain)
        assert raft is not None
        if raft.member.is_leader:
            self.commitment.check_counted(watched.name, index, raft.log.term_of(index), raft.member.term)
        for at in range(len(self.commitment.chain), index + 1):
            entry = raft.log.get(at)
            assert entry is not None
            self.commitment.add(chain[at], entry.body, raft.member.term)
            self._committed(raft, entry)
        self.count("committed")
        if raft.member.is_leader and self.synced:
            self.ambush(0.004, "all lose power after a commit", *self.members, power=True)

    def _committed(self, raft: Raft, entry: Entry) -> None:
        """An entry is committed for the first time."""

    def acknowledged(self, index: int, body: bytes) -> None:
        """A client was told so."""
        self.commitment.check_client(index, body, "acknowledged")
        self.count("append acknowledged")

    def was_read(self, index: int, body: bytes) -> None:
        """A client has read an entry."""
        self.commitment.check_client(index, body, "read")
        self.count("read")

    def settled(self) -> str:
        """Why not all members have the same log yet; "" when they have."""
        for watched in self.members:
            raft = watched.raft
            if raft is None:
                return f"{watched.name} is down"
            if raft.committed + 1 < len(self.commitment.chain):
                return f"{watched.name} has {raft.committed + 1} committed of {len(self.commitment.chain)}"
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
