"""What operators look at and change, as the kernel is told of it."""

from __future__ import annotations

from perseid.broker.admin.live_settings import Kept, LiveSettings
from perseid.broker.admin.stats import BrokerStats
from perseid.broker.kernel.capability import Capability, Requests, Step, Timer


def capability(stats: BrokerStats, live: LiveSettings, requests: tuple[Requests, ...]) -> Capability:
    """Statistics, and settings that change while a broker runs."""
    return Capability(
        name="admin",
        requests=requests,
        events={Kept: live.kept},
        loads=(stats.start,),
        timers=(Timer("statistics", stats.tick, stats.next_deadline),),
        settles=(Step("settings", live.settle),),
        failures=(live.failed,),
    )
