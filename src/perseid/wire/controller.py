"""The bodies that controllers, brokers and tools exchange (controller.md §3.1)."""

from __future__ import annotations

import msgspec

from perseid.wire import fastjson
from perseid.wire.bodies import BrokerMemberGroup
from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long

OPEN_END = 2**63 - 1
"""The end of the last epoch in a list."""


class SyncStateSet(Body):
    """Who is in sync, by broker id (1001, 1003, 1004, 1008)."""

    sync_state_set: list[Long] = msgspec.field(default_factory=list)
    sync_state_set_epoch: Int = 0


class ElectMasterResponseBody(Body):
    """Of 1002. Its keys are quoted: no JSON parser but fastjson's old one reads the original's own answer."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Long] = msgspec.field(default_factory=list)

    def to_json(self) -> bytes:
        return fastjson.dumps(self, standard=True)


class ReplicaIdentity(Body):
    """One replica, as tools see it."""

    broker_name: str = ""
    broker_id: Long = 0
    broker_address: str = ""
    alive: bool = False


class ReplicasInfo(Body):
    """One broker set."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int = 0
    sync_state_set_epoch: Int = 0
    in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)


class BrokerReplicasInfo(Body):
    """Of 1006."""

    replicas_info_table: dict[str, ReplicasInfo] = msgspec.field(default_factory=dict)


class Epoch(Body):
    """One epoch of a log: from where to where (`OPEN_END` for the last)."""

    epoch: Int = 0
    start_offset: Long = 0
    end_offset: Long = OPEN_END


class EpochEntryCache(Body):
    """Of 1007, by a broker; `brokerId` is 0 on a master."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = 0
    epoch_list: list[Epoch] = msgspec.field(default_factory=list)
    max_offset: Long = 0
