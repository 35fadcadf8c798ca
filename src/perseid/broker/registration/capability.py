"""The entries at name servers, as the kernel is told of them."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.request import Connection
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.turn import Turn
from perseid.broker.registration.name_servers import Registration


def capability(turn: Turn, registration: Registration) -> Capability:
    """Where clients find this broker."""

    def role_changed() -> None:
        registration.role_changed(turn.now)

    def dialled_closed(conn: Connection) -> None:
        if conn.dialled:
            registration.connection_closed(conn.dialled, turn.now)

    return Capability(
        name="registration",
        hooks=(RoleHook("name servers", role_changed, role_changed),),
        timers=(Timer("name servers", registration.tick, registration.next_deadline),),
        ends=(Step("name servers", lambda: registration.stop(turn.now)),),
        gone=(dialled_closed,),
    )
