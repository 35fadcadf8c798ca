"""Who becomes master (controller.md §4.3).

First among those in sync; then, where unclean elections are allowed, among all. In each of them: the old master, if it
is alive and nobody else is wanted; the one who is wanted, or nobody; else the best one alive: the highest epoch, then
the longest log, then the lowest priority number, then the lowest id. Offsets are compared as they are: the original's
comparison overflows at 2 GiB, and elects the shorter log (B22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class Standing(Protocol):
    """What the last heartbeat of a broker said."""

    epoch: int
    max_offset: int
    priority: int


Alive = Callable[[int], Standing | None]
"""The standing of a broker that is alive, None of any other."""


def elect(
    in_sync: Iterable[int], others: Iterable[int] | None, old_master: int | None, prefer: int | None, alive: Alive
) -> int | None:
    """The id of the one to be elected, None if there is nobody. `others`: None allows no unclean election; `prefer`:
    this one or none."""
    found = _elect_from(in_sync, old_master, prefer, alive)
    if found is None and others is not None:
        found = _elect_from(others, old_master, prefer, alive)
    return found


def _elect_from(ids: Iterable[int], old_master: int | None, prefer: int | None, alive: Alive) -> int | None:
    kept = {broker_id: standing for broker_id in ids if (standing := alive(broker_id)) is not None}
    if old_master in kept and prefer in (None, old_master):
        return old_master
    if prefer is not None:
        return prefer if prefer in kept else None
    return min(kept, key=lambda one: _rank(one, kept[one]), default=None)


def _rank(broker_id: int, standing: Standing) -> tuple[int, int, int, int]:
    return -standing.epoch, -standing.max_offset, standing.priority, broker_id
