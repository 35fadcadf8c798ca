"""Which recorded frames take the ordinary road, and why; all others of `FAST` have to be fast."""

from __future__ import annotations

from traffic import Frame

FAST = {10, 310, 320, 11, 361, 36, 37, 200050, 200051, 200151, 200053}
"""Request codes that have a fast road: sends, pulls, what ends transactions, POP."""
ORDINARY: dict[tuple[int, str], str] = {}
"""By code and kind."""


def is_fast(one: Frame) -> bool:
    """Has this frame to take the fast road, once the broker knows its queue?"""
    return one.code in FAST and (one.code, one.kind) not in ORDINARY
