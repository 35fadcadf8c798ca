"""Replication, as the kernel is told of it: what is so in every mode. The mode tells of itself (`modes/`)."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Requests, Timer
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.replicas import Replicas


def capability(turn: Turn, replicas: Replicas, requests: tuple[Requests, ...]) -> Capability:
    """The nodes that have the log, and which one may write it."""
    copies = replicas.copies
    return Capability(
        name="replication",
        requests=requests,
        events=replicas.handlers(),
        hooks=(RoleHook("copies of the master's tables", lambda: copies.follow(None, turn.now)),),
        timers=(Timer("copies of the master's tables", copies.tick, copies.next_deadline),),
        checks=(replicas.validate,),
        details=(replicas.runtime_info,),
    )
