"""How much has to be known at once: a ratchet. The numbers only fall; a test fails when one has risen, and also when
one has fallen, until it is lowered here."""

import ast
from functools import cache
from pathlib import Path

import pytest
from tests.tidy import imports

SOURCE = Path(__file__).parents[2] / "src"

LARGEST_KNOTS = {"perseid": 4}
"""Modules that import one another in a circle, all of them in such a folder, and in none before it. That of the core is
the package, which imports its parts, and names a type that they are given."""
LONG_SIGNATURES = 8
"""Functions with more than MAX_PARAMETERS."""
LARGE_CLASSES = 5
"""Classes with more than MAX_METHODS."""

MAX_PARAMETERS = 8
"""Besides self and cls."""
MAX_METHODS = 40


@cache
def source() -> dict[str, ast.Module]:
    return imports.modules(SOURCE)


def holds(what: str, known: int, found: list[str]) -> None:
    """Is it as many as is known? `found`: what to look at if not."""
    count = len(found)
    lines = "\n".join(found)
    assert count <= known, f"{what}: {count}, and only {known} before; make it fewer:\n{lines}"
    assert count == known, f"{what}: {count}, and {known} before: lower the number in this file"


def signatures(found: dict[str, ast.Module], most: int) -> list[str]:
    """Functions with more parameters than that."""
    names = []
    for module, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                args = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                count = len(args) - (args[:1] in (["self"], ["cls"]))
                if count > most:
                    names.append(f"{module}:{node.lineno}: {node.name} has {count} parameters")
    return names


def classes(found: dict[str, ast.Module], most: int) -> list[str]:
    """Classes with more methods than that."""
    names = []
    for module, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                count = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
                if count > most:
                    names.append(f"{module}:{node.lineno}: {node.name} has {count} methods")
    return names


def test_the_largest_knot_of_modules_gets_smaller() -> None:
    knots = imports.knots(imports.graph(source()))
    for folder, known in LARGEST_KNOTS.items():
        inside = [knot for knot in knots if all(f"{name}.".startswith(f"{folder}.") for name in knot)]
        knots = [knot for knot in knots if knot not in inside]
        holds(f"modules in the largest knot of {folder}", known, max(inside, key=len, default=[]))


def test_long_signatures_get_fewer() -> None:
    holds("functions with many parameters", LONG_SIGNATURES, signatures(source(), MAX_PARAMETERS))


def test_large_classes_get_fewer() -> None:
    holds("classes with many methods", LARGE_CLASSES, classes(source(), MAX_METHODS))


def test_a_knot_is_found_through_functions_and_type_checking(tmp_path: Path) -> None:
    """A source with one of each, so that no number is one that cannot rise."""
    files = {
        "__init__": "",
        "a": "from p.b import B",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import c",
        "c": "def late():\n    import p.a",
        "leaf": "from p.a import A",
        "wide": "def f(self, a, /, b, *, c): ...\nclass C:\n    def f(self): ...\n    async def g(self): ...",
    }
    (tmp_path / "p").mkdir()
    for name, text in files.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    found = imports.modules(tmp_path)
    assert imports.knots(imports.graph(found)) == [["p.a", "p.b", "p.c"]]
    assert signatures(found, 2) == ["p.wide:1: f has 3 parameters"] and signatures(found, 3) == []
    assert classes(found, 1) == ["p.wide:2: C has 2 methods"] and classes(found, 2) == []


def test_a_number_neither_rises_nor_stays_when_it_could_fall() -> None:
    holds("things", 1, ["one"])
    for found, why in ((["one", "two"], "make it fewer:\n *one\n *two"), ([], "lower the number in this file")):
        with pytest.raises(AssertionError, match=why):
            holds("things", 1, found)
