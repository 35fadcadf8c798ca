"""The mode of a broker, chosen once, by its configuration."""

from __future__ import annotations

from random import Random

from perseid.broker.replication.dledger_member import DLedgerMember
from perseid.broker.replication.modes.alone import Alone
from perseid.broker.replication.modes.classic import Classic
from perseid.broker.replication.modes.controlled import Controlled
from perseid.broker.replication.modes.dledger import DLedger
from perseid.broker.replication.modes.mode import ModePorts, ReplicationMode
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig
from perseid.store.store import MessageStore

ASYNC_MASTER = "ASYNC_MASTER"


def mode_of(
    ports: ModePorts, config: ReplicationConfig, store: StoreConfig, raft: RaftConfig | None, random: Random,
    new_log: type[FileLog] = FileLog,
) -> ReplicationMode:  # fmt: skip
    """With its store. `raft`: of the member of a group, whose log `new_log` makes; None: there is no group."""
    own, disk, host = ports.settings.current, ports.disk, ports.settings.store_host
    if raft is not None:
        member = DLedgerMember(ports.turn, ports.settings, ports.roles, raft, store, disk, random, new_log)
        return DLedger(ports, config, member)
    if own.enable_controller_mode:
        return Controlled(ports, config, MessageStore(disk, store, host, gated=True))
    plain = MessageStore(disk, store, host)
    if own.broker_role == ASYNC_MASTER and not own.enable_slave_acting_master:
        return Alone(ports, config, plain)
    return Classic(ports, config, plain)
