"""Where a run goes on: what the table holds is compared with what its plans say. Pure, but for the calls it is given.

A table is changed by more than our runs. Others merge its files; who restores, rolls back, deletes rows, or puts an
older copy or catalog in place changes its rows, and the number of the last batch says nothing of that. So:

    the files are those of our last commit   →  go on behind it
    the rows are those of the last batch     →  go on behind it (others merged files, or a run was killed)
    the rows are those of an earlier batch   →  rewind: read again from there, under numbers that nobody had
    anything else                            →  refuse, by name; or, if that is wanted, take the table as it is, and
                                                note what is missing as gaps

Rows are compared by their sums (`contents`). Of several batches with the same rows the last counts: what came between
them had none. A plan is written when its batch's files are, and before they are committed, so a plan that no commit
names can only match where its batch had no rows, and then it is as good as committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.folder import Committed, Gap, Landed, Plan

REMOVED = "removed from the table by others"
MAX_TOLD = 5
"""Queues that an error names."""


class TableChanged(ConfigError):
    """A table does not hold what any of its batches left in it."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a run goes on: behind `plan` (None: nothing was landed), with the batch `number`."""

    plan: Plan | None
    number: int
    rewound: tuple[int, int] | None = None
    """From the batch that had been committed to the one that the table holds."""
    taken: tuple[Gap, ...] = ()
    """Rows that are missing, and are taken for gone."""
    noted: bool = False
    """The last batch of the table says just this; else a batch has to, though there is nothing to add."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it is found: its last batch (-1: none) and files, and how to get the sums of its rows."""

    where: str
    state: Committed
    contents: Callable[[], Mapping[str, Landed]]

    @property
    def batch(self) -> int:
        """The last one."""
        return self.state.batch


def resume(
    found: Found,
    committed: Committed | None,
    numbers: Sequence[int],
    plan: Callable[[int], Plan | None],
    *,
    accept: bool = False,
) -> Resumed:
    """Where to go on. `numbers`: of the plans that there are, and `plan` gives one. `accept`: take the table as it is.
    TableChanged when it holds something else."""
    reached = max(found.batch, -1 if committed is None else committed.batch)
    unused = max([reached, *numbers]) + 1
    kept = found.batch in numbers  # plans of old batches go, and a copy of the table may be as old
    behind = Resumed(plan(found.batch) if kept else None, found.batch + 1, noted=kept)
    if committed == found.state and (kept or found.batch < 0):
        return behind
    rows = {name: one for name, one in found.contents().items() if one.rows}
    if reached == found.batch and behind.plan is not None and behind.plan.landed in (None, rows):
        return replace(behind, plan=replace(behind.plan, landed=rows))  # None: a plan of an earlier version
    for number in sorted((one for one in numbers if one <= reached), reverse=True):
        earlier = plan(number)
        if earlier is not None and earlier.landed == rows:
            return Resumed(earlier, unused, None if number == reached else (reached, number))
    if reached < 0:
        if rows:
            raise TableChanged(f"{found.where} holds {_count(rows)} rows, and no batch of it: who wrote them?")
        attempt = plan(numbers[-1]) if numbers else None
        if attempt is None:
            return behind
        return Resumed(Plan(attempt.begin, attempt.begin, landed={}), unused)  # it may have come in, and be gone again
    newest = plan(max((one for one in numbers if found.batch <= one <= reached), default=reached))
    assert newest is not None, "a batch was committed, so there was a plan"
    if not rows:
        gaps = tuple(gap for gap in newest.gaps if _is_earlier(gap, newest))
        emptied = Plan(newest.begin, newest.begin, landed={}, gaps=gaps, generations=newest.generations)
        return Resumed(emptied, unused, (reached, -1))
    return _changed(found, newest, rows, unused, accept=accept)


_WAYS_ON = {
    False: "go on with what it holds (--accept-table): what is missing is noted as a gap",
    True: "remove what was added: nobody knows which rows are there twice",
}
"""Whether others added rows → what may be done, besides."""


def _changed(found: Found, expected: Plan, rows: Mapping[str, Landed], number: int, *, accept: bool) -> Resumed:
    had = expected.landed or {}
    gone = {
        name: one.rows - rows.get(name, Landed()).rows for name, one in had.items() if rows.get(name, Landed()) != one
    } | {name: -rows[name].rows for name in rows.keys() - had.keys()}
    added = any(count < 0 for count in gone.values())
    if added or not accept:
        told = ", ".join(f"{name}: {_difference(count)}" for name, count in sorted(gone.items())[:MAX_TOLD])
        more = f", and {len(gone) - MAX_TOLD} more queues" if len(gone) > MAX_TOLD else ""
        raise TableChanged(
            f"{found.where} holds {_count(rows)} rows, {_count(had)} were archived, and no batch left it like this"
            f" ({told}{more}): it was changed by others. Bring it back to one of its versions, or {_WAYS_ON[added]}"
        )
    gaps = tuple(
        Gap(name, expected.begin.get(name, 0), expected.end[name], count, REMOVED, number)
        for name, count in sorted(gone.items())
        if count > 0 and name in expected.end
    )
    return Resumed(replace(expected, landed=dict(rows), gaps=expected.gaps + gaps), number, taken=gaps)


def _is_earlier(gap: Gap, plan: Plan) -> bool:
    """Whether nothing of a gap lies where a table begins to read again: what it says would be lost with it."""
    if gap.end <= plan.begin.get(gap.queue, 0):
        return True
    return any(
        gap.batch < one.batch and gap.queue in one.begin and gap.start >= one.begin[gap.queue]
        for one in plan.generations
    )  # fmt: skip


def _count(rows: Mapping[str, Landed]) -> int:
    return sum(one.rows for one in rows.values())


def _difference(count: int) -> str:
    if count == 0:
        return "as many, but others"
    return f"{count} are missing" if count > 0 else f"{-count} more"
