"""Reads, and how far groups are, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Millis
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.fetches import Fetched
from perseid.broker.consume.held_pulls import Holds
from perseid.broker.consume.offsets import LMQ_OFFSETS_PATH, OFFSETS_PATH, ConsumerOffsets
from perseid.broker.kernel.capability import Capability, Requests, Timer
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.saves import StateFile


def every_ms(config: BrokerConfig) -> Millis:
    """How often offsets are saved."""
    return config.flush_consumer_offset_interval


def capability(
    offsets: ConsumerOffsets, holds: Holds, requests: tuple[Requests, ...], fetched: Callable[[Fetched], None]
) -> Capability:
    """`fetched`: a pull has waited for the disk."""
    return Capability(
        name="consume",
        requests=requests,
        events={Fetched: fetched},
        files=(
            StateFile(
                path=offsets.path, table=offsets, text=offsets.to_json, every=every_ms,
                instead=OFFSETS_PATH if offsets.path == LMQ_OFFSETS_PATH else "",
            ),
        ),
        hooks=(RoleHook("consumer offsets", offsets.lead, offsets.follow),),
        timers=(Timer("held pulls", lambda now: None, holds.next_deadline),),
        gone=(lambda conn: holds.connection_closed(conn.id),),
        checks=(offsets.validate, holds.validate),
    )
