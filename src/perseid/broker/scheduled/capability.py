"""Delayed messages and messages for a time, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Millis
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.arrivals import Service
from perseid.broker.kernel.capability import Capability, Requests, Timer, leading, tries_again
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.kernel.saves import StateFile
from perseid.broker.kernel.turn import Turn
from perseid.broker.scheduled.delay import OFFSETS_PATH, DelayService
from perseid.broker.scheduled.escape import Escape, leading_or_escaping
from perseid.broker.scheduled.timer_metrics import METRICS_PATH
from perseid.broker.scheduled.timers import CheckpointSaved, TimerService
from perseid.store.timer.timers import TimerLogDurable
from perseid.store.truncation import Cut
from perseid.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC


def every_ms(config: BrokerConfig) -> Millis:
    """How often it is saved how far deliveries are."""
    return config.flush_delay_offset_interval


def capability(
    turn: Turn, roles: Roles, escape: Escape, delay: DelayService, timers: TimerService,
    requests: tuple[Requests, ...], cut: Callable[[Cut], None],
) -> Capability:  # fmt: skip
    """`cut`: the log goes another way."""
    metrics = timers.metrics

    def count_quick(now: Millis) -> None:
        timers.count_quick()
        delay.count_quick()

    return Capability(
        name="scheduled",
        requests=requests,
        events={Cut: cut, TimerLogDurable: timers.durable, CheckpointSaved: timers.saved},
        files=(
            StateFile(path=OFFSETS_PATH, table=delay, text=delay.to_json, every=every_ms),
            StateFile(
                path=METRICS_PATH, table=metrics, text=metrics.to_json, every=every_ms, in_use=lambda: metrics.dirty
            ),
        ),
        loads=(timers.load,),
        closes=(timers.close,),
        hooks=(
            RoleHook("delayed messages", lambda: delay.start(turn.now), delay.stop, sent_away=True, at_start=True),
            RoleHook("messages for a time", lambda: timers.start(turn.now), timers.stop, sent_away=True, at_start=True),
        ),
        services=(
            Service(SCHEDULE_TOPIC, delay.arrived),
            Service(TIMER_TOPIC, lambda queue_id, tag_code: timers.arrived()),
        ),
        timers=(
            Timer("delayed messages", leading_or_escaping(roles, escape, delay.tick), delay.next_deadline),
            Timer("messages for a time", timers.tick, timers.next_deadline),
            Timer("counts of quick deliveries", count_quick),
        ),
        checks=(timers.validate, leading(roles, delay.validate)),
        details=(timers.runtime_info, delay.runtime_info),
        failures=(tries_again(turn, timers.failed),),
    )
