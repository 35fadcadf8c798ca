"""Defects that are planted into the archive, one at a time: a model that does not notice them is not strong enough.

    python -m tests.spark.landing.planted [--within 400] [NAME...]

looks for the first history that each one breaks, and prints what `FOUND` is to hold.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.spark.jobs.archive import anew, compaction, contents, files, formats, resuming, run
from perseid.spark.jobs.archive.folder import Generation, Plan, TableFolder
from perseid.spark.jobs.archive.formats import ParquetTable
from perseid.spark.jobs.archive.resuming import Resumed
from perseid.spark.jobs.archive.run import Run

from .run import played

Defect = Callable[[pytest.MonkeyPatch], None]
WITHIN = 12
"""Histories that are played at most, from the pinned one on."""


def files_of_tasks_are_trusted(patch: pytest.MonkeyPatch) -> None:
    """A batch is committed without a look at whether its files are there."""
    for module in (files, formats, topic_module()):
        patch.setattr(module, "seal", lambda folder, found: None)


def topic_module() -> Any:
    from . import topic

    return topic


def digest_believed(patch: pytest.MonkeyPatch) -> None:
    """The number of the last batch alone says that a table is as it was left."""
    patch.setattr(contents, "digest", lambda found: "")


def number_believed(patch: pytest.MonkeyPatch) -> None:
    """A run goes on behind the batch that the table names, whatever rows it holds."""

    def resume(found: Any, committed: Any, numbers: Any, plan: Any, *, accept: bool = False) -> Resumed:
        return Resumed(plan(found.batch) if found.batch >= 0 else None, found.batch + 1, noted=found.batch >= 0)

    patch.setattr(run, "resume", resume)


def plan_after_commit(patch: pytest.MonkeyPatch) -> None:
    """What a batch covers is noted when it is in the table already."""
    noted: dict[int, Plan] = {}
    write, commit = TableFolder.write_plan, ParquetTable.commit

    def write_plan(self: TableFolder, batch: int, plan: Plan) -> None:
        noted[batch] = plan

    def commit_first(self: ParquetTable, batch: int, place: Path, found: Any) -> None:
        commit(self, batch, place, found)
        write(self.folder, batch, noted.pop(batch))

    patch.setattr(TableFolder, "write_plan", write_plan)
    patch.setattr(ParquetTable, "commit", commit_first)


def gaps_only_said(patch: pytest.MonkeyPatch) -> None:
    """A run tells its gaps, and the table's record does not have them."""

    def add(self: Run, gaps: Any) -> None:
        self.done = replace(self.done, gaps=(*self.done.gaps, *gaps))

    patch.setattr(Run, "_add_gaps", add)


def gaps_only_noted(patch: pytest.MonkeyPatch) -> None:
    """The table's record has gaps that no run tells."""

    def add(self: Run, gaps: Any) -> None:
        self._plan = replace(self._plan, gaps=(*self._plan.gaps, *gaps))

    patch.setattr(Run, "_add_gaps", add)


def what_is_gone_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A run begins where the brokers begin."""

    def pass_over(self: Run, looked: Any) -> None:
        end = {name: max(at, looked.earliest.get(name, 0)) for name, at in self._plan.end.items()}
        self._plan = replace(self._plan, end=looked.earliest | end)

    patch.setattr(Run, "_pass_over_gone", pass_over)


def holes_are_no_gaps(patch: pytest.MonkeyPatch) -> None:
    """What tasks say is missing is not noted."""
    patch.setattr(files, "_bounded", lambda missing: iter(()))


def lock_not_taken(patch: pytest.MonkeyPatch) -> None:
    """Two runs write at once."""

    @contextmanager
    def locked(self: TableFolder, name: str = "lock") -> Iterator[None]:
        self.own.mkdir(parents=True, exist_ok=True)
        yield

    patch.setattr(TableFolder, "locked", locked)


def resumed_as(patch: pytest.MonkeyPatch, change: Callable[[Resumed, Any], Resumed]) -> None:
    real = run.resume

    def resume(found: Any, *rest: Any, **options: Any) -> Resumed:
        return change(real(found, *rest, **options), found)

    patch.setattr(run, "resume", resume)


def nothing_is_noted_without_rows(patch: pytest.MonkeyPatch) -> None:
    """A run that has nothing to add commits nothing: neither a first place, nor one that was rewound."""
    resumed_as(patch, lambda resumed, found: replace(resumed, noted=True))


def accepted_without_gaps(patch: pytest.MonkeyPatch) -> None:
    """A table is taken as it is, and what it lacks is in no record."""

    def change(resumed: Resumed, found: Any) -> Resumed:
        if not resumed.taken or resumed.plan is None:
            return resumed
        gaps = tuple(gap for gap in resumed.plan.gaps if gap not in resumed.taken)
        return replace(resumed, taken=(), plan=replace(resumed.plan, gaps=gaps))

    resumed_as(patch, change)


def an_emptied_table_forgets_gaps(patch: pytest.MonkeyPatch) -> None:
    """A table without rows begins anew without its record."""
    patch.setattr(resuming, "_is_earlier", lambda gap, plan: False)


def an_attempt_holds_no_place(patch: pytest.MonkeyPatch) -> None:
    """A table whose first batch is gone begins where the topic begins now."""
    resumed_as(patch, lambda resumed, found: Resumed(None, 0) if found.batch < 0 and not resumed.rewound else resumed)


def generation_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Rows of a topic that was begun anew have the number of those before."""

    def counted(number: int, *rest: Any) -> Generation:
        return Generation(number - 1, *rest)

    patch.setattr(run, "Generation", counted)


def a_new_generation_reads_all_again(patch: pytest.MonkeyPatch) -> None:
    """What a broker that lost its tail still holds is landed a second time."""
    patch.setattr(Run, "_common_end", lambda self, *rest: None)


def what_a_new_topic_lost_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    """A generation begins where the topic begins, without a word of what was before."""
    real = Run._add_gaps

    def add(self: Run, gaps: Any) -> None:
        real(self, [gap for gap in gaps if gap.why != run.DELETED_ANEW])

    patch.setattr(Run, "_add_gaps", add)


def a_new_topic_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """Offsets alone say where to go on."""
    patch.setattr(run, "begun_anew", lambda *rest: {})


def only_ends_are_compared(patch: pytest.MonkeyPatch) -> None:
    """A topic that has grown beyond the place that was read is taken for the one that was read."""
    real = anew.begun_anew
    patch.setattr(
        run, "begun_anew", lambda plan, low, high, ask, rows: real(plan, low, high, lambda ends: {}, None)
    )  # fmt: skip


def rows_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Where the message that was read last is gone, a topic is taken for the one that was read."""
    real = anew.begun_anew
    patch.setattr(run, "begun_anew", lambda plan, low, high, ask, rows: real(plan, low, high, ask, None))


def not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """A topic that is exchanged while it is read goes unnoticed."""
    patch.setattr(Run, "_check_not_exchanged", lambda self, before, end: None)


def times_are_asked_for_afterwards(patch: pytest.MonkeyPatch) -> None:
    """When the last row was stored is what brokers say after it was read."""
    patch.setattr(run, "last_stored", lambda parts, tasks, end: {})


def only_this_batch_is_counted(patch: pytest.MonkeyPatch) -> None:
    """A plan says what its own batch landed."""
    real = contents.total
    patch.setattr(contents, "total", lambda parts: real(list(parts)[1:]))


def queues_that_are_away_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A plan has the queues that brokers have now."""
    real = TableFolder.write_plan

    def write_plan(self: TableFolder, batch: int, plan: Plan) -> None:
        end = {name: at for name, at in plan.end.items() if name in plan.stored_ms}
        real(self, batch, replace(plan, end=end))

    patch.setattr(TableFolder, "write_plan", write_plan)


def half_a_batch_is_seen(patch: pytest.MonkeyPatch) -> None:
    """Files come in one by one."""

    def commit(self: ParquetTable, batch: int, place: Path, found: Sequence[Any]) -> None:
        visible = self._visible(self.folder.data, batch)
        visible.mkdir()
        for file in found:
            (place / file.path).rename(visible / file.path)

    patch.setattr(ParquetTable, "commit", commit)


def a_merge_forgets_a_file(patch: pytest.MonkeyPatch) -> None:
    """Of the files that a compaction merges the last one is not read."""
    real = compaction.merge
    patch.setattr(
        compaction, "merge", lambda spark, groups, target: real(spark, [group[:-1] for group in groups], target)
    )  # fmt: skip


def a_swap_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """Between the old files and the merged ones there are none."""

    def exchange(one: Path, other: Path) -> None:
        aside = other.with_name("aside")
        other.rename(aside)
        one.rename(other)
        shutil.rmtree(aside)
        one.mkdir()

    patch.setattr(formats, "exchange", exchange)


def a_compaction_of_an_older_table(patch: pytest.MonkeyPatch) -> None:
    """What a compaction leaves is noted as it is, whoever changed it before."""
    real = compaction._compacted
    patch.setattr(compaction, "_compacted", lambda table, before, known: real(table, before, known=True))


def swept_first(patch: pytest.MonkeyPatch) -> None:
    """What a table does not know is removed before it is known whether brokers still have it."""
    real = TableFolder.beyond

    def beyond(self: TableFolder, last: int) -> list[Path]:
        TableFolder.sweep(real(self, last))
        return []

    look = Run._resumed

    def resumed(self: Run, snapshot: Any) -> Resumed:
        found = look(self, snapshot)
        TableFolder.sweep(real(self._table.folder, snapshot.batch))
        return found

    patch.setattr(TableFolder, "beyond", beyond)
    patch.setattr(Run, "_resumed", resumed)


def files_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A run goes on with a table that lacks files which it names."""
    patch.setattr(contents, "check_there", lambda found: None)


def the_number_comes_later(patch: pytest.MonkeyPatch) -> None:
    """Delta: files count in one commit, and the batch's number in another."""
    from perseid.spark.jobs.archive.delta import TRANSACTION, DeltaTable

    def commit(self: DeltaTable, batch: int, place: Path, found: Sequence[Any]) -> None:
        import deltalake
        from deltalake.transaction import CommitProperties, Transaction

        table = self._load() if self._exists() else self._create()
        schema = deltalake.Schema.from_arrow(self._schema)
        table.create_write_transaction([self._added(place, one) for one in found], "append", schema, [])
        self._load().create_write_transaction(
            [], "append", schema, [],
            commit_properties=CommitProperties(app_transactions=[Transaction(TRANSACTION, batch)]),
        )  # fmt: skip

    patch.setattr(DeltaTable, "commit", commit)


FOUND: dict[str, dict[Defect, int]] = {
    "parquet": {
        files_of_tasks_are_trusted: 14,
        number_believed: 7,
        plan_after_commit: 19,
        gaps_only_said: 2,
        gaps_only_noted: 2,
        what_is_gone_is_passed_over: 2,
        holes_are_no_gaps: 12,
        lock_not_taken: 9,
        nothing_is_noted_without_rows: 1,
        accepted_without_gaps: 17,
        an_attempt_holds_no_place: 40,
        generation_not_counted: 3,
        a_new_generation_reads_all_again: 3,
        what_a_new_topic_lost_is_not_noted: 123,
        a_new_topic_is_not_noticed: 3,
        only_ends_are_compared: 3,
        not_looked_at_again: 44,
        times_are_asked_for_afterwards: 44,
        only_this_batch_is_counted: 3,
        queues_that_are_away_are_forgotten: 16,
        a_merge_forgets_a_file: 2,
    },
    "delta": {digest_believed: 7, files_are_not_looked_for: 12, the_number_comes_later: 53},
    "iceberg": {swept_first: 11, files_are_not_looked_for: 7},
}
"""The first history of each format that notices each."""


def notices(defect: Defect, form: str, first: int, within: int = WITHIN) -> int | None:
    """The history, from the first one on, that fails with the defect and not without it; None: none of so many."""
    for seed in range(first, first + within):
        with pytest.MonkeyPatch.context() as patch:
            defect(patch)
            failure = played(seed, form).failure
        if failure and not played(seed, form).failure:
            print(f"{defect.__name__}: noticed by {form} {seed}: {failure.splitlines()[0][:160]}", flush=True)
            return seed
    return None


def main() -> None:
    """Look for what notices each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--within", type=int, default=400)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--form", default="parquet")
    asked = parser.parse_args()
    for name in asked.names:
        seed = notices(globals()[name], asked.form, asked.first, asked.within)
        print(f"    {name}: {seed},", flush=True)


if __name__ == "__main__":
    main()
