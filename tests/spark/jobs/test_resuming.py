"""Where a run goes on, and when it refuses; without a table."""

from collections.abc import Mapping

import pytest

from perseid.spark.jobs.archive.folder import Committed, Gap, Generation, Landed, Plan
from perseid.spark.jobs.archive.resuming import REMOVED, Found, Resumed, TableChanged, resume

QUEUE = "t/b/0"


def rows(*offsets: int) -> dict[str, Landed]:
    found = {QUEUE: Landed(len(offsets), sum(offsets), sum(offset * offset for offset in offsets))}
    return found if offsets else {}


def plan(end: int, landed: Mapping[str, Landed] | None = None) -> Plan:
    return Plan({QUEUE: 0}, {QUEUE: end}, landed=rows(*range(end)) if landed is None else landed)


PLANS = {0: plan(10), 1: plan(20), 2: plan(30), 3: plan(40)}
"""The last one is of a run that was killed before its commit."""


def resumed(
    batch: int, held: Mapping[str, Landed], *, committed: Committed | None = None, accept: bool = False
) -> Resumed:
    return resume(Found("T", Committed(batch, "f"), lambda: held), committed, sorted(PLANS), PLANS.get, accept=accept)


def test_the_files_of_the_last_commit_are_gone_on_with_unread() -> None:
    def unread() -> Mapping[str, Landed]:
        raise AssertionError("the rows need not be read")

    found = resume(Found("T", Committed(2, "f"), unread), Committed(2, "f"), sorted(PLANS), PLANS.get)
    assert (found.plan, found.number, found.rewound) == (PLANS[2], 3, None)


@pytest.mark.parametrize("committed", [None, Committed(1, "f"), Committed(2, "others")])
def test_the_rows_of_the_last_batch_are_gone_on_with_in_whatever_files(committed: Committed | None) -> None:
    found = resumed(2, rows(*range(30)), committed=committed)
    assert (found.plan, found.number, found.rewound) == (PLANS[2], 3, None)


@pytest.mark.parametrize(("batch", "committed"), [(2, None), (1, Committed(2, "f")), (2, Committed(2, "others"))])
def test_the_rows_of_an_earlier_batch_are_read_again_under_a_new_number(
    batch: int, committed: Committed | None
) -> None:
    found = resumed(batch, rows(*range(20)), committed=committed)
    assert (found.plan, found.number, found.rewound) == (PLANS[1], 4, (2, 1))


def test_an_empty_table_begins_where_it_once_began() -> None:
    found = resumed(-1, {}, committed=Committed(2, "f"))
    assert found.plan is not None and (found.plan.end, found.plan.landed) == ({QUEUE: 0}, {})
    assert (found.number, found.rewound) == (4, (2, -1))
    assert resume(Found("T", Committed(-1, ""), dict), None, [], PLANS.get) == Resumed(None, 0), "nobody was here"


def test_an_attempt_whose_batch_is_not_there_holds_the_place_at_which_a_table_begins() -> None:
    found = resumed(-1, {})
    assert found.plan is not None and (found.plan.end, found.plan.landed) == ({QUEUE: 0}, {})
    assert (found.number, found.noted) == (4, False), "killed, or removed when it had come in: nobody knows"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (rows(*range(29)), "29 rows, 30 were archived.* 1 are missing"),
        (rows(*range(29), 30), "as many, but others"),
        (rows(*range(32)), "2 more"),
        (rows(*range(40)), "10 more"),  # as the plan says that was never committed
        ({**rows(*range(30)), "t/b/1": Landed(1, 0, 0)}, "t/b/1: 1 more"),
    ],
)
def test_anything_else_is_refused(held: Mapping[str, Landed], said: str) -> None:
    with pytest.raises(TableChanged, match=said):
        resumed(2, held)
    with pytest.raises(TableChanged, match="no batch of it"):
        resumed(-1, held)


def test_what_is_missing_is_a_gap_when_the_table_is_taken_as_it_is() -> None:
    found = resumed(2, rows(*range(25)), accept=True)
    assert found.taken == (Gap(QUEUE, 0, 30, 5, REMOVED, 4),) and found.number == 4
    assert found.plan is not None and (found.plan.gaps, found.plan.landed) == (found.taken, rows(*range(25)))


def test_a_plan_of_an_earlier_version_takes_the_table_as_it_is() -> None:
    old = {0: Plan({QUEUE: 0}, {QUEUE: 10})}
    found = resume(Found("T", Committed(0, "f"), lambda: rows(*range(10))), None, [0], old.get)
    assert found.plan is not None and (found.plan.landed, found.number) == (rows(*range(10)), 1)


def test_an_emptied_table_keeps_the_gaps_of_earlier_generations_and_of_what_came_before_its_beginning() -> None:
    earlier, before, again = (
        Gap(QUEUE, 40, 50, 10, "gone", 1), Gap(QUEUE, 0, 5, 5, "gone", 3), Gap(QUEUE, 7, 9, 2, "gone", 3),
    )  # fmt: skip
    newest = Plan(
        {QUEUE: 5}, {QUEUE: 20}, landed=rows(*range(10)), gaps=(earlier, before, again),
        generations=(Generation(2, 3, "made again", {QUEUE: 5}, {QUEUE: 60}),),
    )  # fmt: skip
    found = resume(Found("T", Committed(-1, ""), dict), Committed(4, "f"), [4], {4: newest}.get)
    assert found.plan is not None and found.plan.gaps == (earlier, before), "the third is found again, if it is one"


def test_a_table_that_is_older_than_all_plans_is_refused_and_can_be_taken_as_it_is() -> None:
    def found(accept: bool) -> Resumed:
        old = Found("T", Committed(0, "f"), lambda: rows(*range(5)))
        return resume(old, Committed(2, "f"), [1, 2], PLANS.get, accept=accept)

    with pytest.raises(TableChanged, match="5 rows, 30 were archived"):
        found(False)
    resumed = found(True)
    assert [gap.messages for gap in resumed.taken] == [25] and resumed.number == 3


def test_rows_that_were_added_are_refused_also_when_the_table_is_to_be_taken_as_it_is() -> None:
    with pytest.raises(TableChanged, match=r"t/b/0: 2 more.* nobody knows which rows are there twice"):
        resumed(2, rows(*range(32)), accept=True)
