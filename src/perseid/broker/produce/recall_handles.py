"""By which a message that was sent for a time can be taken back."""

from __future__ import annotations

import base64

from perseid.wire import properties as props
from perseid.wire.names import RETRY_PREFIX, TIMER_TOPIC
from perseid.wire.record import Message


def handle_of(message: Message, broker_name: str) -> str | None:
    """By which a message that was stored can be taken back; None: it can't be."""
    if message.topic != TIMER_TOPIC:
        return None
    raw = message.properties
    topic, at_ms = props.get(raw, props.REAL_TOPIC) or RETRY_PREFIX, props.get(raw, props.TIMER_OUT_MS) or ""
    if topic.startswith(RETRY_PREFIX) or not at_ms.isdecimal():
        return None
    words = ("v1", topic, broker_name, str(int(at_ms) + 1), props.get(raw, props.UNIQ_KEY) or "")
    return base64.urlsafe_b64encode(" ".join(words).encode()).decode()
