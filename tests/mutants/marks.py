"""Sources that mark which of their statements were executed, in a file that all processes of a test share.

Each statement of a function sets a byte of a mapped file before it runs: a process that is killed has left its marks,
too, and so have those that a test starts. It costs tens of nanoseconds, so tests take about as long as ever.
"""

from __future__ import annotations

import ast
import hashlib
import mmap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "PERSEID_MARKS"
"""Names the mapped file; without it marks are made in memory, for nobody."""
MODULE = "_marks.py"
CODE = f'''"""Where statements leave their marks."""
import mmap, os
path = os.environ.get("{VARIABLE}")
if path:
    with open(path, "r+b") as file:
        marks = mmap.mmap(file.fileno(), 0)
else:
    marks = bytearray(1 << 20)
'''
Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[str, int, int]
"""A file, a line, a column."""
Anchor = tuple[str, str, str, int]
"""A file, a function, what the function says (its digest), and which of its statements."""


@dataclass(slots=True)
class Statements:
    """All statements of functions, by where they stand, and who uses what stands outside of functions."""

    numbers: dict[Place, int] = field(default_factory=dict)
    of_file: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_name: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The statements that a name occurs in, as a variable or as an attribute."""

    anchors: list[Anchor] = field(default_factory=list)
    """What each number stands for, whatever else changes."""

    def executing(self, path: str, chain: list[ast.AST]) -> set[int]:
        """The statements that are executed where a node counts, which stands beneath those of the chain, the module
        first: its own; of a default the function's first one; of a constant all that name it."""
        inner = [node for node in chain if isinstance(node, ast.stmt)]
        for statement in reversed(inner):
            number = self.numbers.get((path, statement.lineno, statement.col_offset))
            if number is not None and not isinstance(statement, Function):
                return {number}
            if isinstance(statement, Function):  # a default, or a decorator
                first = _first(statement)
                return {self.numbers[path, first.lineno, first.col_offset]} if first else set()
            if found := self._users(statement):
                return found
        return self.of_file[path]

    def _users(self, statement: ast.stmt) -> set[int]:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        named = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        return set().union(*(self.by_name[name] for name in named)) if named else set()


def _first(function: Function) -> ast.stmt | None:
    """The first statement that is no docstring."""
    told = ast.get_docstring(function, clean=False) is not None
    return next(iter(function.body[told:]), None)


def statements(sources: Path, packages: Iterable[str]) -> Statements:
    """Those of these packages; their numbers are the same for the same sources."""
    found = Statements()
    for path in files(sources, packages):
        name = str(path.relative_to(sources))
        for statement, where, says, at in _bodies(ast.parse(path.read_text())):
            found.anchors.append((name, where, says, at))
            number = found.numbers[name, statement.lineno, statement.col_offset] = len(found.numbers)
            found.of_file[name].add(number)
            for node in _own(statement):
                if isinstance(node, ast.Name):
                    found.by_name[node.id].add(number)
                elif isinstance(node, ast.Attribute):
                    found.by_name[node.attr].add(number)
    return found


def files(sources: Path, packages: Iterable[str]) -> list[Path]:
    """The files of these packages."""
    return [path for package in packages for path in sorted((sources / "perseid" / package).rglob("*.py"))]


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """What belongs to a statement and not to one within it."""
    for node in ast.iter_child_nodes(statement):
        if not isinstance(node, ast.stmt):
            yield from (one for one in ast.walk(node) if not isinstance(one, ast.stmt))


def _bodies(tree: ast.AST) -> Iterator[tuple[ast.stmt, str, str, int]]:
    """All statements within functions, in the order of the file, but for docstrings; with what they are called by."""
    for where, function in _functions(tree):
        says = hashlib.sha1(ast.unparse(function).encode()).hexdigest()[:10]
        for at, statement in enumerate(_within(function, inside=True)):
            yield statement, where, says, at


def _functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, Function]]:
    """All that are in no other function, with their names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{name}.{node.name}".strip("."), node
        else:
            yield from _functions(node, f"{name}.{node.name}" if isinstance(node, ast.ClassDef) else name)


def _within(tree: ast.AST, *, inside: bool) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(tree):
        within = inside or isinstance(tree, Function)
        if isinstance(child, ast.stmt) and within and not isinstance(tree, ast.ClassDef) and not _is_text(child):
            yield child
        yield from _within(child, inside=within)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Marking(ast.NodeTransformer):
    def __init__(self, name: str, numbers: dict[Place, int]) -> None:
        self._name, self._numbers = name, numbers

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and any(isinstance(one, ast.stmt) for one in value):
                setattr(node, name, [new for one in value for new in self._marked(one)])
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        where = getattr(statement, "lineno", None), getattr(statement, "col_offset", None)
        number = self._numbers.get((self._name, *where))  # type: ignore[arg-type]
        return [statement] if number is None else [*ast.parse(f"_marks[{number}] = 1").body, statement]


def mark(sources: Path, packages: Iterable[str]) -> int:
    """Change a copy of the sources so that they leave marks; gives how many statements there are."""
    numbers = statements(sources, packages).numbers
    for path in files(sources, packages):
        tree = ast.parse(path.read_text())
        marked = _Marking(str(path.relative_to(sources)), numbers).visit(tree)
        begin = 1 if ast.get_docstring(tree, clean=False) is not None else 0
        begin += sum(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body)
        marked.body[begin:begin] = ast.parse("from perseid._marks import marks as _marks").body
        path.write_text(ast.unparse(ast.fix_missing_locations(marked)))
    (sources / "perseid" / MODULE).write_text(CODE)
    return len(numbers)


class Marks:
    """The mapped file, as whoever reads it sees it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def take(self) -> bytes:
        """One byte for each statement, 1 if it was executed since the last call."""
        found = self._map[:]
        self._map[:] = bytes(len(found))
        return found
