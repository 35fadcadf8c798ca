"""Static topics, as the kernel is told of them."""

from __future__ import annotations

from perseid.broker.kernel.capability import Capability, Timer
from perseid.broker.kernel.peers import Peers
from perseid.broker.kernel.saves import StateFile
from perseid.broker.static_topics.cleaner import StaticCleaner
from perseid.broker.static_topics.mappings import MAPPINGS_PATH, TopicMappings


def capability(mappings: TopicMappings, cleaner: StaticCleaner, peers: Peers) -> Capability:
    """Where logical queues are."""
    return Capability(
        name="static topics",
        files=(
            StateFile(
                path=MAPPINGS_PATH, table=mappings, text=mappings.to_json, in_use=lambda: mappings.version.counter > 0
            ),
        ),
        loads=(cleaner.start,),
        timers=(Timer("static topics", cleaner.tick, cleaner.next_deadline),),
        checks=(mappings.validate, peers.validate),
    )
