"""The style that CONTRIBUTING.md asks for, as far as a program can see it. Each test tells all that it finds, in all
files."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FUNCTION_LINES = 70
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL = SOURCES + TESTS + sorted((ROOT / "bench").rglob("*.py"))
Finding = tuple[int, str]
"""A line's number, and what is wrong there."""


class Source:
    """A file as the checks look at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.lines = self.text.splitlines()
        self.module = ast.parse(self.text)
        self.nodes = list(ast.walk(self.module))


@cache
def checked(path: Path) -> dict[str, list[Finding]]:
    """What each check finds in a file, which is parsed once for all of them."""
    source = Source(path)
    return {check.__name__: list(check(source)) for check in CHECKS}


def findings(paths: Iterable[Path], check: Callable[[Source], Iterator[Finding]]) -> str:
    """All that a check finds, a line each."""
    found = [(path, *one) for path in paths for one in checked(path)[check.__name__]]
    return "\n".join(f"{path.relative_to(ROOT)}:{line}: {what}" for path, line, what in found)


def long_functions_and_stubs(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            count = node.end_lineno - node.lineno + 1
            if count > MAX_FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {count} lines, of at most {MAX_FUNCTION_LINES}"
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id == "NotImplementedError":
                yield node.lineno, "a stub"


def test_functions_are_short_and_nothing_is_a_stub() -> None:
    assert not (found := findings(SOURCES, long_functions_and_stubs)), found


def swallowed_exceptions(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            if broad and all(isinstance(line, ast.Pass) for line in node.body):
                yield node.lineno, "a silent broad except"


def test_no_exception_is_swallowed() -> None:
    assert not (found := findings(ALL, swallowed_exceptions)), found


def put_off(source: Source) -> Iterator[Finding]:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    for number, line in enumerate(source.lines, 1):
        if any(mark in line.partition("#")[2].split() for mark in marks):
            yield number, line.strip()


def test_nothing_is_put_off() -> None:
    assert not (found := findings(ALL, put_off)), found


def unexplained(source: Source) -> Iterator[Finding]:
    if source.lines and not ast.get_docstring(source.module):
        yield 1, "no docstring"
    for node in source.module.body:
        public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        if public and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


def test_public_modules_classes_and_functions_say_what_they_are() -> None:
    assert not (found := findings(SOURCES, unexplained)), found


VIRTUAL_TIME = ("VirtualCluster", "VirtualBroker", "perseid_virtual")


def sleeps(source: Source) -> Iterator[Finding]:
    """Where time is virtual, asyncio's take none."""
    is_virtual = any(word in line for line in source.lines for word in VIRTUAL_TIME)
    for number, line in enumerate(source.lines, 1):
        if "time.sleep(" in line or ("asyncio.sleep(" in line and not is_virtual):
            yield number, "a sleep"


def test_tests_wait_for_events_and_not_for_the_clock() -> None:
    assert not (found := findings((path for path in TESTS if path != Path(__file__)), sleeps)), found


def test_a_check_tells_all_that_it_finds(tmp_path: Path) -> None:
    """A file with one of each, so that no check is one that cannot fail."""
    bad = tmp_path / "bad.py"
    body = "".join(f"    x = {n}\n" for n in range(MAX_FUNCTION_LINES))
    tail = f"try:\n    pass\nexcept Exception:\n    pass\nraise NotImplementedError  # {'TO' + 'DO'} later\n"
    bad.write_text(f"def f():\n{body}{tail}{'time'}.sleep(1)\n")
    last = MAX_FUNCTION_LINES + 1
    found = {check: [line for line, _ in of_check] for check, of_check in checked(bad).items()}
    assert found == {
        "long_functions_and_stubs": [1, last + 5],
        "swallowed_exceptions": [last + 3],
        "put_off": [last + 5],
        "unexplained": [1, 1],
        "sleeps": [last + 6],
    }


CHECKS = (long_functions_and_stubs, swallowed_exceptions, put_off, unexplained, sleeps)


def test_each_reader_of_the_tree_finds_its_document() -> None:
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        assert (ROOT / document).is_file(), document
