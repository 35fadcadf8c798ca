"""A run of rows in pieces: what is left to measure, how long that takes, and when the page is written."""

import argparse
import io
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import run
from kept import Kept
from rich.console import Console
from rows import ROWS, Row, Sizes
from servers import CORE, JAVA

SIZES = Sizes(large_gib=0, cold_mib=64)
FIGURES = ("per_second", "server_cpu_us", "server_cores", "load_cores", "other_cores", "p50_ms", "p99_ms", "memory_mb")


def rows(*names: str) -> list[Row]:
    return [row for row in ROWS if row.name in names]


def bench(tmp_path: Path, **more: object) -> run.Bench:
    args = argparse.Namespace(only=None, seconds=2.0, rounds=None, warm=None, tries=1)
    vars(args).update(more)
    one = run.Bench(args, SIZES, tmp_path, Console(file=io.StringIO(), width=200), Kept("c0ffee", tmp_path))
    one.machine = {"date": "2026-11-26"}
    return one


def measure(one: run.Bench, some: list[Row], **figures: float) -> None:
    """Keep rows as if they had been measured together."""
    rounds = [dict.fromkeys(FIGURES, 1.0) | {"load_cores": 0.1} | figures]
    one.results |= {row.name: {JAVA: rounds, CORE: rounds} for row in some}
    one.keep(some, 60.0)


def said(one: run.Bench) -> str:
    assert isinstance(one.console.file, io.StringIO)
    return one.console.file.getvalue()


def test_what_this_commit_has_is_not_measured_again(tmp_path: Path) -> None:
    measure(bench(tmp_path), rows("closed"))
    one = bench(tmp_path)
    assert run.left_to_measure(one, rows("closed", "pull")) == rows("pull")
    assert list(one.results) == ["closed"], "its figures are shown with those of the others"
    assert run.left_to_measure(bench(tmp_path, seconds=9.0), rows("closed")) == rows("closed"), "with other settings"


def test_rows_that_take_turns_are_measured_together(tmp_path: Path) -> None:
    measure(bench(tmp_path), rows("topics1"))
    both = rows("topics1", "topics1000")
    assert run.left_to_measure(bench(tmp_path), both) == both


def test_groups_that_would_not_end_in_time_are_not_begun(tmp_path: Path) -> None:
    assert bench(tmp_path).run(rows("closed", "pull"), deadline_s=0.0) == rows("closed", "pull")


def test_java_is_started_and_warmed_once(tmp_path: Path) -> None:
    first, second = bench(tmp_path).expected_s(rows("closed", "closed16"))
    (alone,) = bench(tmp_path).expected_s(rows("closed16"))
    assert first == alone > second + 20
    assert sum(bench(tmp_path, only=[CORE]).expected_s(rows("closed"))) < first / 2


def test_a_page_that_lacks_rows_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "write_docs", lambda *_: pytest.fail("it was written"))
    one = bench(tmp_path)
    measure(one, rows("closed"))
    assert not run.write(one, one.console, busy_too=False)
    assert "rows are not measured at commit c0ffee: pipelined," in said(one)


@pytest.mark.parametrize(("busy_too", "written"), [(False, False), (True, True)])
def test_a_page_of_a_busy_machine_is_written_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_too: bool, written: bool
) -> None:
    pages: list[object] = []
    monkeypatch.setattr(run, "write_docs", lambda kept, rows: pages.append(kept))
    monkeypatch.setattr(run, "missing", lambda *_: [])
    one = bench(tmp_path)
    measure(one, rows("closed"), other_cores=0.7)
    assert run.write(one, one.console, busy_too=busy_too) is written
    assert len(pages) == written and ("up to 0.70 cores busy" in said(one)) is not written
