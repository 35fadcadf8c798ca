"""What is so of replication in every mode: what a slave may not do, and what operators, readers and slaves are told.

What differs by mode, it asks of the mode (`modes/mode.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perseid.base.errors import RequestRefused
from perseid.base.machine import Feed, Millis
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.copies import Copies
from perseid.broker.replication.forwards import Forwards
from perseid.broker.replication.modes.mode import ReplicationMode
from perseid.store.store import MessageStore
from perseid.wire.bodies import MASTER_ID, HAClientRuntimeInfo, HARuntimeInfo, SubscriptionGroupConfig
from perseid.wire.codes import ResponseCode

REFUSED = (OnSlave.HANDED_ON, OnSlave.REFUSED)


class Durable:
    """Fed back when the log is durable for which an answer waits."""

    __slots__ = ("reply", "request")

    def __init__(self, request: Request, reply: Reply) -> None:
        self.request, self.reply = request, reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasPorts:
    """The parts of a broker that `Replicas` needs."""

    turn: Turn
    settings: Settings
    store: MessageStore
    roles: Roles
    mode: ReplicationMode
    copies: Copies
    forwards: Forwards


class Replicas:
    """One broker and its replicas."""

    def __init__(self, ports: ReplicasPorts) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._store = ports.store
        self._roles = ports.roles
        self._mode = ports.mode
        self.copies = ports.copies
        self.forwards = ports.forwards

    def handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with events of our own."""
        return {Durable: self._tell}

    def validate(self) -> None:
        """AssertionError: more sends are under way than may be, or fewer than none."""
        self.forwards.validate()

    # ---- what slaves are told ----

    @property
    def acts_for_others(self) -> bool:
        """May this broker act for its master, and has it copied its tables once?"""
        return self._mode.acting.slaves_act and self.copies.rounds > 0

    def told_durably(self, request: Request, reply: Reply) -> Reply | None:
        """An answer with a table of which a slave may tell its master when that one is back: None, it leaves when what
        the log has now is durable. At once where no slave acts, and from a slave, which has it from its master."""
        store = self._store
        if not self._mode.acting.slaves_act or self._roles.is_slave or store.log.flushed >= store.log.end:
            return reply
        request.command = request.command.keep()
        self._turn.emit(store.flusher.flush([Feed(Durable(request, reply))]))
        return None

    def _tell(self, event: Durable) -> None:
        self._turn.reply(event.request, event.reply)

    # ---- what a slave may not ----

    def gate(self, request: Request, route: Route) -> bool:
        """Is this a send that is the master's to take, and on its way there now? RequestRefused for what only a master
        may do; before the first role, for nearly all."""
        if not self._roles.is_slave:
            return False
        if route.on_slave is OnSlave.HANDED_ON:
            master = self.forwards.master_for(request)
            if master:
                self.forwards.send(master, request)
                return True
        self._check(route)
        return False

    def _check(self, route: Route) -> None:
        self._mode.check(route)
        config, acting = self._settings.current, self._mode.acting
        reads = config.slave_read_enable or (acting.slaves_act and not acting.isolated)
        if route.on_slave in REFUSED or (route.on_slave is OnSlave.READ and not reads):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]system busy, start flow control for a while: {config.broker_name} is a slave here"
                + ("" if route.on_slave is not OnSlave.READ else ", and slaveReadEnable is false"),
            )
        if route.on_slave is OnSlave.MASTERS_TABLE:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            )

    # ---- what operators are told ----

    def status(self, now: Millis) -> HARuntimeInfo:
        """The followers of this broker, or the master that it follows."""
        end, slave = self._store.log.end, self._mode.receiver
        info = HARuntimeInfo(master=not self._roles.is_slave)
        if slave is not None:
            info.ha_client_runtime_info = HAClientRuntimeInfo(
                master_addr=slave.address or None,
                transferred_byte_in_second=slave.meter.per_second(now),
                max_offset=end,
                last_read_timestamp=slave.heard,
                last_write_timestamp=slave.reported_at,
                is_activated=slave.following,
            )
            return info
        info.master_commit_log_max_offset = end
        info.ha_connection_info = list(self._mode.followers(now))
        info.in_sync_slave_nums = sum(one.in_sync for one in info.ha_connection_info)
        return info

    def runtime_info(self, now: Millis) -> dict[str, str]:
        """The same as rows of code 28's table: bytes and seconds that each slave is behind."""
        found = {}
        for number, one in enumerate(self.status(now).ha_connection_info):
            found[f"slave_{number}"] = one.addr
            found[f"slaveLagBytes_{number}"] = str(one.diff)
            found[f"slaveLagSeconds_{number}"] = f"{(one.lag_millis or 0) / 1000:.1f}"
        slave = self._mode.receiver
        if slave is not None:
            found["masterHaAddress"] = slave.address
            found["slaveState"] = slave.state.value
        return found

    # ---- what readers are told ----

    @property
    def sends_readers_back(self) -> bool:
        """Is this a slave whose master is there, so that readers who find nothing should ask that one?"""
        return self._mode.sends_readers_back

    def suggest(self, group: SubscriptionGroupConfig, physical_offset: int) -> int:
        """Which broker id a reader that is at an offset of the log should ask next (broker.md §6.3)."""
        if not self._settings.current.slave_read_enable:
            return MASTER_ID
        store, slave = self._store, self._mode.receiver
        behind = physical_offset >= 0 and store.log.end - physical_offset > store.config.in_memory_bytes
        if not behind and slave is not None and slave.following:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if behind else group.broker_id
