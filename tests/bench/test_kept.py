"""Figures that are kept by commit, and which commit a tree is of."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from kept import Kept, Settings, clean_commit, seconds_of
from servers import CORE, JAVA, BenchError

SETTINGS = Settings(2.5, 3, 30.0, "a title")
ROUND = {"per_second": 5.0, "server_cpu_us": 4.0, "p99_ms": 1.0}
RESULTS = {name: {JAVA: [ROUND], CORE: [ROUND]} for name in ("topics1", "topics1000", "closed")}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of one commit."""
    root = tmp_path / "tree"
    (root / "docs").mkdir(parents=True)
    for name in ("source.py", "docs/benchmarks.md"):
        (root / name).write_text("one\n")
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def kept(folder: Path, commit: str = "c0ffee") -> Kept:
    return Kept(commit, folder)


def test_a_clean_tree_is_of_its_commit_also_when_the_page_was_written(tree: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True).stdout
    assert clean_commit(tree) == head[:12]
    (tree / "docs" / "benchmarks.md").write_text("two\n")
    assert clean_commit(tree) == head[:12]


@pytest.mark.parametrize("name", ["source.py", "new.py"])
def test_a_tree_with_changes_is_of_no_commit(tree: Path, name: str) -> None:
    (tree / name).write_text("two\n")
    with pytest.raises(BenchError, match=rf"1 files differ from commit \w{{12}} \({name}\): commit them first"):
        clean_commit(tree)


def test_a_folder_without_a_repository_is_told(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="not a git repository"):
        clean_commit(tmp_path)


def test_rows_are_there_when_they_were_measured_so_and_together(tmp_path: Path) -> None:
    both = dict.fromkeys(("topics1", "topics1000"), SETTINGS)
    kept(tmp_path).save(both, RESULTS, {"date": "2026-11-26"}, 60.0)
    assert kept(tmp_path).have(both)
    assert not kept(tmp_path, "another").have(both)
    assert not kept(tmp_path).have({**both, "topics1": replace(SETTINGS, rounds=5)})
    kept(tmp_path).save({"topics1": SETTINGS}, RESULTS, {"date": "2026-11-26"}, 60.0)
    assert not kept(tmp_path).have(both), "one of them was measured again, alone"
    assert kept(tmp_path).have({"topics1": SETTINGS})


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    kept(tmp_path).save({"closed": SETTINGS}, RESULTS, {"date": "2026-11-26", "cores": "2"}, 60.0)
    kept(tmp_path).save({"topics1": SETTINGS}, RESULTS, {"date": "2026-11-27", "cores": "2"}, 60.0)
    assert kept(tmp_path).rounds("closed") == RESULTS["closed"] and kept(tmp_path).rounds("tags") == {}
    summary = kept(tmp_path).summary(["closed", "topics1", "tags"])
    assert list(summary) == ["closed", "topics1"] and summary["closed"]["title"] == "a title"
    assert kept(tmp_path).machine(["closed", "topics1"]) == {"date": "2026-11-26 to 2026-11-27", "cores": "2"}
    assert kept(tmp_path).machine(["closed"])["date"] == "2026-11-26"


def test_texts_of_other_programs_are_kept_too(tmp_path: Path) -> None:
    assert kept(tmp_path).text("spark") is None
    kept(tmp_path).keep_text("spark", "fast")
    assert kept(tmp_path).text("spark") == "fast"


def test_how_long_rows_took_is_known_from_any_commit(tmp_path: Path) -> None:
    kept(tmp_path).save(dict.fromkeys(("topics1", "topics1000"), SETTINGS), RESULTS, {}, 60.0)
    assert seconds_of(["topics1", "topics1000"], tmp_path) == 60.0
    assert seconds_of(["topics1", "closed"], tmp_path) is None
