"""Is a history of appends and reads one that a single log could have given?

An append that succeeded got an index; one whose outcome is unknown may have got any, or none. A history is
linearizable when

1. no two appends got one index, and what a read saw at an index is what was appended there;
2. an append that began after another one had ended, or after an entry had been read, got a higher index.

That is all: the object only grows, and each append that succeeded says where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """One operation that succeeded: when it was called and answered, and what stands at its index."""

    called: int
    answered: int
    index: int
    body: bytes
    is_read: bool = False


def explain(history: Sequence[Done], unknown: Sequence[bytes] = ()) -> str:
    """Why no single log could have given this; "" when one could. `unknown`: bodies whose append may have happened."""
    at: dict[int, bytes] = {}
    where: dict[bytes, int] = {}
    for one in history:
        if at.setdefault(one.index, one.body) != one.body:
            return f"index {one.index} holds {at[one.index]!r} and {one.body!r}"
        if where.setdefault(one.body, one.index) != one.index:
            return f"{one.body!r} stands at {where[one.body]} and {one.index}"
    appended = {one.body for one in history if not one.is_read} | set(unknown)
    for one in history:
        if one.body not in appended:
            return f"{one.body!r} was read at {one.index} and never appended"
    appends = [one for one in history if not one.is_read]
    ends = sorted(history, key=lambda one: one.answered)
    highest: Done | None = None
    ended = 0
    for one in sorted(appends, key=lambda one: one.called):
        while ended < len(ends) and ends[ended].answered < one.called:
            highest = ends[ended] if highest is None or ends[ended].index > highest.index else highest
            ended += 1
        if highest is not None and one.index <= highest.index:
            return f"{one.body!r} at {one.index} began after {highest.body!r} at {highest.index} had ended"
    return ""
