"""What a queue that was begun anew still holds of a table, asked for with few questions."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from perseid.spark.jobs.archive import contents
from perseid.spark.jobs.archive.folder import Plan
from perseid.spark.jobs.archive.run import MOST_ASKED, Allowed, Looked, Run

NAME, ROWS = "t/b/0", 100_000
MOST_HALVINGS = ROWS.bit_length()


class Broker:
    """Tells of its messages, `kept`, and counts what it is asked."""

    def __init__(self, kept: Iterable[int], other_from: int = ROWS * 2) -> None:
        self.kept, self.other_from, self.asked = sorted(kept), other_from, 0

    def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
        assert name == NAME
        self.asked += 1
        found = next((one for one in self.kept if one >= offset), None)
        return None if found is None else (found, found + (7 if found >= self.other_from else 0))


def common_end(monkeypatch: pytest.MonkeyPatch, rows: Iterable[int], broker: Any) -> tuple[int, int] | None:
    """A row's message was stored at the time that is its offset."""
    offsets = pa.chunked_array([pa.array([*rows], pa.int64())])
    monkeypatch.setattr(contents, "stored", lambda *_: (offsets, offsets))
    run = Run(cast(Any, None), broker, Allowed())
    looked = Looked({NAME: 0}, {NAME: ROWS}, {})
    return run._common_end(NAME, Plan({}, {}), looked, cast(Any, SimpleNamespace(files=())))


@pytest.mark.parametrize("end", [0, 1, 777, ROWS])
def test_it_is_found_by_halving(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    broker = Broker(range(end))
    assert common_end(monkeypatch, range(ROWS), broker) == ((end, end - 1) if end else None)
    assert broker.asked <= MOST_HALVINGS


def test_where_messages_were_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert common_end(monkeypatch, range(ROWS), Broker(range(ROWS), other_from=4_321)) == (4_321, 4_320)


def test_a_compacted_queue_that_has_nearly_nothing_left_is_asked_as_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept, end in (([], None), ([99_998], (99_999, 99_998)), ([3, 50_000], (50_001, 50_000))):
        broker = Broker(kept)
        assert common_end(monkeypatch, range(ROWS), broker) == end
        assert broker.asked <= MOST_HALVINGS, kept


def test_messages_that_are_no_rows_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats of a stamped writer are left out of a table."""
    broker = Broker(range(0, 3_000))
    assert common_end(monkeypatch, range(0, 6_000, 3), broker) == (2_998, 2_997)
    assert broker.asked <= 2 * MOST_HALVINGS


def test_a_broker_that_leads_on_is_asked_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names an offset beside each row: those rows are not taken for held."""

    class Hostile(Broker):
        def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
            self.asked += 1
            return offset + 1, offset + 1

    broker = Hostile(())
    assert common_end(monkeypatch, range(0, ROWS, 2), broker) is None
    assert broker.asked <= MOST_ASKED * MOST_HALVINGS


def test_a_broker_that_answers_with_an_earlier_offset_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile(Broker):
        def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
            self.asked += 1
            return 0, 0

    broker = Hostile(())
    assert common_end(monkeypatch, range(1, ROWS), broker) is None
    assert broker.asked <= MOST_ASKED * MOST_HALVINGS
