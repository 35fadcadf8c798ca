"""The style that CONTRIBUTING.md asks for, as far as a program can see it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 600
MAX_CORE_LINES = 700
"""Of the compiled core, which is one module."""
MAX_FUNCTION_LINES = 70
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL = SOURCES + TESTS + sorted((ROOT / "bench").rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", ALL, ids=name)
def test_file_is_short_enough_to_read(path: Path) -> None:
    most = MAX_CORE_LINES if "core" in path.parts else MAX_FILE_LINES
    assert len(path.read_text().splitlines()) <= most


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short_and_nothing_is_a_stub(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{name(path)}:{node.lineno}: {node.name} has {lines} lines"
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            assert not (isinstance(raised, ast.Name) and raised.id == "NotImplementedError"), (
                f"{name(path)}:{node.lineno}: a stub"
            )


@pytest.mark.parametrize("path", ALL, ids=name)
def test_no_exception_is_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            silent = all(isinstance(line, ast.Pass) for line in node.body)
            assert not (broad and silent), f"{name(path)}:{node.lineno}: a silent broad except"


@pytest.mark.parametrize("path", ALL, ids=name)
def test_nothing_is_put_off(path: Path) -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        comment = line.partition("#")[2]
        assert not any(mark in comment.split() for mark in marks), f"{name(path)}:{number}: {line.strip()}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_public_modules_classes_and_functions_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if path.stat().st_size:
        assert ast.get_docstring(tree), f"{name(path)} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name(path)}:{node.lineno}: {node.name} has no docstring"


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_tests_wait_for_events_and_not_for_the_clock(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert not any(f"{module}.sleep(" in line for module in ("time", "asyncio")) or path == Path(__file__), (
            f"{name(path)}:{number}: a sleep"
        )


def test_each_reader_of_the_tree_finds_its_document() -> None:
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        assert (ROOT / document).is_file(), document
