"""The earliest of some deadlines."""

from __future__ import annotations

from perseid.base.deadlines import soonest


def test_what_is_never_due_does_not_count() -> None:
    assert soonest(None, 7, None, 3, 5) == 3
    assert soonest(None, 0) == 0, "a deadline at 0 is one"


def test_nothing_is_due_where_nothing_ever_is() -> None:
    assert soonest(None, None) is None
    assert soonest() is None
