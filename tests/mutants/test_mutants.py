"""The tool itself: what is drawn, what leaves marks, what is known of whom, on sources of three functions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from . import pairs
from .draw import draw, draw_pairs
from .executed import Check
from .marks import VARIABLE, Marks, mark, statements
from .run import NEVER, NOBODY, Known, stages, summary
from .words import Nearby

SOURCE = '''"""Text."""
from __future__ import annotations

LIMIT = 3


def low(number: int) -> bool:
    """Text."""
    if number < LIMIT:
        return True
    return False


def counted(found: list[int], most: int = 5) -> int:
    total = 0
    while found and total < most:
        total += found.pop()
    return total


def never() -> int:
    return 7
'''


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "perseid" / "broker"
    folder.mkdir(parents=True)
    for path in (folder / "__init__.py", folder.parent / "__init__.py"):
        path.write_text('"""Text."""\n')
    (folder / "some.py").write_text(SOURCE)
    return tmp_path / "src"


def test_what_is_drawn_differs_in_one_place_and_stays_drawn(sources: Path) -> None:
    drawn = draw(sources, ["broker"], 100, 1)
    assert len({one.source for one in drawn}) == len(drawn) > 8
    assert all(one.source != ast.unparse(ast.parse(SOURCE)) for one in drawn)
    assert [one.key for one in draw(sources, ["broker"], 4, 1)] == [one.key for one in drawn[:4]]
    path = sources / "perseid" / "broker" / "some.py"
    path.write_text(SOURCE + "\n\ndef more() -> int:\n    return 1 + 2\n")
    assert {one.key for one in drawn} < {one.key for one in draw(sources, ["broker"], 100, 1)}


def test_a_statement_leaves_a_mark_when_it_is_executed(sources: Path, tmp_path: Path) -> None:
    found, name = statements(sources, ["broker"]), "perseid/broker/some.py"
    shared = tmp_path / "marks"
    shared.write_bytes(bytes(mark(sources, ["broker"])))
    words = [sys.executable, "-c", "from perseid.broker.some import low; assert low(4) is False"]
    subprocess.run(words, check=True, env={"PYTHONPATH": str(sources), VARIABLE: str(shared)})
    marks = Marks(shared)
    taken = marks.take()
    lines = {line for (path, line, _), number in found.numbers.items() if taken[number]}
    assert lines == {9, 11} and name in found.of_file
    assert not any(marks.take())


def test_a_constant_and_a_default_count_where_they_are_used(sources: Path) -> None:
    lines = {number: line for (_, line, _), number in statements(sources, ["broker"]).numbers.items()}
    drawn = draw(sources, ["broker"], 100, 1)
    of = {one.what.split()[0]: {lines[number] for number in one.executing} for one in drawn if one.line in (4, 14)}
    assert of == {"3": {9}, "5": {15}}


def test_tests_of_the_module_come_first_and_only_those_that_execute_it(sources: Path) -> None:
    of = statements(sources, ["broker"])
    mutant = next(one for one in draw(sources, ["broker"], 100, 1) if one.where == "never")
    (number,) = mutant.executing
    executes = bytes(at == number for at in range(len(of.numbers)))
    nothing = bytes(len(of.numbers))
    own, other = Check("tests/broker/test_some.py::a", 1, executes), Check("tests/broker/test_b.py::a", 1, executes)
    checks = [other, own, Check("tests/broker/test_some.py::b", 1, nothing), Check("raft 7", 1, executes)]
    found = {stage.name: stage.checks for stage in stages(mutant, checks, of.of_file[mutant.path]) if stage.checks}
    assert list(found.items())[:2] == [("the module's tests", [own]), ("other tests", [other])]
    assert found["seeds of raft"] == [checks[-1]]


def test_what_nobody_can_notice_is_told_apart_from_what_nobody_noticed(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.json"
    path.write_text('[{"file": "a.py", "where": "f", "text": "x = 1", "change": "1 → 2", "why": "a hint only"}]')
    base = {"line": 1, "where": "f", "text": "x = 1", "check": "", "seconds": 2.0}
    rows = [
        base | {"file": "a.py", "change": "1 → 2", "by": NOBODY},
        base | {"file": "a.py", "change": "x", "by": NEVER},
    ]
    rows.append(base | {"file": "b.py", "change": "y", "by": "other tests"})
    told = "\n".join(summary(rows, Known(path)))
    assert "1 of 2 were noticed (50.0 %); 1 more can't be" in told
    assert "[a hint only]" in told and f"[{NEVER}]" in told


def test_what_moved_is_drawn_in_both_as_the_same_change(sources: Path, tmp_path: Path) -> None:
    now = tmp_path / "now"
    folder = now / "perseid" / "broker" / "inner"
    folder.mkdir(parents=True)
    moved = SOURCE[SOURCE.index("LIMIT") :]
    (folder / "other.py").write_text("class Some:\n" + "".join(f"    {line}\n" for line in moved.splitlines()))
    (folder / "never.py").write_text("def never() -> int:\n    return 7\n")  # stands twice now
    drawn = draw_pairs(sources, now, ["broker"], 100, 1)
    places = {(before.path, after.path) for before, after in drawn}
    assert places == {("perseid/broker/some.py", "perseid/broker/inner/other.py")}
    assert {after.where for _, after in drawn} == {"Some.low", "Some.counted"}
    for before, after in drawn:
        assert (before.text, before.what) == (after.text, after.what)
    assert draw_pairs(sources, now, ["broker"], 3, 1) == drawn[:3]


def test_the_nearest_tests_are_those_of_the_name_then_those_that_use_the_words(sources: Path, tmp_path: Path) -> None:
    texts = {
        "broker/test_some.py": "def test_a() -> None: ...",
        "broker/test_words.py": "def test_b() -> None:\n    assert counted([1], most=2) == 1",
        "broker/test_nothing.py": "def test_c() -> None: ...",
        "store/test_import.py": "from perseid.broker import some",
    }
    for name, text in texts.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    mutant = next(one for one in draw(sources, ["broker"], 100, 1) if one.where == "counted" and "most" in one.text)
    nearest = [name.removeprefix("tests/") for name in Nearby(tmp_path, ["broker", "store"]).nearest(mutant)]
    assert nearest[0] == "broker/test_some.py" and nearest[-1] == "broker/test_nothing.py"


def test_a_pair_of_which_one_end_alone_was_noticed_is_told() -> None:
    row = {"package": "raft", "where": "f", "text": "x = 1", "change": "1 → 2"}
    missed, noticed = (
        {"file": "a.py", "line": 3, "by": ""},
        {"file": "a.py", "line": 4, "by": "tests/test_a.py::test_b"},
    )
    lines = pairs.summary([row | {"before": noticed, "after": missed}, row | {"before": noticed, "after": noticed}])
    assert "| all | 2 | 2 | 1 |" in lines
    assert lines[-1] == "a.py:3 f: 1 → 2  [only before by tests/test_a.py::test_b]"


def test_tests_begin_with_the_nearest_and_end_with_the_first_that_fails(tmp_path: Path) -> None:
    """Pytest itself, with the plugin, as a tree of a pair asks it."""
    (tmp_path / "tests").symlink_to(Path(__file__).parents[1])
    file = tmp_path / "test_order.py"
    file.write_text(
        "def test_far():\n    assert False\n\n\ndef test_near():\n    counted = 1\n    assert counted == 2\n"
    )
    tree = pairs.Tree(tmp_path)
    assert tree._run([file.name], {"counted": 1.0}, 5, plain=False) == "test_order.py::test_near"
    file.write_text("def test_near():\n    counted = 1\n    assert counted == 1\n")
    assert tree._run([file.name], {"counted": 1.0}, 5, plain=False) == ""
