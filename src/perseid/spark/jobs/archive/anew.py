"""Is a topic the one that was read? Deleted topics are made again, and brokers lose their tails; offsets don't tell.

A queue ends before the place that was read, or another message is there than was read: of the message before that
place a plan keeps when it was stored. Where brokers have deleted that one, or never gave it, the rows of the table are
asked in its stead; and where there are none either, a queue that begins earlier than it did is taken for another one.
So only a queue that was begun anew, and has lost all up to the place that was read, is not told from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perseid.spark.jobs.archive.folder import Plan
from perseid.spark.plan import another

Ask = Callable[[Mapping[str, int]], Mapping[str, int]]
"""When the message before each of these offsets was stored, as far as brokers tell (`Topic.stored_ms`)."""
Rows = Callable[[str, int, int], tuple[Sequence[int], Sequence[int]]]
"""Offsets and store times of the rows that the table has of a queue, as it was last begun anew, between two offsets."""
MAX_ASKED = 16
"""Rows of a queue that brokers are asked for, until they have one: a compacted topic may lack the last ones."""


def begun_anew(
    plan: Plan, earliest: Mapping[str, int], latest: Mapping[str, int], ask: Ask, rows: Rows | None = None
) -> dict[str, str]:
    """The queues that are not those which were read up to a plan, and why. `rows`: of the table, if they can be had."""
    found, reached = {}, {}
    for name in sorted(plan.end.keys() & latest.keys()):
        if latest[name] < plan.end[name]:
            found[name] = f"{name}: was read up to offset {plan.end[name]}, and ends at {latest[name]} now"
        elif plan.end[name]:
            reached[name] = plan.end[name]
    stored_ms = ask(reached)
    for name, end in reached.items():
        if name in stored_ms and name in plan.stored_ms:
            if stored_ms[name] != plan.stored_ms[name]:
                found[name] = another(name, end - 1, plan.stored_ms[name], stored_ms[name])
        elif rows is not None and earliest.get(name, 0) < end:
            why = _by_rows(name, plan, earliest.get(name, 0), ask, rows)
            if why:
                found[name] = why
    return found


def _by_rows(name: str, plan: Plan, low: int, ask: Ask, rows: Rows) -> str:
    """Why a queue is another one, as the rows of the table tell; "": it is not, or nobody can tell."""
    offsets, times = rows(name, low, plan.end[name])
    for offset, at_ms in list(zip(offsets, times, strict=True))[: -MAX_ASKED - 1 : -1]:
        now_ms = ask({name: offset + 1}).get(name)
        if now_ms is not None:
            return "" if now_ms == at_ms else another(name, offset, at_ms, now_ms)
    if low < plan.earliest.get(name, 0):
        return f"{name}: began at offset {plan.earliest[name]} when it was read, and begins at {low} now"
    return ""
