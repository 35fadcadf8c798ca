"""Runs one node on the simulated network and disk: the duties of `base/machine.py`, in virtual time.

A node *lives* from `start` until it stops by itself (`Stop`), is killed (`crash`) or its machine loses power
(`cut_power`). One job of the disk runs at a time, in the order in which jobs were asked for; what stands in
`then` is carried out when its job is durable, and never when the node died before. A killed node's effects
are cut off where they stand: a call of the disk that raises `CrashPoint` leaves half a `handle` behind.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perseid.base.errors import ConfigError, RemoteProtocolError, StoreError
from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    ConnectFailed,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Fetch,
    Flush,
    Frames,
    Machine,
    Millis,
    Note,
    Opened,
    Reads,
    Resolve,
    Resolved,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.replication.receiver import LISTENER as HA_LISTENER
from perseid.sim.disk import CrashPoint, SimDisk, SimFile
from perseid.sim.net import End, Network
from perseid.sim.powercut import parent
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S, Scheduler, Timer

EPOCH_MS = 1_800_000_000_000
"""The wall clock at the start of a run."""

STREAMS = frozenset((HA_LISTENER,))
"""Listeners whose connections carry bytes without frames."""
SYNC_US = (100, 4_000)
STEP_US = (50, 500)
FETCH_US = (50, 20_000)
LOOKUP_US = (200, 2_000_000)
SPOILT = b"\xee"
"""What the bytes of `Frames` are overwritten with after the call: a node that keeps them is found out."""
MAX_CHAIN = 10_000
"""Effects and fed events that one event may lead to at once; more is an endless loop of `Feed`s."""


@dataclass(slots=True)
class Job:
    """A `Flush` or `SaveState` that waits for the disk, and what is to be told when it is durable."""

    effect: Flush | SaveState
    durable: Callable[[], None] | None
    new_folders: list[str] = field(default_factory=list)
    """Those that a save had to make; their entries have to be durable too."""


@dataclass(slots=True)
class Then:
    """The effects that waited for a job; a stalled process carries them out when it goes on."""

    effects: list[Effect]


def _spoil(frames: Frames) -> None:
    frames.data[:] = SPOILT * len(frames.data)  # type: ignore[index]


class NodeDriver:
    """One machine: its disk, its clock, and the node that runs on it, if any."""

    def __init__(
        self,
        name: str,
        ip: str,
        scheduler: Scheduler,
        network: Network,
        build: Callable[[SimDisk, Random], Machine],
        listeners: dict[str, int],
        count: Callable[[str], None],
    ) -> None:
        self.name = name
        self.ip = ip
        self.scheduler = scheduler
        self.network = network
        self.build = build
        self.listeners = listeners
        self.count = count
        self.random = scheduler.stream(f"driver {name}")
        self._reads = scheduler.stream(f"reader {name}")
        network.machines[ip] = name
        self.disk = SimDisk(scheduler.stream(f"disk {name}"))
        self.machine: Machine | None = None
        self.lives = 0
        self.ending = False
        """It was asked to end, in this life."""
        self.clock_ms = 0
        """How far the wall clock is from the true time; changes only between lives."""
        self.drift_ppm = 0
        """So many microseconds the clock gains in each second of the true time."""
        self.sync_us = SYNC_US
        self.validate_every = 1
        """The state's invariants are checked after each so-manieth event."""
        self._events = 0
        self.on_job: Callable[[Flush | SaveState], Callable[[], None] | None] = lambda effect: None
        """Called for each job asked for; what it returns is called when the job is durable."""
        self.on_started: Callable[[], None] = lambda: None
        """Called when a node has taken its `Start`."""
        self.on_note: Callable[[str], None] = lambda text: None
        self.on_end: Callable[[str], None] = lambda reason: None
        """Called when a node ended by itself, with the reason of its `Stop`."""
        self.on_error: Callable[[BaseException], None] = _reraise
        self.after_event: Callable[[], None] = lambda: None
        self._ends: dict[int, End] = {}
        self._inbox: deque[Event] = deque()
        self._jobs: deque[Job] = deque()
        self._job: Job | None = None
        self._lost: set[str] = set()
        """Files whose sync failed in this life: a second sync of theirs would lie."""
        self._timer: Timer | None = None
        self._timer_us = 0
        self._deadline: Millis | None = None
        """What the machine named last."""
        self._stalled = False
        self._handling = False

    # ---- life and death ----

    @property
    def now(self) -> Millis:
        """The node's wall clock."""
        now_us = self.scheduler.now_us
        if self.drift_ppm:
            now_us += now_us * self.drift_ppm // US_PER_S
        return EPOCH_MS + self.clock_ms + now_us // US_PER_MS

    @property
    def idle(self) -> bool:
        """Nothing waits for the disk or to be handled."""
        return self._job is None and not self._inbox and not self._stalled

    def start(self) -> None:
        """Begin a life: build the node on what the disk holds, and let it load."""
        assert self.machine is None, f"{self.name} runs already"
        self.lives += 1
        self.ending = False
        self.network.silent.discard(self.name)
        self.scheduler.note(self.name, f"starts, life {self.lives}, clock {self.clock_ms:+d} ms")
        self.disk.now = self.now
        self.machine = self.build(self.disk, self.scheduler.stream(f"{self.name} life {self.lives}"))
        for listener, port in self.listeners.items():
            self.network.listen(f"{self.ip}:{port}", self, listener)
            if listener in STREAMS:
                self.network.streams[f"{self.ip}:{port}"] = len
        self._stalled = False
        self._lost.clear()
        self._give(Start())

    def shut_down(self) -> None:
        """Ask the node to end cleanly."""
        self.scheduler.note(self.name, "is asked to shut down")
        self.ending = True
        self._give(Shutdown())

    def crash(self, why: str = "killed") -> None:
        """The process dies here and now; what it wrote is still in the page cache."""
        self._die(why, lambda: self.random.randint(50, 2_000))
        self.disk.kill()

    def cut_power(self) -> dict[str, int]:
        """The machine goes off: unsynced bytes meet their fate. Peers hear it late. The fates, counted."""
        self._die("power cut", lambda: self.random.randint(10_000, 12 * US_PER_S))
        self.network.silent.add(self.name)
        cut = self.disk.cut_power()
        fates = ", ".join(f"{what} {count}" for what, count in sorted(cut.counts.items()))
        self.scheduler.note(self.name, f"lost its power: pages {cut.pages}, names {cut.names}: {fates}")
        return cut.counts

    def stall(self, stalled: bool) -> None:
        """SIGSTOP and SIGCONT: events wait; the disk goes on with the job that it has."""
        self._stalled = stalled
        if not stalled:
            self._work()

    def heal(self) -> None:
        """The disk is quick, has room and does not fail; what was stopped goes on."""
        self.disk.failing.clear()
        self.disk.fill(0)
        self.disk.crash_in = 0
        self.sync_us = SYNC_US
        if self.machine is not None:
            self.stall(False)

    def post(self, event: Event) -> None:
        """Give the node an event of its own."""
        self._give(event)

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        self._ends[end.id] = end
        certificate = "" if end.tls is None else end.tls.certificate
        self._give(Opened(end.id, end.other.address, end.address, listener, dialled, certificate))

    def connect_failed(self, address: str, reason: str) -> None:
        if self.machine is not None:
            self._give(ConnectFailed(address, reason))

    def received(self, end: End, frames: bytearray) -> None:
        if end.id in self._ends:
            self._give(Frames(end.id, frames))

    def closed(self, end: End, reason: str) -> None:
        if self._ends.pop(end.id, None) is not None:
            self._give(Closed(end.id, reason))

    # ---- events ----

    def _give(self, event: Event) -> None:
        if self.machine is not None:
            self._inbox.append(event)
            if not self._handling and not self._stalled:
                self._work()

    def _work(self) -> None:
        """Handle what waits, one event at a time."""
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox and self.machine is not None and not self._stalled:
                self._handle(self._next_event())
        except CrashPoint as point:
            self.count("crash within a disk call")
            self.crash(f"killed in {point}")
            self.on_end("crash point")
        finally:
            self._handling = False
        self._set_timer()

    def _next_event(self) -> Event:
        """What waits longest; what connections brought next to it comes together, as with the real driver."""
        event = self._inbox.popleft()
        if type(event) is not Frames:
            return event
        reads = [event]
        while self._inbox and type(self._inbox[0]) is Frames:
            reads.append(self._inbox.popleft())
        return reads[0] if len(reads) == 1 else Reads(reads)

    def _handle(self, event: Event) -> None:
        machine = self.machine
        assert machine is not None
        self.disk.now = now = self.now
        try:
            if type(event) is Then:
                self._carry_out(event.effects)
            else:
                effects = machine.handle(event, now)
                self._carry_out(effects)
                if type(event) is Frames:
                    _spoil(event)
                elif type(event) is Reads:
                    for frames in event.frames:
                        _spoil(frames)
            self._events += 1
            if self.machine is machine and self._events % self.validate_every == 0:
                machine.validate()
        except RemoteProtocolError as error:
            if type(event) is Frames:
                self._rare(Close(event.conn, str(error)))
            else:
                self.on_error(error)
        except (ConfigError, StoreError, OSError) as error:
            if type(event) is Start:
                self._rare(Stop(f"can't start: {error}"))
            else:
                self.on_error(error)
        except Violation:
            raise
        except Exception as error:
            self.on_error(error)
        if type(event) is Start and self.machine is machine:
            self.on_started()
        self.after_event()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        if not effects and not self._jobs:
            return
        writes: dict[int, list[Any]] = {}
        for effect in effects:
            kind = type(effect)
            if kind is Write:
                data = effect.data  # type: ignore[union-attr]
                pieces = writes.setdefault(effect.conn, [])  # type: ignore[union-attr]
                if type(data) is bytes or isinstance(data, (bytearray, memoryview)):
                    pieces.append(data)
                else:
                    pieces.extend(data)
            elif kind is Flush or kind is SaveState:
                self._jobs.append(Job(effect, self.on_job(effect)))  # type: ignore[arg-type]
            elif kind is Fetch:
                self._fetch_soon(effect)  # type: ignore[arg-type]
            elif kind is Feed:
                self._inbox.append(effect.event)  # type: ignore[union-attr]
                assert len(self._inbox) < MAX_CHAIN, f"{self.name} feeds itself without end"
            else:
                if kind is Stop and effect.reason:  # type: ignore[union-attr]
                    writes.clear()
                if writes:
                    self._send(writes)
                self._rare(effect)
                if kind is Stop:
                    return
        if writes:
            self._send(writes)
        if self._job is None and self._jobs:
            self._next_job()

    def _send(self, writes: dict[int, list[Any]]) -> None:
        for conn, pieces in writes.items():
            end = self._ends.get(conn)
            if end is not None:
                only = pieces[0] if len(pieces) == 1 else None
                self.network.write(end, only if type(only) is bytes else b"".join(pieces))
        writes.clear()

    def _rare(self, effect: Effect) -> None:
        if isinstance(effect, Close):
            end = self._ends.pop(effect.conn, None)
            if end is not None:
                self.scheduler.note(self.name, f"closes #{end.id}: {effect.reason}")
                self.network.close(end, effect.reason)
                self._inbox.append(Closed(effect.conn, effect.reason))
        elif isinstance(effect, Connect):
            self.network.dial(self, self.ip, effect.address, effect.listener, effect.complete)
        elif isinstance(effect, Resolve):
            self.scheduler.after(self._reads.randint(*LOOKUP_US), self._resolved, self.lives, effect)
        elif isinstance(effect, Note):
            self.scheduler.note(self.name, f"{effect.level}: {effect.text}")
            self.on_note(effect.text)
            if effect.level == "error" and "Traceback" in effect.text:
                raise Violation("no unexpected exception", effect.text)
        elif isinstance(effect, Stop):
            self._die(f"stops: {effect.reason or 'cleanly'}", lambda: self.random.randint(50, 2_000))
            self.disk.kill()
            self.on_end(effect.reason)
        else:
            raise AssertionError(f"{self.name}: unknown effect {effect!r}")

    def _set_timer(self) -> None:
        machine = self.machine
        if machine is None or self._stalled:
            return
        deadline = self._deadline = machine.next_deadline()
        if deadline is not None:
            self._wake_at(deadline)

    def _wake_at(self, deadline: Millis) -> None:
        at = (deadline - EPOCH_MS - self.clock_ms) * US_PER_MS
        if self.drift_ppm:
            at = -(-at * US_PER_S // (US_PER_S + self.drift_ppm))
        at = max(at, self.scheduler.now_us + 1)
        if self._timer is None or at < self._timer_us:
            Scheduler.cancel(self._timer)
            self._timer_us = at
            self._timer = self.scheduler.at(at, self._tick, self.lives)

    def _tick(self, life: int) -> None:
        if life != self.lives:
            return
        self._timer = None
        machine = self.machine
        if machine is None or self._stalled:
            return
        deadline = self._deadline
        if deadline is not None and deadline <= self.now:
            self._give(Tick())
        elif deadline is not None:
            self._wake_at(deadline)

    # ---- the disk's side ----

    def _next_job(self) -> None:
        self._job = job = self._jobs.popleft()
        effect = job.effect
        if isinstance(effect, Flush):
            for file in effect.files:
                if isinstance(file, SimFile):
                    file.begin_sync()
            self.scheduler.after(self.random.randint(*self.sync_us), self._step, self.lives, self._flush, job)
        else:
            self.scheduler.after(self.random.randint(*STEP_US), self._step, self.lives, self._save_write, job)

    def _step(self, life: int, step: Callable[[Job], None], job: Job) -> None:
        """One step of a job; the process may die within it."""
        if life != self.lives or self.machine is None:
            return
        self.disk.now = self.now
        try:
            step(job)
        except CrashPoint as point:
            self.count(f"crash in a job: {'flush' if isinstance(job.effect, Flush) else 'save'}")
            self.crash(f"killed in {point}")
            self.on_end("crash point")
        except OSError as error:
            path = job.effect.path if isinstance(job.effect, SaveState) else error.filename or ""
            self.scheduler.note(self.name, f"disk failed: {error}")
            self._job = None
            self._give(DiskFailed(str(path), str(error)))
            if self._job is None and self._jobs:
                self._next_job()

    def _flush(self, job: Job) -> None:
        assert isinstance(job.effect, Flush)
        for file in job.effect.files:
            if file.path in self._lost:
                raise OSError(errno.EIO, "an earlier sync of it failed", file.path)
            try:
                if isinstance(file, SimFile) and file.syncing is not None:
                    file.end_sync()
                else:
                    file.sync()
            except OSError:
                self._lost.add(file.path)
                raise
        self._done(job)

    def _save_write(self, job: Job) -> None:
        assert isinstance(job.effect, SaveState)
        job.new_folders = self.disk.names.missing_folders(job.effect.path)
        self.disk.write(job.effect.path + ".tmp", job.effect.data)
        self.scheduler.after(self.random.randint(*self.sync_us), self._step, self.lives, self._save_sync, job)

    def _save_sync(self, job: Job) -> None:
        assert isinstance(job.effect, SaveState)
        self.disk.sync_file(job.effect.path + ".tmp")
        self.scheduler.after(self.random.randint(*STEP_US), self._step, self.lives, self._save_rename, job)

    def _save_rename(self, job: Job) -> None:
        assert isinstance(job.effect, SaveState)
        self.disk.rename(job.effect.path + ".tmp", job.effect.path)
        self.scheduler.after(self.random.randint(*STEP_US), self._step, self.lives, self._save_dir, job)

    def _save_dir(self, job: Job) -> None:
        assert isinstance(job.effect, SaveState)
        self.disk.sync_dir(parent(job.effect.path))
        for folder in reversed(job.new_folders):
            self.disk.sync_dir(parent(folder))
        self._done(job)

    def _done(self, job: Job) -> None:
        """The job is durable: its `then` may leave."""
        self._job = None
        effect = job.effect
        if isinstance(effect, SaveState):
            self.scheduler.note(self.name, f"saved {effect.path}")
        elif effect.files:
            self.scheduler.note(self.name, f"synced {', '.join(file.path or '/' for file in effect.files)}")
        if job.durable is not None:
            job.durable()
        self._inbox.append(Then(effect.then))
        if not self._handling and not self._stalled:
            self._work()
        if self._job is None and self._jobs:
            self._next_job()

    def _fetch_soon(self, effect: Fetch) -> None:
        """The reader thread's part: besides the jobs, each in its own time."""
        delay_us = self._reads.randint(*FETCH_US)
        self.scheduler.after(delay_us, self._fetched, self.lives, effect)

    def _fetched(self, life: int, effect: Fetch) -> None:
        if life != self.lives or self.machine is None:
            return
        try:
            for file, offset, length in effect.parts:
                file.fetch(offset, length)
            then = effect.then
            self.count("fetched from the disk")
        except OSError as error:
            self.scheduler.note(self.name, f"disk failed: {error}")
            then = effect.failed
            self.count("a fetch failed")
        self._inbox.append(Then(then))
        if not self._handling and not self._stalled:
            self._work()

    def _resolved(self, life: int, effect: Resolve) -> None:
        if life == self.lives:
            found = {name: self.network.resolve(self.name, name) for name in effect.names}
            self.count("name resolved" if all(found.values()) else "a name could not be resolved")
            self._give(Resolved(found))

    def _die(self, why: str, hears_us: Callable[[], int]) -> None:
        if self.machine is None:
            return
        self.scheduler.note(self.name, why)
        self.machine = None
        self._ends.clear()
        self._inbox.clear()
        self._jobs.clear()
        self._job = None
        Scheduler.cancel(self._timer)
        self._timer = None
        self.network.kill(self, hears_us)


def _reraise(error: BaseException) -> None:
    raise error
