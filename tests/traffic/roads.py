"""Which recorded frames take the fast road, and why the others don't."""

from __future__ import annotations

from traffic import Frame

FAST = frozenset({10, 310, 320, 11, 361, 200050})
"""Request codes that have a fast road: sends, pulls, pops. Acknowledgements have one, too, but name messages of the
broker that was recorded."""
ORDINARY = {
    "java-5.5.0-binary signed 310": "this client writes each field twice where it signs a binary header",
}
"""By a frame's name."""


def is_fast(one: Frame) -> bool:
    """Has this frame to take the fast road, once the broker has answered one like it?"""
    return one.code in FAST and one.name not in ORDINARY
