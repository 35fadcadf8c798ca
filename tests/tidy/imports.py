"""Which module of the source imports which, as written: imports within functions and for type checkers, too.

An import of a name from a module is one of that module; packages above it don't count, though Python runs them: what
counts is whom a reader has to know. (`tests/impact.py` asks what a change reaches, by files: there they do count.)
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, set[str]]
"""Module → those that it imports."""


def modules(source: Path) -> dict[str, ast.Module]:
    """All modules beneath a folder of sources, by their dotted names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def graph(found: Mapping[str, ast.Module]) -> Graph:
    """Who imports whom among these modules."""
    return {name: set(_imported(module, found)) - {name} for name, module in found.items()}


def _imported(module: ast.Module, found: Mapping[str, ast.Module]) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in found)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, "imports in the source are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in found or node.module in found:
                    yield whole if whole in found else node.module


def knots(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first: whoever wants to know one of them
    has to know all."""
    reach = {name: _reached(graph, name) for name in graph}
    found = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted((sorted(knot) for knot in found if len(knot) > 1), key=lambda knot: (-len(knot), knot))


def _reached(graph: Graph, begin: str) -> set[str]:
    """What a module imports, and what that imports."""
    found, waiting = set[str](), [*graph[begin]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found
