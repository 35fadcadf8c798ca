"""Which other nodes acknowledgements wait for, as `kernel.durability` asks it: none, a quorum, or so many of them.

| `brokerRole`, or mode | an acknowledgement waits for |
|---|---|
| ASYNC_MASTER, SLAVE | its own disk alone (`AwaitedNodes`) |
| a DLedger group | a quorum (`Quorum`): a message is there when it is committed, so nothing else has to be counted |
| SYNC_MASTER | as many nodes as `inSyncReplicas` says (`SlavesOfMaster`) |
| under a controller | as many, or all in sync with `allAckInSyncStateSet` (`SyncStateSetNodes`) |
"""

from __future__ import annotations

from abc import abstractmethod

from perseid.base.machine import Millis
from perseid.broker.kernel.acks import Acks
from perseid.broker.replication.promises import Promises
from perseid.replication.auto_switch.node import AutoSwitchReplication
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import EVERYTHING
from perseid.store.store import MessageStore


class AwaitedNodes:
    """None: what is on our own disk is as safe as was promised. The others say what they do otherwise."""

    by_quorum = False
    """Do acknowledgements wait for a quorum of a group?"""
    counts = False
    """May they wait for a number of nodes (`inSyncReplicas`)?"""
    adapts = False
    """Do they wait for as many as are in sync (`enableAutoInSyncReplicas`)?"""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.synchronous = False
        """Do acknowledgements wait for slaves, or did they once?"""

    @property
    def too_few(self) -> str:
        """Why no message is taken, with fewer replicas in sync than `minInSyncReplicas` wants; "": there are enough."""
        return ""

    @property
    def wait_ms(self) -> Millis:
        """How long an acknowledgement waits for other nodes at most."""
        return 0

    def replicated(self) -> int:
        """The log is on as many nodes as was promised up to here."""
        return EVERYTHING

    @property
    def wanted_from(self) -> int:
        """No message that somebody waits for begins before it."""
        return self._store.log.end

    @property
    def waits_for_none(self) -> bool:
        """Does no message that is stored now wait for a slave?"""
        return True

    def reconfigured(self) -> None:
        """Promise what the settings say now; what is stored already was promised before."""

    def settle(self) -> None:
        """At the end of a turn."""

    def validate(self) -> None:
        """AssertionError: what was promised is not in order."""


class Quorum(AwaitedNodes):
    """Of a group."""

    by_quorum = True

    def __init__(self, store: MessageStore, wait_ms: Millis) -> None:
        super().__init__(store)
        self._wait_ms = wait_ms

    @property
    def wait_ms(self) -> Millis:
        return self._wait_ms


class CountedNodes(AwaitedNodes):
    """A number of nodes, or all that are in sync. A message keeps the promise under which it was stored."""

    counts = True

    def __init__(self, store: MessageStore, acks: Acks, *, adapts: bool = False) -> None:
        super().__init__(store)
        self._acks = acks
        self.adapts = adapts
        self._promises = Promises(self._wanted(), self._reached)
        self.synchronous = self._promises.nodes != 1 or adapts

    @property
    @abstractmethod
    def _config(self) -> ReplicationConfig:
        """As it is now."""

    @abstractmethod
    def _wanted(self) -> int | None:
        """So many must have a message before it is acknowledged; None: all that are in sync."""

    @abstractmethod
    def _reached(self, nodes: int | None) -> int:
        """The log is on so many nodes up to here."""

    @property
    def waits_for_none(self) -> bool:
        return self._promises.nodes == 1

    @property
    def wait_ms(self) -> Millis:
        return self._config.slave_timeout

    def replicated(self) -> int:
        return self._promises.kept()

    @property
    def wanted_from(self) -> int:
        return self._acks.begin if self.synchronous else self._store.log.end

    def reconfigured(self) -> None:
        self._promises.change(self._wanted(), self._store.log.end, self._acks.awaited)
        self.synchronous = self.synchronous or self._promises.nodes != 1

    def settle(self) -> None:
        self._promises.forget(self._acks.awaited)
        if self.adapts:
            self.reconfigured()

    def validate(self) -> None:
        self._promises.validate(self._store.log.end)


class SlavesOfMaster(CountedNodes):
    """Those of a SYNC_MASTER."""

    def __init__(self, store: MessageStore, acks: Acks, ha: ClassicReplication, *, adapts: bool) -> None:
        self._ha = ha
        super().__init__(store, acks, adapts=adapts)

    @property
    def _config(self) -> ReplicationConfig:
        return self._ha.config

    def _wanted(self) -> int:
        config = self._config
        if self.adapts:
            return max(min(config.in_sync_replicas, self._in_sync), config.min_in_sync_replicas)
        return config.in_sync_replicas

    def _reached(self, nodes: int | None) -> int:
        assert nodes is not None, "who is in sync, a controller tells"
        return self._ha.master.replicated(nodes)

    @property
    def _in_sync(self) -> int:
        """Slaves that are less behind than haMaxGapNotInSync, and we."""
        master = self._ha.master
        return 1 + sum(f.following and master.in_sync(f) for f in master.followers.values())

    @property
    def too_few(self) -> str:
        least = self._config.min_in_sync_replicas
        return _too_few(self._in_sync, least) if self.adapts else ""


class SyncStateSetNodes(CountedNodes):
    """The replicas that a controller knows to be in sync."""

    def __init__(self, store: MessageStore, acks: Acks, replication: AutoSwitchReplication) -> None:
        self._replication = replication
        super().__init__(store, acks)

    @property
    def _config(self) -> ReplicationConfig:
        return self._replication.config

    def _wanted(self) -> int | None:
        return None if self._config.all_ack_in_sync_state_set else self._config.in_sync_replicas

    def _reached(self, nodes: int | None) -> int:
        return self._replication.on(nodes)

    @property
    def too_few(self) -> str:
        master = self._replication.master
        if not self.synchronous or master is None:
            return ""
        return _too_few(master.in_sync.count, self._config.min_in_sync_replicas)


def _too_few(in_sync: int, least: int) -> str:
    if least <= 1 or in_sync >= least:
        return ""
    return f"in-sync replicas not enough: {in_sync}, minInSyncReplicas is {least}"
