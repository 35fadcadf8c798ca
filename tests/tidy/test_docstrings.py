"""What is public says what it is: each class, function and method, and each field of a class of data."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType

import pytest

JOBS = tuple(
    f"perseid.spark.jobs.{name}"
    for name in ("archive", "audit", "dead_letters", "replay", "stats", "time_travel", "trace")
)
CLIENT = ("client", "client.blocking", "client.controller", "client.dledger", "client.otel", "client.run")
TESTING = ("testing.cluster", "testing.embedded", "testing.virtual")
MODULES = (*(f"perseid.{name}" for name in (*CLIENT, *TESTING, "spark")), *JOBS)
LEAST_WORDS = 3
"""Fewer say too little, but for one that leads to another (`As `Producer.send`.`)."""
REFERENCE = "As `"


def public(module: ModuleType) -> dict[str, type | FunctionType]:
    """The classes and functions that a module offers: those of `__all__`, or those that it defines itself."""
    offered = {name: getattr(module, name) for name in getattr(module, "__all__", vars(module))}
    kinds = {name: found for name, found in offered.items() if isinstance(found, type | FunctionType)}
    if hasattr(module, "__all__"):
        return kinds
    own = module.__name__
    return {name: found for name, found in kinds.items() if found.__module__ == own and not name.startswith("_")}


def members(kind: type) -> Iterator[tuple[str, object]]:
    """The methods and properties of a class that are ours, inherited ones too."""
    for name, found in inspect.getmembers(kind):
        function = found.fget if isinstance(found, property) else found
        is_ours = isinstance(function, FunctionType | MethodType) and function.__module__.startswith("perseid.")
        if is_ours and not name.startswith("_"):
            yield name, found


def says_too_little(found: object) -> bool:
    text = inspect.getdoc(found) or ""
    return not text.startswith(REFERENCE) and len(text.split()) < LEAST_WORDS


def undescribed_fields(kind: type) -> Iterator[str]:
    """The public fields of a dataclass without a text below them."""
    if not dataclasses.is_dataclass(kind) or any("Doc(" in str(hint) for hint in kind.__annotations__.values()):
        return  # options of a command have their texts beside their types
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if not described and not statement.target.id.startswith("_"):
                yield statement.target.id


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_is_described(name: str) -> None:
    wrong = []
    offered = public(importlib.import_module(name))
    assert offered, f"{name} offers nothing"
    for own, found in offered.items():
        if says_too_little(found):
            wrong.append(f"{name}.{own}: {inspect.getdoc(found)!r}")
        if isinstance(found, type):
            wrong += [f"{name}.{own}.{at}: {inspect.getdoc(m)!r}" for at, m in members(found) if says_too_little(m)]
            wrong += [f"{name}.{own}.{field}: no text" for field in undescribed_fields(found)]
    assert not wrong, "say what the caller gets:\n" + "\n".join(wrong)
