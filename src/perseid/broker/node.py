"""The broker as one node: events in, effects out.

One `handle` is one turn (`kernel.turn`). Frames are decoded and each request goes to its route (`kernel.dispatch`);
what the turn appended wakes held pulls; what it changed in the tables is saved (`kernel.saves`); acknowledgements wait
until their messages are as durable as the mode promises (`kernel.durability`); answers are gathered, one write a
connection.

States: new → (`Start`: recovery) running → (`Shutdown`) ending → ended. A failed fsync ends the node: what the kernel
dropped can't be written again, so nothing more may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from perseid.base import machine
from perseid.base.machine import DiskFailed, Effect, Event, Feed, Frames, Millis, Reads, Stop
from perseid.broker.capabilities import ENDING, SETTLING, arrange, capabilities
from perseid.broker.composition import Parts
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.fetches import Fetched
from perseid.broker.kernel.capability import in_order
from perseid.broker.kernel.saves import Saved
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig
from perseid.store.results import Flushed, StoreEvent
from perseid.store.truncation import Cut

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
        """`raft`: the log is that of a group, made by `new_log`. `kept`: the file of settings (`live_settings`), or why
        there is none."""
        self.parts = p = Parts(config, store_config, replication or ReplicationConfig(), raft, disk, random, new_log)
        if p.group is not None:
            p.group.fail = self.fail
        p.take_settings(properties, *kept)
        self._turn, self._dispatch = p.turn, p.dispatch
        self._state = "new"
        self._deadline: Millis = 0
        self.capabilities = found = capabilities(p, self._on_cut)
        self._timers = arrange(p, found)
        self._settles = in_order(SETTLING, [step for one in found for step in one.settles])
        self._ends = in_order(ENDING, [step for one in found for step in one.ends])
        self._kinds = [(StoreEvent, self._on_store), *(one.takes for one in found if one.takes is not None)]
        self._events = self._handlers()

    def _handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with each kind of event."""
        p = self.parts
        own: dict[type[Any], Callable[[Any], None]] = {
            Frames: lambda event: p.intake.take((event,)),
            Reads: lambda event: p.intake.take(event.frames),
            machine.Opened: p.connections.opened,
            machine.Closed: p.connections.closed,
            machine.ConnectFailed: p.connections.connect_failed,
            machine.Tick: lambda event: self._tick(),
            machine.Start: lambda event: self._start(),
            machine.Shutdown: lambda event: self._shut_down(),
            DiskFailed: self._on_disk_failed,
            Flushed: self._on_flushed,
            Fetched: self._on_fetched,
            Saved: p.saves.saved,
            _Ended: lambda event: self._end(""),
        }
        return own | {kind: do for one in self.capabilities for kind, do in one.events.items()}

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn. StoreError when the store can't be opened at `Start`."""
        effects = self._turn.begin(now)
        self._dispatch.only_plain = self.parts.group is None and type(event) in (Reads, Frames)
        if self._state == "ended":
            return effects
        self.parts.durability.begin()
        handler = self._events.get(type(event)) or self._of_a_kind(event)
        assert handler is not None, f"no event of a broker: {event!r}"
        handler(event)
        if self._state != "ended":
            self._settle()
        return effects

    def _of_a_kind(self, event: Event) -> Callable[[Any], None] | None:
        return next((do for kind, do in self._kinds if isinstance(event, kind)), None)

    def next_deadline(self) -> Millis | None:
        if self._state != "running":
            return None
        if self._dispatch.only_plain:  # only the store may have something to do sooner than before: look again soon
            return min(self._deadline, self._turn.now + SOON_MS)
        self._deadline = min(due for timer in self._timers if (due := timer.next_deadline()) is not None)
        return self._deadline

    def validate(self) -> None:
        if self._state == "running":
            for capability in self.capabilities:
                for check in capability.checks:
                    check()

    def _settle(self) -> None:
        """Finish a turn: wake held pulls, ask for the flush that acknowledgements wait for, write."""
        p = self.parts
        for step in self._settles:
            step.do()
        ready = p.holds.take_ready(self._turn.now)
        while ready:
            for request in ready:
                self._dispatch.request(request)
            ready = p.holds.take_ready(self._turn.now)
        p.saves.settle()
        p.durability.settle()
        self._turn.end()
        self._dispatch.close_refused()

    def _tick(self) -> None:
        if self._state == "running":
            for timer in self._timers:
                timer.tick(self._turn.now)

    # ---- the disk ----

    def _on_store(self, event: StoreEvent) -> None:
        self._turn.emit_all(self.parts.store.handle(event))

    def _on_flushed(self, event: Flushed) -> None:
        self.parts.durability.flushed()
        self._on_store(event)

    def _on_fetched(self, event: Fetched) -> None:
        request = self.parts.fetches.fetched(event)
        if self.parts.connections.get(request.conn.id) is request.conn:
            self.parts.fetches.answer(event, self._dispatch.request)

    def _on_cut(self, event: Cut) -> None:
        """A new master's log, or a new leader's, goes another way. What a disk that fails leaves of a cut is what a
        crash leaves of one: the broker stops, and a start takes it up."""
        try:
            self.parts.timers.cut(event)
        except OSError as error:
            self.fail(f"the log could not be cut at {event.end}: {error}; restart to recover")

    def _on_disk_failed(self, event: DiskFailed) -> None:
        if self.parts.saves.failed(event):
            if self._state == "ending":
                self._end(f"{event.path} was not saved: {event.reason}")
        elif not any(lives_on(event) for one in self.capabilities for lives_on in one.failures):
            self.fail(
                f"{event.path}: {event.reason}",
                f"{event.path}: {event.reason}: what was not yet durable may be lost; restart to recover",
            )

    # ---- begin and end ----

    def _start(self) -> None:
        p, now = self.parts, self._turn.now
        p.saves.load_first()  # the store makes queues of their kind
        for note in p.store.load(now).notes:
            self._turn.note("info", note)
        p.arrivals.listen()
        p.saves.load(now)
        for one in self.capabilities:
            for load in one.loads:
                load(now)
        p.roles.start()
        self._state = "running"
        self._dispatch.serves = True
        p.saves.tables()
        p.replicas.start(now)

    def _shut_down(self) -> None:
        if self._state != "running":
            self._stop("")
            return
        self._state = "ending"
        self._dispatch.serves = False
        for step in self._ends:
            step.do()
        self.parts.saves.everything([Feed(_Ended())])

    def _end(self, reason: str) -> None:
        """Close the store, give the last answers, and stop: cleanly when there is no reason against it."""
        self.parts.timers.close()
        failure = self.parts.store.close(self._turn.now)
        if failure:
            self._stop(f"{failure}; the next start checks all of it")
            return
        self.parts.durability.release()
        self._settle()
        self._stop(reason)

    def fail(self, reason: str, text: str = "") -> None:
        """Nothing may be promised any more: end here and now. `text`: what people are told."""
        self.parts.store.fail(reason)
        self._stop(text or reason)

    def _stop(self, reason: str) -> None:
        self._state = "ended"
        self._dispatch.serves = False
        self._turn.emit(Stop(reason))
