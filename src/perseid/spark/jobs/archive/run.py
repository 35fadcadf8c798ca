"""The run that brings a table up to what its topic holds: what is asked, decided and committed, in its order.

    1. look      the table's files and rows, and its plans: where to go on (`resuming`); nothing is changed yet
    2. ask       where the topic's queues begin and end: is it the topic that was read, and is all of it still there?
    3. batches   of a bounded number of offsets: tasks write files; plan N is noted; files and number N are committed
    4. sweep     what killed runs left, and what an older copy of the table did not know: last, when all is in the table

Killed anywhere, the next run finds the last commit and goes on behind it. Whatever is not in the table then is in its
record of gaps (`Plan.gaps`), or stops the run with an error; a gap is only noted where the caller allows it.

Asking and writing are a port (`Topic`): `job` has brokers and Spark behind it, tests a topic in memory.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from perseid.base.errors import ConfigError
from perseid.spark import plan as planning
from perseid.spark.jobs.archive import contents
from perseid.spark.jobs.archive.anew import begun_anew
from perseid.spark.jobs.archive.compaction import Compacted
from perseid.spark.jobs.archive.files import Target, Told, Written
from perseid.spark.jobs.archive.folder import Gap, Generation, Plan
from perseid.spark.jobs.archive.formats import Table
from perseid.spark.jobs.archive.resuming import Found, Resumed, resume
from perseid.spark.jobs.archive.rows import shape_of
from perseid.spark.jobs.archive.snapshot import Snapshot
from perseid.spark.plan import DataLost

TASK_OFFSETS = 100_000
"""Offsets that one task reads at most."""
MOST_ASKED = 64
"""Questions to a broker for one comparison of its messages with rows, when it has messages that are no rows between
them; beyond that the rows count as others, and are read again."""
MAX_GAPS = 1_000
"""Gaps that a plan has one by one; beyond that those of a queue with one cause become one."""
DELETED = "deleted by the brokers before it was read"
DELETED_ANEW = "deleted by the brokers, of a queue that was begun anew, before it was read"
"""As many at most: where a broker had lost no more than its tail, those that were landed before are counted too."""
ABSENT = "not given by the brokers, though offsets around it were"


@dataclass(frozen=True, slots=True)
class Looked:
    """A topic at its brokers: where its queues begin and end, and where a new table is to begin in them."""

    earliest: planning.Position
    latest: planning.Position
    starting: planning.Position


class Topic(Protocol):
    """The port to a topic that a run needs."""

    def look(self, *, begun: bool) -> Looked:
        """Where its queues begin and end. `begun`: it has been read before, so that brokers may be waited for."""

    def stored_ms(self, ends: Mapping[str, int]) -> dict[str, int]:
        """When the message before each of these offsets was stored; what can't be had is left out."""

    def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
        """The offset of a queue's first message from `offset` on that a broker has, and when it was stored; None: there
        is none, or it can't be had."""

    def write(self, parts: Sequence[planning.Range], target: Target) -> Written:
        """Have tasks write the rows of these ranges; what they wrote is there, whole and durable."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a run may do besides adding rows. `gaps`: go on where messages are gone. `new_generation`: go on with a
    topic that was begun anew. `changed_table`: take the table as it is."""

    gaps: bool = False
    new_generation: bool = False
    changed_table: bool = False


@dataclass(frozen=True, slots=True)
class Archived:
    """The outcome of one run."""

    batches: int = 0
    """Batches that this run committed."""
    rows: int = 0
    """Rows that it added."""
    files: int = 0
    """Data files that it wrote."""
    bytes: int = 0
    """Bytes of these files."""
    corrupt: int = 0
    """Rows whose bodies did not decode."""
    repeats: int = 0
    """Messages that a stamped writer had sent before, and that were left out."""
    doubtful: int = 0
    """Rows whose stamps had come before with something else, or may have: they were added."""
    gaps: tuple[Gap, ...] = ()
    """The gaps that this run found, and noted."""
    rewound: tuple[int, int] | None = None
    """The batch that had been committed, and the earlier one that the table held: it was read again from there."""
    away: tuple[str, ...] = ()
    """Queues that were read before, and that no broker has now."""
    compacted: Compacted | None = None
    """What a compaction did afterwards; None: there was none."""


class Run:
    """One run; `done` tells of it, as far as it is."""

    def __init__(
        self,
        table: Table,
        topic: Topic,
        allowed: Allowed,
        batch_offsets: int | None = None,
        on_start: Callable[[int], None] | None = None,
        on_batch: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self.done = Archived()
        self._table, self._topic, self._allowed = table, topic, allowed
        self._batch_offsets = batch_offsets
        self._on_start, self._on_batch = on_start, on_batch
        self._plan = Plan({}, {})
        self._looked = Looked({}, {}, {})
        self._number = 0
        """Of the next batch."""

    def all(self) -> None:
        """All batches, up to where the queues end at its beginning."""
        folder = self._table.folder
        snapshot = self._table.snapshot()
        resumed = self._resumed(snapshot)
        self._looked = looked = self._topic.look(begun=resumed.plan is not None)
        plan = resumed.plan or Plan(looked.starting, looked.starting, landed={})
        self._number, self._plan = resumed.number, plan
        self.done = Archived(rewound=resumed.rewound, gaps=resumed.taken)
        if resumed.plan is not None:
            self._check_same_topic(plan, looked, snapshot)
            self.done = replace(self.done, away=tuple(sorted(plan.end.keys() - looked.latest.keys())))
        self._pass_over_gone(looked)
        if folder.info() is None:
            folder.create(self._table.info)  # only now: a topic by a wrong name makes no table
        named = {file.path for file in snapshot.files}
        left = [path for path in folder.beyond(snapshot.batch) if not named & {str(one) for one in path.rglob("*")}]
        folder.prepare()
        if self._on_start is not None:
            self._on_start(planning.lag(self._plan.end, looked.latest))
        to_note = not resumed.noted or self._plan != plan
        while planning.lag(self._plan.end, looked.latest) or to_note:
            self._batch(planning.advance(self._plan.end, looked.latest, self._batch_offsets))
            to_note = False
        folder.sweep(left)
        folder.note_committed(contents.state(self._table.snapshot()))

    # ---- before the first batch ----

    def _resumed(self, snapshot: Snapshot) -> Resumed:
        contents.check_there(snapshot.files)
        folder, info = self._table.folder, self._table.info
        found = Found(
            str(folder.path), contents.state(snapshot), lambda: contents.contents(info.topic, snapshot.files)
        )  # fmt: skip
        return resume(
            found, folder.committed(), folder.plans(), folder.plan, accept=self._allowed.changed_table
        )  # fmt: skip

    def _check_same_topic(self, plan: Plan, looked: Looked, snapshot: Snapshot) -> None:
        """DataLost when the topic is not the one that was read, unless that may begin a generation."""

        def rows(name: str, low: int, high: int) -> tuple[Sequence[int], Sequence[int]]:
            offsets, times = contents.stored(name, snapshot.files, plan.generations, low, high)
            return offsets.to_pylist(), times.to_pylist()

        anew = begun_anew(plan, looked.earliest, looked.latest, self._topic.stored_ms, rows)
        if not anew:
            return
        if not self._allowed.new_generation:
            raise _anew(next(iter(anew.values())))
        if not self._table.info.numbered:
            raise ConfigError(
                f"{self._table.folder.path} was made by an earlier version, and its rows have no column generation:"
                " archive the topic as it is now into another table"
            )
        begin, end = dict(plan.begin), dict(plan.end)
        kept = {name: at for name, at in plan.stored_ms.items() if name not in anew}
        gone = []
        for name in anew:
            common, low = self._common_end(name, plan, looked, snapshot), looked.earliest[name]
            end[name] = low if common is None else common[0]
            begin[name] = end[name] if common is None else begin.get(name, 0)
            if common is not None:
                kept[name] = common[1]
            elif low:
                gone.append(Gap(name, 0, low, low, DELETED_ANEW, self._number))
        if gone and not self._allowed.gaps:
            raise DataLost(
                f"{gone[0].queue}: was begun anew, and offsets 0 to {gone[0].end - 1} of it are gone: the brokers have"
                " deleted them; go on behind them with --no-fail-on-data-loss (failOnDataLoss=false) and"
                " --new-generation, which notes them as a gap"
            )
        generation = Generation(
            plan.generation + 1, self._number, "; ".join(anew[name] for name in sorted(anew)),
            {name: end[name] for name in anew}, {name: plan.end[name] for name in anew},
        )  # fmt: skip
        self._plan = replace(
            plan, begin=begin, end=end, stored_ms=kept, generations=(*plan.generations, generation)
        )  # fmt: skip
        self._add_gaps(gone)

    def _common_end(self, name: str, plan: Plan, looked: Looked, snapshot: Snapshot) -> tuple[int, int] | None:
        """Up to which offset a queue still holds the messages that were landed, and when the last one of them was
        stored; None: it holds none of them."""
        low, high = looked.earliest[name], looked.latest[name]
        offsets, times = contents.stored(name, snapshot.files, plan.generations, low, high)
        first, last = 0, len(offsets)
        while first < last:  # the first one that differs
            middle = (first + last) // 2
            at = self._first_kept(name, offsets, middle, last)
            if at is not None and at[1] == times[at[0]].as_py():
                first = at[0] + 1
            else:
                last = middle
        return (int(offsets[first - 1].as_py()) + 1, int(times[first - 1].as_py())) if first else None

    def _first_kept(self, name: str, offsets: Any, at: int, last: int) -> tuple[int, int] | None:
        """The first of some rows whose offset the broker still has a message for (a compacted topic has not all of
        them), and when that was stored; None: there is none, or nobody told after `MOST_ASKED` questions."""
        for _ in range(MOST_ASKED):
            kept = self._topic.first_kept(name, offsets[at].as_py())
            if kept is None:
                return None
            at = bisect_left(offsets, kept[0], at, last, key=lambda offset: offset.as_py())
            if at == last:
                return None
            if offsets[at].as_py() == kept[0]:
                return at, kept[1]
        return None

    def _pass_over_gone(self, looked: Looked) -> None:
        """Note what the brokers have deleted before it was read; DataLost where that is not allowed."""
        gaps, end = [], dict(self._plan.end)
        for name, low in sorted(looked.earliest.items()):
            at = end.get(name, 0)
            if at >= low:
                continue
            if not self._allowed.gaps:
                raise DataLost(
                    f"{name}: offsets {at} to {low - 1} are gone: the brokers have deleted them, and they are not in"
                    " the table; go on behind them with --no-fail-on-data-loss (failOnDataLoss=false), which notes them"
                    " as a gap" + self._rewound_text()
                )
            gaps.append(Gap(name, at, low, low - at, DELETED, self._number))
            end[name] = low
        if gaps:
            self._add_gaps(gaps)
            self._plan = replace(self._plan, end=end)

    def _rewound_text(self) -> str:
        if self.done.rewound is None:
            return ""
        reached, holds = self.done.rewound
        return (
            f". The table holds what it held at batch {holds}, though batch {reached} was committed: bring back the"
            " newer one, if there is a copy; its files have not been removed"
        )

    # ---- batches ----

    def _batch(self, end: planning.Position) -> None:
        """Land what lies before `end`."""
        table, number, before = self._table, self._number, self._plan
        place = table.place(number, os.urandom(4).hex())
        place.mkdir(parents=True)
        parts = planning.ranges(before.end, end)
        parts = planning.split(parts, -(-sum(part.end - part.start for part in parts) // TASK_OFFSETS))
        target = Target(str(place), table.info.partition_by, shape_of(table.info, before.generation))
        written = self._topic.write(parts, target)
        self._check_not_exchanged(before, end)
        names = [planning.name_of(part.queue) for part in parts]
        landed = contents.total([
            before.landed or {}, *({name: told.landed} for name, told in zip(names, written.tasks, strict=True))
        ])  # fmt: skip
        self._add_gaps([
            Gap(name, *missing, ABSENT, number)
            for name, told in zip(names, written.tasks, strict=True)
            for missing in told.missing
        ])  # fmt: skip
        begin = {**dict.fromkeys(end, 0), **before.begin}
        kept = {name: at for name, at in before.stored_ms.items() if end.get(name) == before.end.get(name)}
        known = kept | last_stored(parts, written.tasks, end)  # what brokers have there may be of another topic by now
        stored_ms = known | self._topic.stored_ms({name: at for name, at in end.items() if name not in known})
        self._plan = replace(
            self._plan, begin=begin, end=end, stored_ms=stored_ms, landed=landed,
            earliest={**before.earliest, **self._looked.earliest},
        )  # fmt: skip
        table.folder.write_plan(number, self._plan)
        table.commit(number, place, written.files)
        self._number += 1
        self._count(number, written)

    def _check_not_exchanged(self, before: Plan, end: planning.Position) -> None:
        """DataLost when a queue was begun anew since it was looked at: what was read now is of another one."""
        read = {
            name: at for name, at in before.end.items() if name in before.stored_ms and end.get(name) != at
        }  # fmt: skip
        for name, at_ms in self._topic.stored_ms(read).items():
            if at_ms != before.stored_ms[name]:
                raise _anew(
                    f"{name}: the message at offset {read[name] - 1} was exchanged for another one while the topic was"
                    " read"
                )

    def _add_gaps(self, gaps: Sequence[Gap]) -> None:
        self.done = replace(self.done, gaps=(*self.done.gaps, *gaps))
        self._plan = replace(self._plan, gaps=bounded((*self._plan.gaps, *gaps)))

    def _count(self, number: int, written: Written) -> None:
        done, rows = self.done, sum(file.rows for file in written.files)
        repeats = sum(told.repeats for told in written.tasks)
        self.done = replace(
            done,
            batches=done.batches + 1,
            rows=done.rows + rows,
            files=done.files + len(written.files),
            bytes=done.bytes + sum(file.bytes for file in written.files),
            corrupt=done.corrupt + sum(file.corrupt for file in written.files),
            repeats=done.repeats + repeats,
            doubtful=done.doubtful + sum(told.doubtful for told in written.tasks),
        )
        if self._on_batch is not None:
            self._on_batch(number, rows, repeats)


def _anew(why: str) -> DataLost:
    return DataLost(
        f"{why}: the topic was deleted and made again, or its broker lost messages: go on with --new-generation, which"
        " keeps what was landed, or archive it into another table"
    )


def last_stored(parts: Sequence[planning.Range], tasks: Sequence[Told], end: Mapping[str, int]) -> dict[str, int]:
    """When the messages before these ends were stored, of those that are rows now, whatever brokers have since."""
    found = {}
    for part, told in zip(parts, tasks, strict=True):
        name = planning.name_of(part.queue)
        if told.last is not None and told.last[0] == end[name] - 1:
            found[name] = told.last[1]
    return found


def bounded(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """As many gaps as a plan may have: where there are more, those of a queue with one cause become one."""
    if len(gaps) <= MAX_GAPS:
        return tuple(gaps)
    kinds: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        kinds.setdefault((gap.queue, gap.why), []).append(gap)
    merged = (
        Gap(
            queue, min(gap.start for gap in some), max(gap.end for gap in some), sum(gap.messages for gap in some), why,
            max(gap.batch for gap in some),
        )
        for (queue, why), some in kinds.items()
    )  # fmt: skip
    return tuple(merged)
