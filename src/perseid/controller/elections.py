"""When the controller elects by itself, and whom it tells (controller.md §6.1, 7).

- A master dies: its channel closes, or it has been silent for too long. At once.
- A broker comes alive whose set has no master alive. At once.
- Each `scanInactiveMasterInterval`, and when we become active, all sets are looked through for that.

An election that elects nobody is not made again before somebody could be elected: the original makes it three times,
and raises the epoch each time (B23).

After an election all brokers of the set that are alive are told, and a master that was not alive then when it comes
back. A controller that becomes active tells what was elected shortly before: the one that did it may have died before
it told anyone. Notices get no answer, and may be lost: brokers ask too, each few seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from perseid.base.machine import Buffer, Millis
from perseid.controller import commands
from perseid.controller.commands import Facts, Outcome
from perseid.controller.events import ElectMaster, Event
from perseid.controller.live import Row
from perseid.controller.state import SyncState
from perseid.controller.writes import Writes
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.controller import SyncStateSet
from perseid.wire.headers.base import Header
from perseid.wire.headers.controller import ElectMasterRequest, NotifyBrokerRoleChangedRequest

NOTICE_TIMEOUT_MS = 3_000
AGAIN_MS = 15_000
"""What was elected within this is told again by the next controller: so long may a broker not ask for itself."""
MAX_RECENT = 10_000


class Electing(Facts, Protocol):
    """The controller that elects."""

    active: bool

    def note(self, level: str, text: str) -> None: ...

    def is_member(self, address: str) -> bool:
        """Is this the address of a controller of the group?"""

    def tell(self, address: str, code: RequestCode, header: Header, body: Buffer, timeout_ms: Millis) -> None:
        """Send a broker a request without an answer."""


@dataclass(slots=True)
class Elections:
    """Of one controller."""

    controller: Electing
    writes: Writes
    scan_at: Millis = 0
    recent: deque[tuple[Millis, str]] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    """When a set's last elections were applied here."""
    _under_way: set[str] = field(default_factory=set)

    # ---- what happens ----

    def applied(self, event: Event) -> None:
        """An event is applied, on any member."""
        if isinstance(event, ElectMaster) and event.new_master_elected:
            self.recent.append((self.controller.now, event.broker_name))

    def activated(self) -> None:
        """We are the active controller now."""
        self._under_way.clear()
        now = self.controller.now
        for name in dict.fromkeys(name for at, name in self.recent if at >= now - AGAIN_MS):
            self.notify(name)
        self.scan()

    def died(self, row: Row) -> None:
        """A broker is dead; a slave is left to its master."""
        state = self._state(row)
        if state is not None and state.master == row.broker_id:
            self.elect(row.name)

    def broker_appeared(self, row: Row) -> None:
        """A broker is alive that was not before."""
        state = self._state(row)
        if state is None:
            return
        if self._needs(state):
            self.elect(row.name)
        elif state.master is not None and state.master != row.broker_id:
            self._tell(state, row.broker_id)

    def tick(self, now: Millis) -> None:
        if now >= self.scan_at:
            self.scan()

    def scan(self) -> None:
        """Look through all sets."""
        controller = self.controller
        self.scan_at = controller.now + controller.config.scan_inactive_master_interval
        if controller.now < controller.live.judging_from:  # some can't be judged yet
            self.scan_at = min(self.scan_at, max(controller.live.judging_from, controller.now + 1))
        for name, state in list(controller.tables.in_sync.items()):
            if name in controller.tables.replicas and self._needs(state):
                self.elect(name)

    # ---- elections ----

    def _state(self, row: Row) -> SyncState | None:
        """Of the row's set, if the row is one of its brokers'."""
        tables = self.controller.tables
        if tables.address(row.name, row.broker_id) is None or not tables.known(row.name):
            return None
        state = tables.in_sync[row.name]
        return state if state.cluster == row.key[0] else None

    def _needs(self, state: SyncState) -> bool:
        """Is there no master alive, and somebody to be made one? A set without brokers alive keeps the master that it
        had."""
        live, now = self.controller.live, self.controller.now
        if state.master_epoch == 0:
            return False  # its brokers elect the first one
        if state.master is not None:
            if live.may_live(state.cluster, state.name, state.master, now):
                return False
            brokers = self.controller.tables.replicas[state.name].brokers
            return any(live.alive(state.cluster, state.name, one) for one in brokers)
        unclean = self.controller.config.enable_elect_unclean_master
        able = self.controller.tables.replicas[state.name].brokers if unclean else state.members
        return any(live.alive(state.cluster, state.name, one) for one in able)

    def elect(self, name: str) -> None:
        """Elect a master for a set, if we are still active when it is its turn."""
        controller = self.controller
        if not controller.active or name in self._under_way:
            return
        self._under_way.add(name)
        request = ElectMasterRequest(broker_name=name)

        def answer(outcome: Outcome) -> None:
            self._under_way.discard(name)
            self.ended(name, outcome)

        self.writes.submit(name, lambda: commands.elect_master(controller, request), answer)

    def ended(self, name: str, outcome: Outcome) -> None:
        """An election of ours, a broker's or a tool's has ended."""
        reply, state = outcome.reply, self.controller.tables.in_sync.get(name)
        if reply.code == ResponseCode.SUCCESS and outcome.elected and state is not None:
            self.controller.note(
                "info", f"{name}: broker {state.master} is master in epoch {state.master_epoch}"
            )
            self.notify(name)
        elif outcome.events:
            self.controller.note("warning", f"{name}: no broker in sync is alive, there is no master")

    # ---- notices ----

    def notify(self, name: str) -> None:
        """Tell the brokers of a set that are alive who is master."""
        tables = self.controller.tables
        if not tables.known(name):
            return
        state = tables.in_sync[name]
        if state.master is None:
            return
        # first the new master: nobody writes before it knows
        for broker_id in sorted(tables.replicas[name].brokers, key=lambda one: (one != state.master, one)):
            if self.controller.live.alive(state.cluster, name, broker_id):
                self._tell(state, broker_id)

    def _tell(self, state: SyncState, broker_id: int) -> None:
        controller = self.controller
        address = controller.tables.address(state.name, broker_id)
        if address is None or not controller.config.notify_broker_role_changed or controller.is_member(address):
            return
        master = controller.tables.address(state.name, state.master)
        header = NotifyBrokerRoleChangedRequest(master, state.master, state.master_epoch, state.epoch)
        body = SyncStateSet(sorted(state.members), state.epoch).to_json()
        controller.tell(address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body, NOTICE_TIMEOUT_MS)
