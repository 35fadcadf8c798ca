"""One function for each request (controller.md §3). What changes the state is decided in `commands`, and done in
`writes`; None: the answer comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perseid.base import config as configuration
from perseid.base.errors import RequestRefused
from perseid.controller import commands
from perseid.controller.commands import Outcome
from perseid.controller.config import ALIASES, FOREIGN
from perseid.controller.request import OK, Reply, Request
from perseid.wire import fastjson, settings
from perseid.wire.codes import ResponseCode
from perseid.wire.controller import SyncStateSet
from perseid.wire.fastjson import JsonError
from perseid.wire.headers import controller as headers

if TYPE_CHECKING:
    from perseid.controller.node import Controller

MAX_NAMES = 100_000
"""Broker sets in one question."""
ALWAYS_BLACK = ("rocketmqHome",)
HEARD = Reply(remark="Heart beat success")


def _later(controller: Controller, request: Request) -> Callable[[Outcome], None]:
    return lambda outcome: controller.reply(request, outcome.reply)


def broker_heartbeat(controller: Controller, request: Request) -> Reply:
    """904: a broker is alive; taken in by every controller, active or not."""
    beat = request.header
    if beat.broker_id is None:
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
    longest = max(len(beat.broker_name), len(beat.cluster_name), len(beat.broker_addr))
    if longest > commands.MAX_TEXT:
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, f"{commands.MAX_TEXT} characters are the most")
    try:
        row = controller.live.heard(beat, beat.broker_id, request.conn, request.peer, controller.now)
    except KeyError as error:
        controller.note("warning", f"heartbeat of {request.peer}: {error.args[0]}")
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, str(error.args[0])) from None
    if row is not None:
        controller.broker_appeared(row)
    return HEARD


def alter_sync_state_set(controller: Controller, request: Request) -> None:
    """1001."""
    header, proposed = request.header, SyncStateSet.from_json(request.body)
    if len(proposed.sync_state_set) > commands.MAX_REPLICAS:
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"{commands.MAX_REPLICAS} replicas are the most")
    controller.writes.submit(
        header.broker_name,
        lambda: commands.alter_sync_state_set(controller, header, proposed, request.peer),
        _later(controller, request),
    )


def elect_master(controller: Controller, request: Request) -> None:
    """1002: by a broker, or by people."""
    header = request.header

    def answer(outcome: Outcome) -> None:
        controller.reply(request, outcome.reply)
        controller.elections.ended(header.broker_name, outcome)

    controller.writes.submit(header.broker_name, lambda: commands.elect_master(controller, header), answer)


def register_broker(controller: Controller, request: Request) -> None:
    """1003."""
    header = request.header
    controller.writes.submit(
        header.broker_name, lambda: commands.register_broker(controller, header), _later(controller, request)
    )


def get_replica_info(controller: Controller, request: Request) -> None:
    """1004."""
    header = request.header
    controller.writes.read(lambda: commands.replica_info(controller, header), _later(controller, request))


def get_metadata(controller: Controller, request: Request) -> Reply:
    """1005: by any controller, what it knows of the group."""
    member = controller.raft.member
    leader = member.leader
    peers = "".join(f"{name}:{address};" for name, address in member.peers.items())
    address = member.peers.get(leader) if leader is not None else None
    return Reply(header=headers.GetMetaDataResponse(member.group, leader, address, controller.active, peers))


def get_sync_state_data(controller: Controller, request: Request) -> None:
    """1006."""
    if not len(request.body):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "not set any response code")
    try:
        names = fastjson.loads(request.body)
    except JsonError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is no list of names: {error}") from None
    if not isinstance(names, list) or len(names) > MAX_NAMES or not all(isinstance(one, str) for one in names):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is no list of names, {MAX_NAMES} at most")
    controller.writes.read(lambda: commands.sync_state_data(controller, names), _later(controller, request))


def clean_broker_data(controller: Controller, request: Request) -> None:
    """1011."""
    header = request.header
    controller.writes.submit(
        header.broker_name, lambda: commands.clean_broker_data(controller, header), _later(controller, request)
    )


def get_next_broker_id(controller: Controller, request: Request) -> None:
    """1012."""
    header = request.header
    controller.writes.read(lambda: commands.next_broker_id(controller, header), _later(controller, request))


def apply_broker_id(controller: Controller, request: Request) -> None:
    """1013."""
    header = request.header
    controller.writes.submit(
        header.broker_name, lambda: commands.apply_broker_id(controller, header), _later(controller, request)
    )


# ---- the controller itself ----


def update_config(controller: Controller, request: Request) -> Reply | None:
    """1009: all or none of the settings in the body, and only those that a running controller follows; the answer waits
    for the disk."""
    if not len(request.body):
        return OK
    asked = settings.wanted(request.body, (*ALWAYS_BLACK, *controller.config.config_black_list.split(";")))
    asked = {ALIASES.get(key, key): value for key, value in asked.items()}
    found = settings.change(asked, (controller.config, controller.raft.config), FOREIGN)
    controller.config = found.configs[0]
    controller.note("info", f"configuration changed by {request.peer}: {dict(found.values)}")
    for text in found.told:
        controller.note("info", text)
    return None if controller.save_config(request) else OK


def get_config(controller: Controller, request: Request) -> Reply:
    """1010: all settings as they are now, as a properties text."""
    return Reply(body=configuration.to_text(controller.raft.config, controller.config).encode())
