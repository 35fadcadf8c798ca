"""The earliest of some deadlines: each turn asks for it, so there is no generator in it."""

from __future__ import annotations

from perseid.base.machine import Millis


def soonest(*dues: Millis | None) -> Millis | None:
    """The earliest of them; None when nothing is due at any time."""
    first: Millis | None = None
    for due in dues:
        if due is not None and (first is None or due < first):
            first = due
    return first
