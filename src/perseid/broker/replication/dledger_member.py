"""A broker's place in its Raft group (enableDLegerCommitLog; dledger.md §9).

    slave → (elected, everything that the log holds is committed and has its unit) master → (leads no longer) slave

A leader is not a master at once: entries that an earlier leader acknowledged may be in its log without its knowing
that they are committed, and it must not count copies of an older term (Raft §5.4.2). So it appends a message of its
own, to a topic that no client can send to; when that is committed, so is all before it. The original counts instead.

The member runs inside the broker's turns: `feed` hands it an event, `settle` lets it push, sync and commit at the end
of each turn, and gives what is committed its units.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from perseid.base.deadlines import soonest
from perseid.base.machine import (
    Closed,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Frames,
    Millis,
    Opened,
    Start,
    Stop,
    Tick,
)
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import LISTENER, Raft
from perseid.raft.state import Role
from perseid.raft.store import GroupStore, divided_offset
from perseid.store.config import StoreConfig
from perseid.store.results import AppendRefused
from perseid.wire.bodies import MASTER_ID
from perseid.wire.host import host_from
from perseid.wire.names import SELF_TEST_TOPIC
from perseid.wire.record import Message

MARK = b"a new leader"
"""The body of the message that a leader commits older terms by."""


class DLedgerMember:
    """The member of one broker, and its store."""

    def __init__(
        self, turn: Turn, settings: Settings, roles: Roles, config: RaftConfig, store: StoreConfig, disk: Disk,
        random: Random, new_log: type[FileLog] = FileLog,
    ) -> None:  # fmt: skip
        """`new_log` makes the log of the group's entries."""
        self._turn = turn
        self._settings = settings
        self._roles = roles
        self._fail: Callable[[str], None] = _nobody_hears
        self._role_changed: Callable[[], None] = lambda: None
        self.folder = f"dledger-{config.self_id}/"
        sizes = config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index
        self._entries = new_log(disk, *sizes, folder=self.folder, base=divided_offset(disk, store))
        self.raft = Raft(config, self._entries, disk, random, folder=self.folder, takes_appends=False)
        host = host_from(self._settings.current.address)
        self.store = GroupStore(disk, store, host, self.raft, self._entries, self._begin)
        self.raft.on_commit = self.store.log.committed
        self.raft.on_role = self._changed
        self._addresses = frozenset(self.raft.member.peers.values())
        """Of the members, for each other."""
        self.is_master = False
        self._term = -1
        """Of our mastership."""
        self._marked = -1
        """The term in which we have appended the message of a new leader."""

    def join(self, fail: Callable[[str], None], role_changed: Callable[[], None]) -> None:
        """`fail` ends the broker. `role_changed` is told that the member has another role, but for our mastership."""
        self._fail, self._role_changed = fail, role_changed

    @property
    def has_leader(self) -> bool:
        """Is the leader of this term known?"""
        return self.raft.member.leader is not None

    @property
    def broker_id(self) -> int:
        """As it stands in the route: 0 for the master, else the number of the member's id and one."""
        return MASTER_ID if self.is_master else int(self.raft.config.self_id[1:]) + 1

    # ---- connections between members ----

    def takes(self, event: Opened) -> bool:
        """Is this one of them?"""
        return event.dialled in self._addresses if event.dialled else event.listener == LISTENER

    def owns(self, conn: ConnId) -> bool:
        """The same of one that is open."""
        return self.raft.owns(conn)

    def opened(self, event: Opened) -> None:
        self.feed(event)

    def received(self, event: Frames) -> None:
        self.feed(event)

    def closed(self, event: Closed) -> None:
        if self.raft.owns(event.conn):
            self.feed(event)

    def connect_failed(self, event: ConnectFailed) -> None:
        if event.address in self._addresses:
            self.feed(event)

    # ---- events ----

    def feed(self, event: Event) -> None:
        """Hand the member an event of its own; `settle` does what follows."""
        self._carry_out(self.raft.take(event, self._turn.now))

    def failed(self, event: DiskFailed) -> bool:
        """Is this a file of the member's? Then it says what follows."""
        own = event.path.startswith(self.folder)
        if own:
            self.feed(event)
        return own

    def _tick(self) -> None:
        self._carry_out(self.raft.handle(Tick(), self._turn.now))

    def _begin(self, now: Millis) -> None:
        self.feed(Start())

    def settle(self) -> None:
        """At the end of a turn: let the member do what is due, and follow it."""
        raft, store = self.raft, self.store
        self._tick()
        store.log.follow_disk()
        note = store.dispatch(self._turn.now)
        if note:
            self._turn.note("warning", note)
        if self.is_master and not raft.member.is_leader:  # to lead in another term takes another turn: a vote is kept
            self.is_master = False
            store.appends.forget_pending()
            self._roles.become(master=False)
        if raft.member.is_leader and not self.is_master:
            self._lead()

    def _lead(self) -> None:
        """We are elected: become master when everything is committed."""
        raft, store = self.raft, self.store
        if store.settled:
            self.is_master, self._term = True, raft.member.term
            store.appends.forget_pending()
            self._roles.become(master=True)
        elif self._marked != raft.member.term and not store.behind and store.appends.writable:
            self._marked = raft.member.term
            store.appends.forget_pending()
            store.appends.learn_pending()
            message = Message(
                topic=SELF_TEST_TOPIC, body=MARK, queue_id=0, flag=0, sys_flag=0, born_timestamp=self._turn.now,
                born_host=self._settings.store_host, store_host=self._settings.store_host, reconsume_times=0,
                properties=b"",
            )  # fmt: skip
            try:
                store.appends.append(message, self._turn.now)
            except AppendRefused as refused:
                self._turn.note("warning", f"elected, but can't append: {refused}")
                self._marked = -1
                return
            self._turn.note("info", "elected; what older terms left is committed by a message of our own")
            self._tick()

    def _changed(self, role: Role, term: int) -> None:
        if not self.is_master:
            self._role_changed()

    def stop(self, then: list[Effect]) -> None:
        """Take part no longer; `then` when all is durable."""
        self._carry_out(self.raft.end(then))

    def next_deadline(self) -> Millis | None:
        return soonest(self.raft.next_deadline(), self.store.dispatch_at)

    def validate(self) -> None:
        member = self.raft.member
        ours = member.is_leader and member.term == self._term
        assert ours or not self.is_master, f"master of term {self._term}: {member}"
        self.raft.validate()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Stop):
                self._fail(effect.reason)
            else:
                self._turn.emit(effect)


def _nobody_hears(reason: str) -> None:
    raise AssertionError(f"the member of a group has to stop before its broker was built: {reason}")
