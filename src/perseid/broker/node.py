"""The broker as one node: events in, effects out.

One `handle` is one turn (`kernel.turn`). Frames are decoded and each request goes to its route (`kernel.dispatch`);
what the turn appended wakes held pulls; what it changed in the tables is saved (`saves`); acknowledgements wait until
their messages are as durable as the mode promises (`kernel.durability`); answers are gathered, one write a connection.

States: new → (`Start`: recovery) running → (`Shutdown`) ending → ended. A failed fsync ends the node: what the kernel
dropped can't be written again, so nothing more may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from perseid.base.machine import (
    Closed,
    ConnectFailed,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Frames,
    Millis,
    Opened,
    Reads,
    Shutdown,
    Start,
    Stop,
    Tick,
)
from perseid.broker.admin.live_settings import Kept
from perseid.broker.composition import Parts
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.fetches import Fetched
from perseid.broker.kernel.request import Reply
from perseid.broker.kernel.saves import Saved
from perseid.broker.scheduled.timers import CheckpointSaved
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.state import RaftEvent
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig
from perseid.store.results import Flushed, StoreEvent
from perseid.store.timer.timers import TimerLogDurable
from perseid.store.truncation import Cut
from perseid.wire.codes import ResponseCode

HOUSEKEEPING_MS = 10_000
SOON_MS = 50
"""After a turn of plain sends only, deadlines are not worked out anew until this has passed."""


class _Ended:
    """Fed back when everything that a shutdown had to save is durable."""


class Broker:
    """A broker on a disk. `properties` gives its configuration under the original's names (code 26)."""

    def __init__(
        self, config: BrokerConfig, store_config: StoreConfig, disk: Disk, random: Random, *,
        properties: Callable[[], dict[str, str]] | None = None, kept: tuple[str, str] = ("", ""),
        replication: ReplicationConfig | None = None, raft: RaftConfig | None = None,
        new_log: type[FileLog] = FileLog,
    ) -> None:  # fmt: skip
        """`raft`: the log is that of a group, made by `new_log`. `kept`: the file of settings (`live`), or why none."""
        self.parts = parts = Parts(
            config, store_config, replication or ReplicationConfig(), raft, disk, random, new_log
        )
        if parts.group is not None:
            parts.group.fail = self.fail
        parts.connect(properties, *kept)
        self._turn, self._dispatch, self._durability = parts.turn, parts.dispatch, parts.durability
        self._state = "new"
        self._housekeeping_at = self._deadline = 0
        self._deadlines: list[Callable[[], Millis | None]] = []
        self._events = self._handlers()

    def _handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with each kind of event."""
        parts = self.parts
        return {
            Frames: lambda event: parts.intake.take((event,)),
            Reads: lambda event: parts.intake.take(event.frames),
            Opened: parts.connections.opened,
            Closed: parts.connections.closed,
            ConnectFailed: parts.connections.connect_failed,
            Tick: self._on_tick,
            Flushed: self._on_flushed,
            Fetched: self._on_fetched,
            DiskFailed: self._on_disk_failed,
            Start: self._on_start,
            Shutdown: self._on_shutdown,
            Saved: parts.saves.saved,
            Kept: parts.live.kept,
            Cut: self._on_cut,
            TimerLogDurable: parts.timers.durable,
            CheckpointSaved: parts.timers.saved,
            _Ended: lambda event: self._end(""),
            **parts.replicas.handlers(),
        }

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn. StoreError when the store can't be opened at `Start`."""
        out = self._turn.begin(now)
        parts = self.parts
        self._dispatch.only_plain = parts.group is None and type(event) in (Reads, Frames)
        if self._state == "ended":
            return out
        self._durability.begin()
        handler = self._events.get(type(event))
        if handler is not None:
            handler(event)
        elif isinstance(event, StoreEvent):
            out.extend(parts.store.handle(event))
        elif isinstance(event, RaftEvent) and parts.group is not None:
            parts.group.feed(event)
        else:
            raise AssertionError(f"no event of a broker: {event!r}")
        if self._state != "ended":
            self._settle()
        return out

    def next_deadline(self) -> Millis | None:
        if self._state != "running":
            return None
        if self._dispatch.only_plain:  # only the store may have something to do sooner than before: look again soon
            return min(self._deadline, self._turn.now + SOON_MS)
        deadline = self._housekeeping_at
        for next_deadline in self._deadlines:
            if (due := next_deadline()) is not None and due < deadline:
                deadline = due
        self._deadline = deadline
        return deadline

    def validate(self) -> None:
        if self._state != "running":
            return
        parts = self.parts
        for part in (
            parts.store, parts.topics, parts.mappings, parts.groups, parts.offsets, parts.locks, parts.holds,
            parts.timers, parts.peers, parts.replicas,
        ):  # fmt: skip
            part.validate()
        if not parts.roles.is_slave:
            for service in (parts.delay, parts.transactions, parts.pop, parts.lite):
                service.validate()
        for machinery in (self._durability, parts.saves, self._turn):
            machinery.validate()

    # ---- time and durability ----

    def _on_tick(self, event: Tick) -> None:
        if self._state != "running":
            return
        parts, now = self.parts, self._turn.now
        self._durability.tick(now)
        if not parts.roles.is_slave or parts.escape.on:
            parts.delay.tick(now)
            parts.transactions.tick(now)
        if not parts.roles.is_slave:
            parts.pop.tick(now)
        parts.lite.tick(now)
        parts.timers.tick(now)
        parts.replicas.tick(now)
        self._turn.emit_all(parts.store.tick(now))
        self._turn.emit_all(parts.caller.handle(event, now))
        parts.registration.tick(now)
        parts.static_cleaner.tick(now)
        parts.saves.tick(now)
        parts.quick.count()
        if parts.timers.quick is not None:
            parts.timers.quick.count()
        parts.stats.tick(now)
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_MS
            parts.generation.rise()
            parts.producers.expire(now)
            parts.consumers.expire(now)
            parts.locks.expire(now)

    def _on_flushed(self, event: Flushed) -> None:
        self._durability.flushed()
        self._turn.emit_all(self.parts.store.handle(event))

    def _on_fetched(self, event: Fetched) -> None:
        request = self.parts.fetches.fetched(event)
        if self.parts.connections.get(request.conn.id) is not request.conn:
            return
        if event.failed:
            self._turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark="the disk can't read these messages"))
        else:
            self._dispatch.request(request)

    def _on_cut(self, event: Cut) -> None:
        """A new master's log, or a new leader's, goes another way. What a disk that fails leaves of a cut is what a
        crash leaves of one: the broker stops, and a start takes it up."""
        try:
            self.parts.timers.cut(event)
        except OSError as error:
            self.fail(f"the log could not be cut at {event.end}: {error}; restart to recover")

    def _on_disk_failed(self, event: DiskFailed) -> None:
        parts = self.parts
        if parts.group is not None and event.path.startswith(parts.group.folder):
            parts.group.feed(event)
            return
        if parts.saves.failed(event):
            if self._state == "ending":
                self._end(f"{event.path} was not saved: {event.reason}")
            return
        if parts.live.failed(event):
            return
        if parts.timers.failed(event) or parts.store.lives_on(event, self._turn.now):
            self._turn.note("error", f"{event.path} could not be saved: {event.reason}; tried again")
            return
        self.fail(
            f"{event.path}: {event.reason}",
            f"{event.path}: {event.reason}: what was not yet durable may be lost; restart to recover",
        )

    def fail(self, reason: str, text: str = "") -> None:
        """Nothing may be promised any more: end here and now. `text`: what people are told."""
        self.parts.store.fail(reason)
        self._stop(text or reason)

    def _stop(self, reason: str) -> None:
        self._state = "ended"
        self._dispatch.serves = False
        self._turn.emit(Stop(reason))

    def _settle(self) -> None:
        """Finish a turn: follow the group, wake held pulls, ask for the flush that acknowledgements wait for, write."""
        parts = self.parts
        parts.live.settle()
        parts.transactions.do_words(self._dispatch.request)
        parts.pop.settle()
        parts.replicas.settle()  # first: what a group has committed, pulls wait for
        ready = parts.holds.take_ready(self._turn.now)
        while ready:
            for request in ready:
                self._dispatch.request(request)
            ready = parts.holds.take_ready(self._turn.now)
        parts.saves.settle()
        self._durability.settle()
        self._turn.end()
        self._dispatch.close_refused()

    # ---- begin and end ----

    def _on_start(self, event: Start) -> None:
        parts, now = self.parts, self._turn.now
        parts.saves.load_first()  # the store makes queues of their kind
        report = parts.store.load(now)
        for note in report.notes:
            self._turn.note("info", note)
        parts.arrivals.listen()
        parts.stats.start(now)
        parts.saves.load(now)
        parts.timers.load(now)
        parts.lite.load(now)
        if not parts.roles.is_slave:
            parts.delay.start(now)
            parts.timers.start(now)
            parts.transactions.start()
            parts.pop.start(now)
            parts.lite.start(now)
        parts.static_cleaner.start(now)
        self._housekeeping_at = now + HOUSEKEEPING_MS
        self._deadlines = [part.next_deadline for part in (
            parts.store, parts.holds, self._durability, parts.delay, parts.timers, parts.transactions, parts.pop,
            parts.lite, parts.stats, parts.caller, parts.registration, parts.saves, parts.static_cleaner,
            parts.replicas,
        )]  # fmt: skip
        self._state = "running"
        self._dispatch.serves = True
        parts.saves.tables()
        parts.replicas.start(now)

    def _on_shutdown(self, event: Shutdown) -> None:
        if self._state != "running":
            self._stop("")
            return
        parts = self.parts
        self._state = "ending"
        self._dispatch.serves = False
        parts.registration.stop(self._turn.now)
        parts.replicas.stop()
        parts.pop.tell_progress()
        if parts.group is not None:
            parts.group.stop([])
        parts.saves.everything([Feed(_Ended())])

    def _end(self, reason: str) -> None:
        """Close the store, give the last answers, and stop: cleanly when there is no reason against it."""
        self.parts.timers.close()
        failure = self.parts.store.close(self._turn.now)
        if failure:
            self._stop(f"{failure}; the next start checks all of it")
            return
        self._durability.release()
        self._settle()
        self._stop(reason)
