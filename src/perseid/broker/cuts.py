"""The log is cut: a new master's, or a new leader's, goes another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.store.truncation import Cut

if TYPE_CHECKING:
    from perseid.broker.node import Broker


def cut_log(broker: Broker, event: Cut) -> None:
    """Cut the log, and the timers that stood in what goes. What a disk that fails leaves of it is what a crash leaves
    of one: the broker stops, and a start takes it up."""
    try:
        broker.timers.cut(event)
    except OSError as error:
        broker.fail(f"the log could not be cut at {event.end}: {error}; restart to recover")
