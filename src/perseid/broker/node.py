"""The broker as one node: events in, effects out.

One `handle` is one turn (`kernel.turn`). Frames are decoded and each request goes to its route (`kernel.dispatch`);
what the turn appended wakes held pulls; what it changed in the tables is saved (`kernel.saves`); acknowledgements wait
until their messages are as durable as the mode promises (`kernel.durability`); answers are gathered, one write a
connection.

How it begins and ends is `kernel.lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from perseid.base import machine
from perseid.base.machine import Effect, Event, Frames, Millis, Reads
from perseid.broker.access.config import Access
from perseid.broker.capabilities import SETTLING, arrange, capabilities
from perseid.broker.composition import Parts
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.capability import in_order, never
from perseid.broker.kernel.lifecycle import AllSaved
from perseid.broker.kernel.saves import Saved
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import EntriesFlushed
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig
from perseid.store.results import Flushed, StoreEvent

SOON_MS = 50
"""After a turn of plain sends only, or of a flush, most deadlines are not worked out anew until this has passed."""
QUIET = frozenset({Reads, Frames, Flushed, EntriesFlushed})
"""Events after which only the store and prompt timers may have something to do sooner than before, unless requests came
that are not plain sends."""


class Broker:
    """A broker on a disk. `properties` gives its configuration under the original's names (code 26)."""

    def __init__(
        self, config: BrokerConfig, store_config: StoreConfig, disk: Disk, random: Random, *,
        properties: Callable[[], dict[str, str]] | None = None, kept: tuple[str, str] = ("", ""),
        replication: ReplicationConfig | None = None, raft: RaftConfig | None = None,
        new_log: type[FileLog] = FileLog, access: Access | None = None,
    ) -> None:  # fmt: skip
        """`raft`: the log is that of a group, made by `new_log`. `kept`: the file of settings (`live_settings`), or why
        there is none. `access`: who may do what; None: everybody everything."""
        self.parts = p = Parts(
            config, store_config, replication or ReplicationConfig(), raft, disk, random, new_log,
            access or Access(),
        )
        p.take_settings(properties, *kept)
        self._turn, self._lifecycle, self._dispatch, self._durability = p.turn, p.lifecycle, p.dispatch, p.durability
        self._holds, self._saves = p.holds, p.saves
        self._deadline: Millis = 0
        self.capabilities = found = capabilities(p)
        self._timers = arrange(p, found, self._settle)
        self._deadlines = [timer.next_deadline for timer in self._timers if timer.next_deadline is not never]
        self._prompt = [timer.next_deadline for timer in self._timers if timer.prompt]
        self._settles = tuple(step.do for step in in_order(SETTLING, [step for one in found for step in one.settles]))
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
            machine.Start: lambda event: p.lifecycle.begin(p.arrivals.listen),
            machine.Shutdown: lambda event: p.lifecycle.shut_down(),
            machine.DiskFailed: p.lifecycle.disk_failed,
            Flushed: self._on_flushed,
            Saved: p.saves.saved,
            AllSaved: p.lifecycle.all_saved,
        }
        return own | {kind: do for one in self.capabilities for kind, do in one.events.items()}

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn. StoreError when the store can't be opened at `Start`."""
        effects = self._turn.begin(now)
        kind = type(event)
        self._dispatch.only_plain = kind in QUIET
        if self._lifecycle.state == "ended":
            return effects
        self._durability.begin()
        handler = self._events.get(kind) or self._of_a_kind(event)
        assert handler is not None, f"no event of a broker: {event!r}"
        handler(event)
        if self._lifecycle.state != "ended":
            self._settle()
        return effects

    def _of_a_kind(self, event: Event) -> Callable[[Any], None] | None:
        return next((do for kind, do in self._kinds if isinstance(event, kind)), None)

    def next_deadline(self) -> Millis | None:
        if self._lifecycle.state != "running":
            return None
        first: Millis | None = None
        some = self._deadlines
        if self._dispatch.only_plain:
            first, some = min(self._deadline, self._turn.now + SOON_MS), self._prompt
        for next_deadline in some:
            due = next_deadline()
            if due is not None and (first is None or due < first):
                first = due
        assert first is not None, "nothing is ever due"
        if some is self._deadlines:
            self._deadline = first
        return first

    def validate(self) -> None:
        if self._lifecycle.state == "running":
            for capability in self.capabilities:
                for check in capability.checks:
                    check()

    def _settle(self) -> None:
        """Finish a turn: wake held pulls, ask for the flush that acknowledgements wait for, write."""
        for settle in self._settles:
            settle()
        now = self._turn.now
        while ready := self._holds.take_ready(now):
            for request in ready:
                self._dispatch.request(request)
        self._saves.settle()
        self._durability.settle()
        self._turn.end()
        self._dispatch.close_refused()

    def _tick(self) -> None:
        if self._lifecycle.state == "running":
            for timer in self._timers:
                timer.tick(self._turn.now)

    # ---- the disk ----

    def _on_store(self, event: StoreEvent) -> None:
        self._turn.emit_all(self.parts.store.handle(event))

    def _on_flushed(self, event: Flushed) -> None:
        self.parts.durability.flushed()
        self._on_store(event)
