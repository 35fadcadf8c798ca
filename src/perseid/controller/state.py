"""The replicated state: which brokers a set has, who is its master, and who is in sync with it (controller.md §4).

    replicas   set → brokers by id: address, and the code by which a registration is known again; the next id
    in_sync    set → master and its epoch; those in sync and their epoch

A set is known when it is in both. Epochs only rise: the master's with each election, also with one that elected nobody,
the other's with each new set. Events are applied as every member applies them, Java's too: nothing is checked here that
was not checked there, for what one member refused and another took would part them for ever. What may be written is
decided before (`commands`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perseid.controller import events
from perseid.controller.events import Event
from perseid.wire.dledger import Entry

FIRST_ID = 1


class Replica(msgspec.Struct):
    """One broker of a set."""

    address: str
    check_code: str


class ReplicaInfo(msgspec.Struct):
    """The brokers of a set."""

    cluster: str
    name: str
    next_id: int = FIRST_ID
    brokers: dict[int, Replica] = msgspec.field(default_factory=dict)


class SyncState(msgspec.Struct):
    """Master and in-sync replicas of a set."""

    cluster: str
    name: str
    master_epoch: int = 0
    epoch: int = 0
    """Of `members`."""
    members: frozenset[int] = frozenset()
    master: int | None = None


class _Snapshot(msgspec.Struct):
    replicas: dict[str, ReplicaInfo]
    in_sync: dict[str, SyncState]


class Tables:
    """The state machine. Its snapshots are this member's own, as JSON: the original's have no data."""

    def __init__(self) -> None:
        self.replicas: dict[str, ReplicaInfo] = {}
        self.in_sync: dict[str, SyncState] = {}
        self.skipped = 0
        """Entries that held no event."""
        self.on_event: Callable[[Event], None] = lambda event: None
        """Called after each event."""
        self.on_skipped: Callable[[int, str], None] = lambda index, why: None

    def known(self, name: str) -> bool:
        return name in self.replicas and name in self.in_sync

    def address(self, name: str, broker_id: int | None) -> str | None:
        """Of a broker; None if there is no such broker."""
        info = self.replicas.get(name)
        found = info.brokers.get(broker_id) if info is not None and broker_id is not None else None
        return found.address if found is not None else None

    # ---- the state machine ----

    def apply(self, entry: Entry) -> None:
        """An entry is committed."""
        try:
            event = events.decode(entry.body)
        except events.UnreadableEvent as error:
            self.skipped += 1
            self.on_skipped(entry.index, str(error))
            return
        if event is not None:
            self.take(event)
            self.on_event(event)

    def snapshot(self) -> bytes:
        return msgspec.json.encode(_Snapshot(self.replicas, self.in_sync))

    def restore(self, data: bytes) -> None:
        """Of bytes whose checksum was right."""
        found = msgspec.json.decode(data, type=_Snapshot)
        self.replicas, self.in_sync = found.replicas, found.in_sync

    def take(self, event: Event) -> None:
        """One event (§4.6)."""
        if isinstance(event, events.ApplyBrokerId):
            self._apply_id(event)
        elif isinstance(event, events.CleanBrokerData) and not event.broker_id_set_to_clean:
            self.replicas.pop(event.broker_name, None)
            self.in_sync.pop(event.broker_name, None)
        elif not self.known(event.broker_name):
            return
        elif isinstance(event, events.AlterSyncStateSet):
            self._members(self.in_sync[event.broker_name], event.new_sync_state_set)
        elif isinstance(event, events.ElectMaster):
            self._elect(self.in_sync[event.broker_name], event)
        elif isinstance(event, events.CleanBrokerData):
            self._clean(event)
        else:
            found = self.replicas[event.broker_name].brokers.get(event.broker_id)
            if found is not None:
                found.address = event.broker_address

    def _apply_id(self, event: events.ApplyBrokerId) -> None:
        name, cluster = event.broker_name, event.cluster_name
        if not self.known(name):
            self.replicas[name] = ReplicaInfo(cluster, name)
            self.in_sync[name] = SyncState(cluster, name)
        info = self.replicas[name]
        if event.new_broker_id not in info.brokers:
            info.brokers[event.new_broker_id] = Replica(event.broker_address, event.register_check_code)
            info.next_id += 1

    def _members(self, state: SyncState, members: list[int]) -> None:
        state.members = frozenset(members)
        state.epoch += 1

    def _elect(self, state: SyncState, event: events.ElectMaster) -> None:
        state.master_epoch += 1
        state.master = event.new_master_broker_id if event.new_master_elected else None
        if state.master is not None:
            self._members(state, [state.master])

    def _clean(self, event: events.CleanBrokerData) -> None:
        info, state = self.replicas[event.broker_name], self.in_sync[event.broker_name]
        for broker_id in event.broker_id_set_to_clean or ():
            info.brokers.pop(broker_id, None)
        state.members -= frozenset(event.broker_id_set_to_clean or ())
        if not info.brokers:
            del self.replicas[event.broker_name]
        if not state.members:
            del self.in_sync[event.broker_name]
