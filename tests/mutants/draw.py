"""Small defects, as somebody might type them: each is one place of one file, changed in one way.

What is drawn: a comparison that is one off or turned round, `and` for `or`, a condition that is always true or never,
a number that is one off, a sum turned into a difference, a statement that is left out, an answer that is None or
the opposite. Docstrings, annotations, messages of errors, `assert`s and what is only for type checkers are left alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .marks import Statements, files, statements

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SUMS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
EXTREMES = {"min": "max", "max": "min"}

Change = Callable[[ast.AST], str]
"""Changes a node, whose parent it is given, and says what it is now."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed file."""

    path: str
    line: int
    where: str
    """The function, with the class that it is in; "" outside of all."""
    text: str
    """Its line, as it is."""
    what: str
    """The change, as a person reads it."""
    source: str
    executing: frozenset[int]
    """The numbers of the statements that have to be executed for it to show (marks.py)."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is called wherever its line stands."""
        return self.path, self.where, self.text, self.what


def draw(root: Path, packages: list[str], count: int, seed: int) -> list[Mutant]:
    """So many, of files drawn by their size, one place each; what was drawn remains drawn when other functions change,
    and when more are drawn."""
    numbers = statements(root, packages)
    places = []
    for path in files(root, packages):
        if path.name != "config.py":  # other defaults are no defects
            name = str(path.relative_to(root))
            seen: Counter[str] = Counter()
            for at, where, text in _places(ast.parse(path.read_text())):
                told = f"{seed} {name} {where} {text} {seen[where + text]}"
                seen[where + text] += 1
                places.append((hashlib.sha1(told.encode()).hexdigest(), path, at))
    drawn = sorted(places)[:count]
    return [_made(path, root, at, Random(told), numbers) for told, path, at in drawn]


def draw_pairs(old: Path, new: Path, packages: list[str], count: int, seed: int) -> list[tuple[Mutant, Mutant]]:
    """So many that are the same in two states of the sources, in turns of each package: one line of a function of one
    name, changed in one way, which stands in the package once, before and now, in whatever file and class."""
    places = [_by_text(root, packages) for root in (old, new)]
    numbers = [statements(root, packages) for root in (old, new)]
    turns: Counter[str] = Counter()
    drawn = []
    for told, key in sorted((hashlib.sha1(f"{seed} {key}".encode()).hexdigest(), key) for key in places[0]):
        if all(len(found.get(key, ())) == 1 for found in places):
            drawn.append((turns[key[0]], told, key))
            turns[key[0]] += 1
    pairs = []
    for _, told, key in sorted(drawn)[:count]:
        one, other = (_made(*found[key][0], Random(told), known) for found, known in zip(places, numbers, strict=True))
        pairs.append((one, other))
    return pairs


def _by_text(root: Path, packages: list[str]) -> dict[tuple[str, ...], list[tuple[Path, Path, int]]]:
    """Where what can be changed stands: by its package, its function's name, its line, and what it is."""
    found: dict[tuple[str, ...], list[tuple[Path, Path, int]]] = {}
    for package in packages:
        for path in files(root, [package]):
            whole = path.read_text()
            lines, tree = whole.splitlines(), ast.parse(whole)
            nodes = list(ast.walk(tree))
            for at, where, text in _places(tree):
                line = lines[getattr(nodes[at], "lineno", 0) - 1].strip()
                if where and path.name != "config.py":
                    found.setdefault((package, where.rpartition(".")[2], line, text), []).append((path, root, at))
    return found


def _places(tree: ast.Module) -> list[tuple[int, str, str]]:
    """The nodes that can be changed: the number in the order of a walk, the function, the text."""
    left_alone = _left_alone(tree)
    where = _functions(tree)
    found = [(at, node) for at, node in enumerate(ast.walk(tree)) if node not in left_alone and _changes(node)]
    return [(at, where.get(node, ""), ast.unparse(node)) for at, node in found]


def _functions(tree: ast.AST, name: str = "") -> dict[ast.AST, str]:
    """Of each node in a class or a function, which one that is."""
    found: dict[ast.AST, str] = {}
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inner = f"{name}.{node.name}".strip(".") if named else name  # type: ignore[attr-defined]
        found[node] = inner
        found.update(_functions(node, inner))
    return found


def _made(path: Path, root: Path, place: int, random: Random, numbers: Statements) -> Mutant:
    whole = path.read_text()
    tree = ast.parse(whole)
    target = next(node for at, node in enumerate(ast.walk(tree)) if at == place)
    before, line, where = ast.unparse(target), getattr(target, "lineno", 0), _functions(tree).get(target, "")
    name = str(path.relative_to(root))
    executing = frozenset(numbers.executing(name, _chain(tree, target)))
    what = random.choice(_changes(target))(_parent(tree, target))
    source = ast.unparse(ast.fix_missing_locations(tree))
    text = whole.splitlines()[line - 1].strip()
    return Mutant(name, line, where, text, f"{before[:90]} → {what[:90]}".replace("\n", " "), source, executing)


def _chain(tree: ast.AST, target: ast.AST) -> list[ast.AST]:
    """From the module to the node."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    chain = [target]
    while chain[-1] in parents:
        chain.append(parents[chain[-1]])
    return chain[::-1]


def _left_alone(tree: ast.Module) -> set[ast.AST]:
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        skipped: list[ast.AST | None] = []
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr):
            skipped = [node]
        elif isinstance(node, ast.FunctionDef):
            skipped = [node.returns, *node.decorator_list, *(one.annotation for one in node.args.args)]
            if node.name in ("__repr__", "__str__", "validate"):
                skipped.append(node)
        elif isinstance(node, ast.AnnAssign):
            skipped = [node.annotation]
        elif (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)) or (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Note", "field", "TypeVar", "cast")
        ):
            skipped = [node]
        for one in skipped:
            if one is not None:
                found.update(ast.walk(one))
    return found


def _changes(node: ast.AST) -> list[Change]:
    """What may become of a node: functions of its parent that change it and say how; "" where nothing was changed."""
    changes: list[Change] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        changes += [_compare(node, other) for other in COMPARISONS.get(type(node.ops[0]), ())]
    elif isinstance(node, ast.BoolOp):
        changes.append(_bool(node))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        changes.append(_replace(node, node.operand))
    elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1 << 20:
        changes += [_number(node, 1), _number(node, -1)]
    elif isinstance(node, ast.BinOp) and type(node.op) in SUMS and not isinstance(node.left, ast.Constant | ast.List):
        changes.append(_sum(node))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
        changes.append(_extreme(node.func))
    elif isinstance(node, ast.If | ast.While):
        changes += [_test(node, value) for value in (True, False) if value or isinstance(node, ast.If)]
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or (
        isinstance(node, ast.Assign | ast.AugAssign) and isinstance(_first(node), ast.Attribute | ast.Subscript)
    ):
        changes.append(_replace(node, ast.Pass()))
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Compare | ast.BoolOp):
        changes.append(_negated(node))
    return changes


def _first(node: ast.Assign | ast.AugAssign) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def _parent(tree: ast.AST, child: ast.AST) -> ast.AST:
    return next(node for node in ast.walk(tree) if child in ast.iter_child_nodes(node))


def _compare(node: ast.Compare, other: type[ast.cmpop]) -> Change:
    def change(parent: ast.AST) -> str:
        node.ops = [other()]
        return ast.unparse(node)

    return change


def _bool(node: ast.BoolOp) -> Change:
    def change(parent: ast.AST) -> str:
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return ast.unparse(node)

    return change


def _number(node: ast.Constant, by: int) -> Change:
    def change(parent: ast.AST) -> str:
        node.value += by  # type: ignore[operator]
        return ast.unparse(node)

    return change


def _sum(node: ast.BinOp) -> Change:
    def change(parent: ast.AST) -> str:
        node.op = SUMS[type(node.op)]()
        return ast.unparse(node)

    return change


def _extreme(node: ast.Name) -> Change:
    def change(parent: ast.AST) -> str:
        node.id = EXTREMES[node.id]
        return node.id

    return change


def _test(node: ast.If | ast.While, value: bool) -> Change:
    def change(parent: ast.AST) -> str:
        node.test = ast.Constant(value)
        return f"if {value}"

    return change


def _negated(node: ast.Return) -> Change:
    def change(parent: ast.AST) -> str:
        assert node.value is not None
        node.value = ast.UnaryOp(ast.Not(), node.value)
        return ast.unparse(node)

    return change


def _replace(node: ast.AST, other: ast.AST) -> Change:
    def change(parent: ast.AST) -> str:
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, other)
            elif isinstance(value, list) and node in value:
                value[value.index(node)] = other
        return ast.unparse(other) if not isinstance(other, ast.Pass) else "(left out)"

    return change
