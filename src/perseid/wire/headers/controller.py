"""Requests to the controller, and its notice to brokers (controller.md §3.1). A heartbeat (904) is among the name
server's.

A broker is known here by its id in its broker set, given by the controller, 1 or more: `brokerId` is never the 0 of a
master. What a failure has nothing to say about is left out, as the original's peers expect it.
"""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long

NO_BROKER = -1
"""An id that stands for none."""


class AlterSyncStateSetRequest(Header):
    """1001: a master proposes who is in sync; the body is a SyncStateSet with the epoch that the master believes in."""

    broker_name: str
    master_broker_id: Long
    master_epoch: Int
    invoke_time: Long | None = None


class AlterSyncStateSetResponse(Header):
    """Of 1001, 0 when it failed; the body of a success is the new SyncStateSet."""

    new_sync_state_set_epoch: Int = 0


class ElectMasterRequest(Header):
    """1002: elect a master; answered with an ElectMasterResponseBody. `designateElect`: none but `brokerId`."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = NO_BROKER
    designate_elect: bool = False
    invoke_time: Long | None = None


class ElectMasterResponse(Header):
    """Of 1002: the master that there is now (success, 2011); empty otherwise."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class RegisterBrokerToControllerRequest(Header):
    """1003: the last step of a registration, or a new address."""

    broker_id: Long
    broker_address: str
    cluster_name: str = ""
    broker_name: str = ""
    invoke_time: Long | None = None


class RegisterBrokerToControllerResponse(Header):
    """Of 1003; the last four only if a master is alive. The body is a SyncStateSet."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetReplicaInfoRequest(Header):
    """1004: who is master, who is in sync?"""

    broker_name: str


class GetReplicaInfoResponse(Header):
    """Of 1004; the body is a SyncStateSet."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetMetaDataResponse(Header):
    """Of 1005, by any controller. `peers`: `id:host:port;` for each."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class NotifyBrokerRoleChangedRequest(Header):
    """1008, controller → broker, one way: there is a master of this epoch; the body is its SyncStateSet."""

    master_address: str | None = None
    master_broker_id: Long | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class CleanBrokerDataRequest(Header):
    """1011: forget brokers. `brokerControllerIdsToClean`: `1;2`; absent: all of the set."""

    cluster_name: str | None = None
    broker_name: str = ""
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long | None = None


class GetNextBrokerIdRequest(Header):
    """1012: which id is free? No reservation."""

    cluster_name: str = ""
    broker_name: str = ""


class GetNextBrokerIdResponse(Header):
    """Of 1012."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class ApplyBrokerIdRequest(Header):
    """1013: take an id. `registerCheckCode`: `address;millis`, by which a repetition is known."""

    applied_broker_id: Long
    register_check_code: str
    cluster_name: str = ""
    broker_name: str = ""


class ApplyBrokerIdResponse(Header):
    """Of 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None


class ExchangeHaInfoRequest(Header):
    """906: where is the master's HA port? Asked of a master, without fields."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHaInfoResponse(Header):
    """Of 906, by a master; empty otherwise."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
