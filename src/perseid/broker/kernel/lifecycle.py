"""A broker's life: how it begins, what it does when a disk fails, and how it ends.

    new → (`begin`: recovery) running → (`shut_down`) ending → ended

A clean stop saves all state files behind a flush of the log, gives the last answers, and closes the store. A failed
fsync ends the broker at once: what the kernel dropped can't be written again, so nothing more may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perseid.base.machine import DiskFailed, Feed, Stop
from perseid.broker.kernel.capability import Capability, Step
from perseid.broker.kernel.dispatch import Dispatch
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.saves import Saves
from perseid.broker.kernel.turn import Turn
from perseid.store.store import MessageStore
from perseid.store.truncation import Cut


class AllSaved:
    """Fed back when everything that a shutdown had to save is durable."""


class Lifecycle:
    """That of one broker. `state`: new, running, ending or ended."""

    def __init__(
        self, turn: Turn, dispatch: Dispatch, store: MessageStore, saves: Saves, durability: Durability, roles: Roles
    ) -> None:
        self.state = "new"
        self._turn = turn
        self._dispatch = dispatch
        self._store = store
        self._saves = saves
        self._durability = durability
        self._roles = roles
        self._capabilities: Sequence[Capability] = ()
        self._ends: Sequence[Step] = ()
        self._settle: Callable[[], None] = lambda: None

    def take(self, capabilities: Sequence[Capability], ends: Sequence[Step], settle: Callable[[], None]) -> None:
        """Take the parts that begin and end with the broker; `settle` ends a turn."""
        self._capabilities, self._ends, self._settle = capabilities, ends, settle

    # ---- begin ----

    def begin(self, listen: Callable[[], None]) -> None:
        """Take up what an earlier life left. StoreError when the store can't be opened. `listen`: from then on appends
        are heard of."""
        now = self._turn.now
        self._saves.load_first()  # the store makes queues of their kind
        for note in self._store.load(now).notes:
            self._turn.note("info", note)
        listen()
        self._saves.load(now)
        for one in self._capabilities:
            for load in one.loads:
                load(now)
        self._roles.start()
        self.state = "running"
        self._dispatch.serves = True
        self._saves.tables()
        for one in self._capabilities:
            for begin in one.begins:
                begin(now)

    # ---- the disk ----

    def cut(self, event: Cut, cut: Callable[[Cut], None]) -> None:
        """A new master's log, or a new leader's, goes another way: `cut` ours. What a disk that fails leaves of that is
        what a crash leaves of one: the broker stops, and a start takes it up."""
        try:
            cut(event)
        except OSError as error:
            self.fail(f"the log could not be cut at {event.end}: {error}; restart to recover")

    def disk_failed(self, event: DiskFailed) -> None:
        """Live on if a file can be written again, or does without; end else."""
        if self._saves.failed(event):
            if self.state == "ending":
                self._end(f"{event.path} was not saved: {event.reason}")
        elif not any(lives_on(event) for one in self._capabilities for lives_on in one.failures):
            self.fail(
                f"{event.path}: {event.reason}",
                f"{event.path}: {event.reason}: what was not yet durable may be lost; restart to recover",
            )

    # ---- end ----

    def shut_down(self) -> None:
        """End cleanly."""
        if self.state != "running":
            self._stop("")
            return
        self.state = "ending"
        self._dispatch.serves = False
        for step in self._ends:
            step.do()
        self._saves.everything([Feed(AllSaved())])

    def all_saved(self, event: AllSaved) -> None:
        """Everything is durable."""
        self._end("")

    def _end(self, reason: str) -> None:
        """Close the store, give the last answers, and stop: cleanly when there is no reason against it."""
        for one in self._capabilities:
            for close in one.closes:
                close()
        failure = self._store.close(self._turn.now)
        if failure:
            self._stop(f"{failure}; the next start checks all of it")
            return
        self._durability.release()
        self._settle()
        self._stop(reason)

    def fail(self, reason: str, text: str = "") -> None:
        """Nothing may be promised any more: end here and now. `text`: what people are told."""
        self._store.condition.fail(reason)
        self._stop(text or reason)

    def _stop(self, reason: str) -> None:
        self.state = "ended"
        self._dispatch.serves = False
        self._turn.emit(Stop(reason))
