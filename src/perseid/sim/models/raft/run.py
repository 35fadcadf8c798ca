"""One seed of a Raft group: clients, faults, and the last check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perseid.sim.driver import SYNC_US
from perseid.sim.models.broker.run import Result, played
from perseid.sim.models.raft.group import PORT, Group, Watched
from perseid.sim.net import End
from perseid.sim.options import DRAWN, Options
from perseid.sim.pace import under_faults
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_log import Done, explain
from perseid.sim.rare_faults import RareFaults, Target
from perseid.sim.scheduler import US_PER_MS, US_PER_S, Scheduler
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.tls_faults import plan_tls_faults
from perseid.wire.command import decode_all, encode_request
from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    Message,
)

MIN_FAULTS, MAX_FAULTS = 10, 22
LIVENESS_US = 60 * US_PER_S
"""After all faults have healed, appends succeed, and all members have everything, within this."""
CLIENTS = 8
CLIENT_TIMEOUT_MS = 3_000
PAUSES_MS = (2, 20, 400, 2_500)
"""Of a client between two operations: on average half of one of them."""
OLD_TERM = 0.08
"""So many of those that ask a leader to hand over name the term before its own."""


class Client:
    """Appends numbered bodies one after the other, and reads what it or others appended."""

    def __init__(self, group: Group, name: str, history: list[Done], unknown: list[bytes]) -> None:
        self.group, self.name = group, name
        self.scheduler = group.scheduler
        self.random = group.scheduler.stream(name)
        self._terms = group.scheduler.stream(f"terms of {name}")
        self.ip = f"10.0.4.{name[-1]}"
        self.history, self.unknown = history, unknown
        self.running = True
        self.acknowledged = 0
        self._member = self.random.choice(group.members)
        self._end: End | None = None
        self.trying: bytes | None = None
        """What it has asked to append, and has no answer to."""
        self._waiting: list[bytes] = []
        self._opaque = 0
        self._calls: dict[int, tuple[Callable[[Any], None], Any]] = {}
        group.network.machines[self.ip] = name

    def begin(self) -> None:
        self._later()

    def _later(self) -> None:
        pause = self.scheduler.slowed(self.random.choice(PAUSES_MS))
        self.scheduler.after(self.random.randint(1, max(1, int(2 * pause))) * US_PER_MS, self._work)

    def _work(self) -> None:
        if not self.running:
            return
        has = self.scheduler.chosen.has
        if self.history and self.random.random() < 0.15 and has("reads"):
            self._read()
        elif self.random.random() < 0.01 and has("transfers"):
            self._hand_over()
        else:
            self._append()

    # ---- operations ----

    def _append(self) -> None:
        self._opaque += 1
        size = self.random.choice(self.group.sizes)
        body = f"{self.name}.{self._opaque}.".encode().ljust(size, b"x")
        called, self.trying = self.scheduler.now_us, body

        def answered(reply: AppendEntryResponse | None) -> None:
            self.trying = None
            if reply is not None and reply.code == Code.SUCCESS:
                self.group.acknowledged(reply.index, body)
                self.history.append(Done(called, self.scheduler.now_us, reply.index, body))
                self.acknowledged += 1
            else:
                if reply is None or reply.code in (Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT):
                    self.unknown.append(body)
                self._elsewhere(reply.leader_id if reply is not None else None)
            self._later()

        self._call(DLedgerRequest.APPEND, AppendEntryRequest(body=body), AppendEntryResponse, answered)

    def _read(self) -> None:
        known, newest = self.random.choice(self.history).index, self.history[-1].index
        index = self.random.choice((known, known, known, newest + 1, newest + 100_000))
        called = self.scheduler.now_us

        def answered(reply: GetEntriesResponse | None) -> None:
            if reply is not None and reply.code == Code.SUCCESS:
                entry = reply.entries[0]
                self.history.append(Done(called, self.scheduler.now_us, entry.index, entry.body, is_read=True))
                self.group.was_read(entry.index, entry.body)
            else:
                self._elsewhere(reply.leader_id if reply is not None else None)
            self._later()

        self._call(DLedgerRequest.GET, GetEntriesRequest(begin_index=index), GetEntriesResponse, answered)

    def _hand_over(self) -> None:
        """Ask the leader to let another member lead."""
        raft = self._member.raft
        term = raft.member.term if raft is not None else 0
        if self._terms.random() < OLD_TERM:
            term = max(0, term - 1)
        to = self.random.choice([*(one.name for one in self.group.members), "n9"])
        request = LeadershipTransferRequest(term=term, transfer_id=self._member.name, transferee_id=to)

        def answered(reply: Message | None) -> None:
            if reply is not None:
                self.group.count("transfer succeeded" if reply.code == Code.SUCCESS else "transfer refused")
            self._later()

        self._call(DLedgerRequest.LEADERSHIP_TRANSFER, request, Message, answered)

    def _elsewhere(self, leader: str | None) -> None:
        """Try the leader that was named, or anybody."""
        named = [one for one in self.group.members if one.name == leader]
        member = named[0] if named and self.random.random() < 0.8 else self.random.choice(self.group.members)
        if member is not self._member:
            self._member = member
            self._hang_up()

    def _call(self, code: int, request: Message, kind: type[Any], answered: Callable[[Any], None]) -> None:
        self.group.operations += 1
        self._opaque += 1
        opaque = self._opaque
        request.group, request.remote_id = "g", self._member.name
        timer = self.scheduler.after(CLIENT_TIMEOUT_MS * US_PER_MS, self._late, opaque)

        def replied(body: Any) -> None:
            Scheduler.cancel(timer)
            reply = kind.from_json(body) if body is not None else None
            if reply is not None:
                self.group.count(f"answer {Code(reply.code).name}")
            answered(reply)

        self._calls[opaque] = (replied, None)
        self._waiting.append(encode_request(code, opaque, None, request.to_json()))
        if self._end is not None and self._end.open and not self._end.dialling:
            self._send()
        elif self._end is None:
            self.group.network.dial(self, self.ip, f"{self._member.driver.ip}:{PORT}")

    def _late(self, opaque: int) -> None:
        call = self._calls.pop(opaque, None)
        if call is not None:
            self._hang_up()
            self._member = self.random.choice(self.group.members)
            call[0](None)

    def _send(self) -> None:
        assert self._end is not None
        for frame in self._waiting:
            self.group.network.write(self._end, frame)
        self._waiting.clear()

    def _hang_up(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            self.group.network.close(end, "client goes")
        self._waiting.clear()
        self._fail()

    def _fail(self) -> None:
        calls, self._calls = self._calls, {}
        for replied, _ in calls.values():
            replied(None)

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        if dialled != f"{self._member.driver.ip}:{PORT}" or self._end is not None:
            self.group.network.close(end, "not wanted")
            return
        self._end = end
        self._send()

    def connect_failed(self, address: str, reason: str) -> None:
        if self._end is None:
            self._member = self.random.choice(self.group.members)
            self._waiting.clear()
            self._fail()

    def received(self, end: End, frames: bytearray) -> None:
        for command in decode_all(bytes(frames)):
            call = self._calls.pop(command.opaque, None)
            if call is not None:
                call[0](bytes(command.body))

    def closed(self, end: End, reason: str) -> None:
        if end is self._end:
            self._end = None
            self._waiting.clear()
            self._fail()


def both_ways(these: list[str], those: list[str]) -> list[tuple[str, str]]:
    """Each of these with each of those, and back."""
    return [pair for a in these for b in those for pair in ((a, b), (b, a))]


class Faults:
    """Draws faults and carries them out."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.targets: Sequence[Watched] = group.members
        """Whom they may strike."""
        self.random = group.scheduler.stream("faults")
        self.begun = 0

    def plan(self, start_us: int, end_us: int) -> None:
        for _ in range(self.random.randint(MIN_FAULTS, MAX_FAULTS)):
            self.group.scheduler.plan(self.random.randrange(start_us, end_us), self.random, self._begin)
        RareFaults(self.group, self.random, self._rare_target).plan(start_us, end_us)
        plan_tls_faults(self.group.network, start_us, end_us)

    def _rare_target(self) -> Target:
        watched = self.target()
        return Target(watched.driver, lambda: self._process_crash(watched))

    def _begin(self) -> None:
        if self.group.healed:
            return
        chosen = self.group.scheduler.chosen
        kind = chosen.kind(self.random.choice(chosen.kinds(self.kinds())))
        self.begun += 1
        watched = self.target()
        self.group.count(f"fault {kind}")
        self.group.scheduler.note("fault", f"{watched.name}: {kind}")
        getattr(self, "_" + kind.replace(" ", "_"))(watched)

    def kinds(self) -> Sequence[str]:
        """Those that may be drawn."""
        return [kind for kind in KINDS if self.group.synced or kind not in LOSING]

    def target(self) -> Watched:
        """Whom the next one strikes."""
        members = self.group.members
        leading = [one for one in members if one.raft is not None and one.raft.member.is_leader]
        return self.random.choice(leading) if leading and self.random.random() < 0.5 else self.random.choice(members)

    def _after(self, low_ms: int, high_ms: int, function: Callable[..., None], *arguments: Any) -> None:
        self.group.scheduler.after(self.random.randint(low_ms, high_ms) * US_PER_MS, function, *arguments)

    def _process_crash(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            self.group.crash(watched)
            self.group.restart_later(watched, 50, 8_000)

    def _power_cut(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            self.group.cut_power(watched)
            self.group.restart_later(watched, 200, 8_000)

    def _power_cut_of_all(self, watched: Watched) -> None:
        for one in self.targets:
            self._power_cut(one)

    def _crash_within_a_call(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            watched.driver.disk.crash_in = self.random.randint(1, 40)

    def _clock_jump(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            self.group.crash(watched)
            watched.driver.clock_ms += self.random.randint(-3_600_000, 3_600_000)
            self.group.restart_later(watched, 50, 1_000)

    def _stall(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            watched.driver.stall(True)
            self._after(200, 15_000, self._go_on, watched, watched.driver.lives)

    @staticmethod
    def _go_on(watched: Watched, life: int) -> None:
        if watched.driver.lives == life and watched.driver.machine is not None:
            watched.driver.stall(False)

    def _partition(self, watched: Watched) -> None:
        others = [one.name for one in self.group.members if one is not watched]
        some = self.random.sample(others, self.random.randint(1, len(others)))
        pairs = both_ways([watched.name], some)
        side = {watched.name, *self.random.sample(others, len(others) // 2)}  # two halves, each of which is whole
        rest = [name for name in others if name not in side]
        halves = both_ways(sorted(side), rest)
        chosen = self.random.choice((pairs, halves, halves, pairs[::2], pairs[1::2]))
        self._cut(chosen)
        self._after(300, 15_000, self._reconnect, chosen)

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.group.network.block(*pair)

    def _reconnect(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.group.network.heal(*pair)

    def _leader_lost_with_one_behind(self, watched: Watched) -> None:
        """A follower hears nobody for a while; as it comes back, the leader dies: the next one finds it behind."""
        behind = next(one for one in (watched, *self.group.members) if not (one.raft and one.raft.member.is_leader))
        others = [one.name for one in self.group.members if one is not behind]
        pairs = both_ways([behind.name], others)
        self._cut(pairs)
        self._after(1_000, 6_000, self._lose_leader, pairs)

    def _lose_leader(self, pairs: list[tuple[str, str]]) -> None:
        self._reconnect(pairs)
        for one in self.group.members:
            if one.raft is not None and one.raft.member.is_leader and not self.group.healed:
                self._process_crash(one)

    def _ends(self, watched: Watched) -> list[End]:
        ends = [end for end in self.group.network.ends.values() if end.owner is watched.driver and end.other.open]
        return self.random.sample(ends, self.random.randint(1, len(ends))) if ends else []

    def _connection_reset(self, watched: Watched) -> None:
        for end in self._ends(watched):
            self.group.network.reset(end, "connection reset", 0, self.random.choice((0, 1_000, 3 * US_PER_S)))

    def _half_open(self, watched: Watched) -> None:
        for end in self._ends(watched):
            self.group.network.reset(end, "vanished", 0, self.random.randint(1, 20) * US_PER_S)

    def _chopped_bytes(self, watched: Watched) -> None:
        for end in self._ends(watched):
            end.chopped = end.other.chopped = True

    def _slow_fsync(self, watched: Watched) -> None:
        watched.driver.sync_us = (100_000, 1_500_000)
        self._after(1_000, 8_000, self._quick, watched)

    @staticmethod
    def _quick(watched: Watched) -> None:
        watched.driver.sync_us = SYNC_US

    def _failing_fsync(self, watched: Watched) -> None:
        watched.driver.disk.failing["sync"] = 1

    def _failing_save(self, watched: Watched) -> None:
        watched.driver.disk.failing["rename"] = 1

    def _disk_full(self, watched: Watched) -> None:
        watched.driver.disk.fill(self.random.randint(0, 3_000))
        self._after(1_000, 8_000, watched.driver.disk.fill, 0)

    def heal(self) -> None:
        group = self.group
        group.healed = True
        group.scheduler.chosen.healed_us = group.scheduler.now_us
        group.scheduler.note("fault", "all faults heal")
        for pair in sorted(group.network.blocked):  # a set has another order in each process
            group.network.heal(*pair)
        for end in group.network.ends.values():
            end.chopped = False
        if group.network.tls is not None:
            group.network.tls.heal()
        for watched in self.targets:
            watched.driver.heal()
            group.restart(watched)


KINDS = (
    "chopped bytes",
    "clock jump",
    "connection reset",
    "crash within a call",
    "disk full",
    "failing fsync",
    "failing save",
    "half open",
    "leader lost with one behind",
    "partition",
    "power cut",
    "power cut of all",
    "process crash",
    "slow fsync",
    "stall",
)
LOSING = frozenset(("power cut", "power cut of all", "failing fsync"))
"""What a group that answers from memory does not survive, and does not promise to."""


class Course:
    """The course of one seed."""

    def __init__(self, seed: int, *, strangers: bool = True, selection: Selection = WHOLE) -> None:
        self.group = group = Group(seed, strangers=strangers, selection=selection)
        group.ambushes = True
        self.history: list[Done] = []
        self.unknown: list[bytes] = []
        self.clients = [Client(group, f"client{n}", self.history, self.unknown) for n in range(CLIENTS)]
        self.faults = Faults(group)

    def play(self) -> None:
        group, scheduler = self.group, self.group.scheduler
        group.start()
        for client in scheduler.chosen.some(self.clients, self.clients[0]):
            client.begin()
        under_faults(group, self.faults, "the group serves")
        self.finish()

    def finish(self) -> None:
        group, scheduler = self.group, self.group.scheduler
        self.faults.heal()
        before = sum(client.acknowledged for client in self.clients)
        wanted = before + 5

        def appended() -> bool:
            return sum(client.acknowledged for client in self.clients) >= wanted

        if not scheduler.run(scheduler.now_us + LIVENESS_US, appended):
            raise Violation("appends succeed after faults heal", f"not within {LIVENESS_US // US_PER_S} s")
        for client in self.clients[1:]:  # one goes on: a new leader commits nothing before an entry of its own term
            client.running = False
        if not scheduler.run(scheduler.now_us + LIVENESS_US, lambda: not group.settled()):
            raise Violation("every member catches up", group.settled())
        trying = [client.trying for client in self.clients if client.trying is not None]
        if why := explain(self.history, self.unknown + trying):
            raise Violation("linearizable", why)
        for one in self.history:
            if group.commitment.bodies[one.index] != one.body:
                raise Violation("acknowledged is kept", f"entry {one.index} is another one in the end")


def run(seed: int, options: Options = DRAWN) -> Result:
    """Play one seed; never raises for what the group did wrong."""
    course = Course(seed, strangers=options.strangers, selection=options.selection)
    return played(seed, course.play, course.group, course.faults, story=options.story)
