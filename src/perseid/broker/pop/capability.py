"""POP, as the kernel is told of it."""

from __future__ import annotations

from perseid.broker.consume.capability import every_ms
from perseid.broker.consume.held_pulls import Holds
from perseid.broker.kernel.arrivals import Service
from perseid.broker.kernel.capability import Capability, Requests, Step, Timer, leading
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.kernel.saves import StateFile
from perseid.broker.kernel.turn import Turn
from perseid.broker.pop.modes import MODES_PATH
from perseid.broker.pop.order import ORDER_PATH
from perseid.broker.pop.service import PopService


def capability(
    turn: Turn, roles: Roles, holds: Holds, service: PopService, requests: tuple[Requests, ...]
) -> Capability:
    """Popping, acknowledgements and order."""
    modes, order = service.modes, service.order

    def drop() -> None:
        service.stop()
        holds.pops.everyone()  # to be told who is master

    return Capability(
        name="pop",
        requests=requests,
        files=(
            StateFile(path=MODES_PATH, table=modes, text=modes.to_json),
            StateFile(path=ORDER_PATH, table=order, text=lambda: order.to_json(turn.now), every=every_ms),
        ),
        hooks=(RoleHook("pop", lambda: service.start(turn.now), drop, at_start=True),),
        services=(Service(service.topic, lambda queue_id, tag_code: service.arrived(queue_id), on_slave=True),),
        timers=(Timer("pop", leading(roles, service.tick), service.next_deadline),),
        settles=(Step("acknowledgements of popped messages", service.settle),),
        ends=(Step("progress of pops", service.tell_progress),),
        checks=(leading(roles, service.validate),),
    )
