"""Every request that a controller answers: one row, one header class, one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from perseid.controller import handlers
from perseid.controller.request import Reply, Request
from perseid.security.members import Asks
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers import controller as headers
from perseid.wire.headers.base import Header
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from perseid.controller.node import Controller

Handler: TypeAlias = "Callable[[Controller, Request], Reply | None]"


class Route(NamedTuple):
    """How one request code is served."""

    code: Code
    header: type[Header] | None
    handler: Handler
    asks: Asks
    """Of whoever sends it, where requests have to be signed."""
    anywhere: bool = False
    """Not by the active controller alone."""


ROUTES: dict[int, Route] = {
    route.code: route
    for route in (
        Route(Code.BROKER_HEARTBEAT, BrokerHeartbeatRequest, handlers.broker_heartbeat, Asks.SUPER, anywhere=True),
        Route(
            Code.CONTROLLER_ALTER_SYNC_STATE_SET,
            headers.AlterSyncStateSetRequest,
            handlers.alter_sync_state_set,
            Asks.SUPER,
        ),
        Route(Code.CONTROLLER_ELECT_MASTER, headers.ElectMasterRequest, handlers.elect_master, Asks.SUPER),
        Route(
            Code.CONTROLLER_REGISTER_BROKER,
            headers.RegisterBrokerToControllerRequest,
            handlers.register_broker,
            Asks.SUPER,
        ),
        Route(Code.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfoRequest, handlers.get_replica_info, Asks.SUPER),
        Route(Code.CONTROLLER_GET_METADATA_INFO, None, handlers.get_metadata, Asks.SUPER, anywhere=True),
        Route(Code.CONTROLLER_GET_SYNC_STATE_DATA, None, handlers.get_sync_state_data, Asks.SUPER),
        Route(Code.UPDATE_CONTROLLER_CONFIG, None, handlers.update_config, Asks.SUPER, anywhere=True),
        Route(Code.GET_CONTROLLER_CONFIG, None, handlers.get_config, Asks.SUPER, anywhere=True),
        Route(Code.CLEAN_BROKER_DATA, headers.CleanBrokerDataRequest, handlers.clean_broker_data, Asks.SUPER),
        Route(
            Code.CONTROLLER_GET_NEXT_BROKER_ID, headers.GetNextBrokerIdRequest, handlers.get_next_broker_id, Asks.SUPER
        ),
        Route(Code.CONTROLLER_APPLY_BROKER_ID, headers.ApplyBrokerIdRequest, handlers.apply_broker_id, Asks.SUPER),
    )
}
