"""What slaves and operators ask about replication: HA status (907), and what a slave copies besides topics, groups and
consumer offsets (45, 402, 60, 61). Source: ha-classic.md §11, broker.md §10.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.request import Reply, Request
from perseid.wire import fastjson
from perseid.wire.bodies import DataVersion

if TYPE_CHECKING:
    from perseid.broker.node import Broker

TIMER_CHECKPOINT_BYTES = 56


def get_ha_status(broker: Broker, request: Request) -> Reply:
    """Who follows this broker and how far behind each one is; of a slave, whom it follows."""
    return Reply(body=broker.replicas.status(broker.now).to_json())


def get_all_delay_offset(broker: Broker, request: Request) -> Reply:
    """How far each delay level is delivered: the text of config/delayOffset.json."""
    return Reply(body=broker.delay.to_json())


def get_all_message_request_mode(broker: Broker, request: Request) -> Reply:
    """Which groups pop and which pull: none pops here."""
    return Reply(body=fastjson.dumps({"messageRequestModeMap": {}}))


def get_timer_checkpoint(broker: Broker, request: Request) -> Reply:
    """How far the timer wheel is, as its file says it: there is none, so it is at the beginning."""
    return Reply(body=bytes(TIMER_CHECKPOINT_BYTES))


def get_timer_metrics(broker: Broker, request: Request) -> Reply:
    """How many timer messages wait, by topic: none."""
    return Reply(body=fastjson.dumps({"dataVersion": DataVersion(), "timingCount": {}}))


