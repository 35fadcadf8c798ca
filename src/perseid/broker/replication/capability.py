"""Replication, as the kernel is told of it."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Requests, Step, Timer
from perseid.broker.kernel.connections import of_dialled
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.replicas import Replicas
from perseid.raft.state import RaftEvent


def capability(turn: Turn, replicas: Replicas, requests: tuple[Requests, ...]) -> Capability:
    """Who has the log, and who may write it."""
    group = replicas.group

    ends = [Step("replication", replicas.stop)]
    if group is not None:
        ends.append(Step("the group", lambda: group.stop([])))
    return Capability(
        name="replication",
        requests=requests,
        events=replicas.handlers(),
        takes=(RaftEvent, group.feed) if group is not None else None,
        begins=(replicas.start,),
        hooks=(RoleHook("copies of the master's tables", lambda: replicas.copies.follow(None, turn.now)),),
        timers=(Timer("replication", replicas.tick, replicas.next_deadline),),
        settles=(Step("replication", replicas.settle),),
        ends=tuple(ends),
        gone=(of_dialled(turn, replicas.dialled_closed),),
        checks=(replicas.validate,),
        details=(replicas.runtime_info,),
        failures=(group.failed,) if group is not None else (),
    )
