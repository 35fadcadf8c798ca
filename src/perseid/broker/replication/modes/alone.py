"""A master that acknowledges by its own disk alone (ASYNC_MASTER). Slaves may follow its log; nobody waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from perseid.base.machine import Close, Millis
from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.awaited_nodes import AwaitedNodes
from perseid.broker.replication.ha_stream import HaStream
from perseid.broker.replication.modes.mode import ModePorts, ReplicationMode, follower_of, without_controller
from perseid.replication.classic.master import Master
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import FetchedFor
from perseid.store.store import MessageStore
from perseid.wire.bodies import HAConnectionRuntimeInfo

NOT_SYNC_MASTER = "brokerRole is not SYNC_MASTER"


class Alone(ReplicationMode):
    """That of one broker."""

    def __init__(self, ports: ModePorts, config: ReplicationConfig, store: MessageStore) -> None:
        super().__init__(ports, config, store)
        self.ha = ClassicReplication(config, store)
        self.stream = self._stream = HaStream(ports.turn, self.ha)
        self.nodes = AwaitedNodes(store)
        self.no_effect = without_controller(
            minInSyncReplicas="this broker has no controller", inSyncReplicas=NOT_SYNC_MASTER
        )

    def capability(self) -> Capability:
        return Capability(
            name="alone",
            events={FetchedFor: self._stream.fed},
            begins=(self.start,),
            timers=(Timer("replication", self._stream.tick, self.ha.next_deadline),),
            settles=(Step("replication", self._stream.settle),),
            ends=(Step("replication", lambda: let_go(self._turn, self.ha.master)),),
            checks=(self.ha.validate,),
        )

    def start(self, now: Millis) -> None:
        super().start(now)
        self._registration.start(now)

    def reconfigure(self, config: ReplicationConfig) -> None:
        super().reconfigure(config)
        self.ha.reconfigure(config)

    def followers(self, now: Millis) -> Sequence[HAConnectionRuntimeInfo]:
        return classic_followers(self.ha.master, self.store.log.end, now)


def classic_followers(master: Master, end: int, now: Millis) -> list[HAConnectionRuntimeInfo]:
    """Who follows, and how far each one is behind the `end` of the log, in bytes and in time."""
    found = [one for one in master.followers.values() if one.following]
    return [follower_of(one, end, now, master.in_sync(one), master.lag(one, now)) for one in found]


def let_go(turn: Turn, master: Master) -> None:
    """At a shutdown: slaves are let go before the log is closed."""
    for conn in list(master.followers):
        turn.emit(Close(conn, "the master ends"))
