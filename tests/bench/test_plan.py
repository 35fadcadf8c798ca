"""How long rows are said to take."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from kept import Kept, Settings
from plan import Pace, expected_s, minutes, reckoned_s, start_s
from rows import ROWS, Row, Sizes
from servers import CORE, JAVA

PACE = Pace(seconds=2.0, rounds=3, java_warm=10.0)
SIZES = Sizes(large_gib=0, cold_mib=64, kills=8)
BY_NAME = {row.name: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_takes_its_time(row: Row) -> None:
    assert 3 < reckoned_s(row, PACE, SIZES, (JAVA, CORE)) < 1_500


def test_more_of_anything_takes_longer() -> None:
    least = reckoned_s(BY_NAME["closed"], PACE, SIZES, (CORE,))
    assert reckoned_s(BY_NAME["closed"], PACE, SIZES, (JAVA, CORE)) > 2 * least, "Java is warmed for longer"
    assert reckoned_s(BY_NAME["closed"], Pace(2.0, 5, 10.0), SIZES, (CORE,)) > least
    assert reckoned_s(BY_NAME["closed"], Pace(4.0, 3, 10.0), SIZES, (CORE,)) == least + 3 * 2.0
    assert reckoned_s(BY_NAME["pull"], PACE, SIZES, (CORE,)) > least, "its log is filled first"
    more = Sizes(large_gib=0, cold_mib=64, kills=16)
    twice = 2 * reckoned_s(BY_NAME["dlhang"], PACE, SIZES, (CORE,))
    assert reckoned_s(BY_NAME["dlhang"], PACE, more, (CORE,)) == twice
    assert start_s(BY_NAME["dl64x1k"]) > start_s(BY_NAME["closed"])


def test_what_was_measured_before_is_known_better(tmp_path: Path) -> None:
    rows = [BY_NAME["closed"]]
    assert expected_s(rows, 77.0, tmp_path) == 77.0
    Kept("c0ffee", tmp_path).save({"closed": Settings(2.0, 3, 10.0, "")}, {"closed": {}}, {}, 50.0)
    assert expected_s(rows, 77.0, tmp_path) == 50.0


def test_words() -> None:
    assert (minutes(40.2), minutes(600)) == ("40 s", "10 min")
