"""Chosen histories that notice planted defects which random ones meet too seldom: each ends well without its defect."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from perseid.spark.jobs.archive.run import DELETED_ANEW

from . import planted
from .case import A, B, Case, kill
from .landing import DONE, KILLED, Failure
from .planted import Defect

POINTS = 80
"""More than a run or a compaction of a case passes."""


def an_emptied_table_has_its_record(folder: Path) -> None:
    """A queue was begun anew, and had lost its beginning by then; all batches of the table are removed."""
    case = Case(folder)
    with case.playing():
        case.world.publish(A, 8)
        case.run()
        case.world.recreate()
        case.world.publish(A, 12)
        case.world.retain(A, 5)
        done = case.run(gaps=True, anew=True).done
        assert done is not None and [gap.why for gap in done.gaps] == [DELETED_ANEW]
        for batch in (case.landing.path / "data").iterdir():
            shutil.rmtree(batch)
        case.judge.put_back()
        if case.run().how != DONE:
            raise Failure("a table that was emptied is not read again")


def the_last_message_is_gone(folder: Path) -> None:
    """A topic is made again, and lacks the message at the place where the run before ended."""
    case = Case(folder)
    with case.playing():
        case.world.publish(A, 6)
        case.run()
        case.world.recreate()
        case.world.publish(A, 12)
        case.world.compact(A, [5])
        if case.run(gaps=True).refusal != "begun anew":
            raise Failure("a topic that was made again is taken for the one that was read")


def killed_anywhere(folder: Path, killed: Callable[[Case, int], bool]) -> None:
    """Something is killed at each of its points, one table each; the next run ends well."""
    for point in range(POINTS):
        case = Case(folder / str(point))
        case.world.add_queue("a")
        with case.playing():
            case.world.publish(A, 3)
            case.world.publish(B, 3)
            if not killed(case, point):
                return
            if case.run().how != DONE or case.rows() != 6:
                raise Failure(f"killed at point {point}, and the next run does not end with all rows")
    raise AssertionError(f"it has more than {POINTS} points")


def a_run_is_killed(folder: Path) -> None:
    """A batch of two files."""
    killed_anywhere(folder, lambda case, point: case.run(at={point: kill}).how == KILLED)


def a_compaction_is_killed(folder: Path) -> None:
    """Of two files into one."""

    def killed(case: Case, point: int) -> bool:
        case.run()
        return case.compact({point: kill}).how == KILLED

    killed_anywhere(folder, killed)


def others_delete_and_then_it_is_compacted(folder: Path) -> None:
    """What others deleted is refused after a compaction, too."""
    case = Case(folder)
    case.world.add_queue("a")
    case.world.add_queue("a")
    with case.playing():
        for name in case.world.queues:
            case.world.publish(name, 3)
        case.run()
        next((case.landing.path / "data").rglob("*.parquet")).unlink()
        case.judge.touched = True
        case.compact()
        if case.run().refusal != "changed by others":
            raise Failure("what others deleted is taken for never landed")


CASES: dict[Defect, Callable[[Path], None]] = {
    planted.an_emptied_table_forgets_gaps: an_emptied_table_has_its_record,
    planted.rows_are_not_asked: the_last_message_is_gone,
    planted.half_a_batch_is_seen: a_run_is_killed,
    planted.a_swap_in_two_steps: a_compaction_is_killed,
    planted.a_compaction_of_an_older_table: others_delete_and_then_it_is_compacted,
}
