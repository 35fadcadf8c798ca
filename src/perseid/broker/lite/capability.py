"""Lite topics, as the kernel is told of them."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Requests, Timer, leading
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite.service import LiteService


def capability(turn: Turn, roles: Roles, service: LiteService, requests: tuple[Requests, ...]) -> Capability:
    """Lite topics and their readers."""
    return Capability(
        name="lite",
        requests=requests,
        loads=(service.load,),
        hooks=(RoleHook("lite topics", lambda: service.start(turn.now), service.stop, at_start=True),),
        timers=(Timer("lite topics", service.tick, service.next_deadline),),
        checks=(leading(roles, service.validate),),
    )
