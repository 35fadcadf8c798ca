"""The page of one commit: what it needs, and what it says."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import report
from kept import Kept, Settings
from rows import ROWS, Sizes, sized
from servers import CORE, JAVA

FIGURES = ("per_second", "server_cpu_us", "server_cores", "load_cores", "other_cores", "p50_ms", "p99_ms", "memory_mb")
ROUND = dict.fromkeys(FIGURES, 1.0)
NAMES = ["closed", "send-plain", "half"]
ROWS_OF_PAGE = [row for row in sized(ROWS, Sizes(large_gib=0, cold_mib=64)) if row.name in NAMES]


def kept(folder: Path) -> Kept:
    """Rows of three parts."""
    found = Kept("c0ffee123456", folder)
    rounds = {JAVA: [ROUND], CORE: [ROUND | {"per_second": 3.0}]}
    settings = {row.name: Settings(2.5, 3, 30.0, row.title) for row in ROWS_OF_PAGE}
    found.save(settings, dict.fromkeys(settings, rounds), {"date": "2026-11-26", "cores": "2"}, 9.0)
    return found


def places() -> set[str]:
    """What is filled in where it has a line of its own."""
    return set(re.findall(r"^\$(\w+)$", report.TEMPLATE.read_text(), re.MULTILINE))


def test_a_page_lacks_what_its_commit_did_not_measure(tmp_path: Path) -> None:
    found = kept(tmp_path)
    lacking = report.missing(found, [*NAMES, "pull"])
    assert lacking[0] == "1 rows are not measured at commit c0ffee123456: pull"
    assert len(lacking) == 1 + len(report.OTHER_PARTS) and "make bench-spark" in lacking[-1]
    for part in report.OTHER_PARTS:
        found.keep_text(part, "measured")
    assert report.missing(found, NAMES) == []


def test_a_page_names_one_commit_and_has_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "PART_TITLES", {"broker": "One", "sends": "Two", "shapes": "Three"})
    text = report.TEMPLATE.read_text()
    for name in places() - {*report.PART_TITLES, *report.OTHER_PARTS, "machine"}:
        text = text.replace(f"${name}\n", "")
    (tmp_path / "template").write_text(text)
    monkeypatch.setattr(report, "TEMPLATE", tmp_path / "template")
    found = kept(tmp_path / "kept")
    for part in report.OTHER_PARTS:
        found.keep_text(part, f"measured by {part}")
    report.write_docs(found, ROWS_OF_PAGE)
    written = (tmp_path / "benchmarks.md").read_text()
    assert re.findall(r"commit `([0-9a-f]+)`", written) == ["c0ffee123456"]
    for title in ("## One", "## Two", "## Three", "measured by spark", "## The machine\ncores: 2"):
        assert title in written
    assert "**closed**: messages a second 3.00 of Java's (goal ≥ 2: met)" in written
    assert (tmp_path / "img" / "bench.png").stat().st_size > 10_000


def test_the_template_has_a_place_for_each_part() -> None:
    assert places() == {*report.PART_TITLES, *report.OTHER_PARTS, "machine"}
