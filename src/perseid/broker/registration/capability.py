"""The entries at name servers, as the kernel is told of them."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.connections import of_dialled
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.turn import Turn
from perseid.broker.registration.name_servers import Registration


def capability(turn: Turn, registration: Registration) -> Capability:
    """Where clients find this broker."""

    def role_changed() -> None:
        registration.role_changed(turn.now)

    return Capability(
        name="registration",
        hooks=(RoleHook("name servers", role_changed, role_changed),),
        timers=(Timer("name servers", registration.tick, registration.next_deadline, prompt=True),),
        ends=(Step("name servers", lambda: registration.stop(turn.now)),),
        gone=(of_dialled(turn, registration.connection_closed),),
    )
