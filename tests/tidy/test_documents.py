"""What the documents name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_each_test_that_is_named_exists() -> None:
    named = TEST.findall((ROOT / "docs" / "testing.md").read_text())
    assert len(named) > 30
    for path, function in named:
        tree = ast.parse((ROOT / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{function}"


def test_each_test_of_bad_input_is_named() -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    for path in sorted((ROOT / "tests" / "badinput").glob("test_*.py")):
        assert name(path) in text, f"docs/testing.md does not name {name(path)}"


def test_each_link_leads_somewhere() -> None:
    links = [(document, target) for document in DOCUMENTS for target in LINK.findall(document.read_text())]
    assert len(links) > 50
    broken = [f"{name(document)}: {target}" for document, target in links if not (document.parent / target).exists()]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "module",
    [
        "tests/sim/test_raft_mutations.py",
        "tests/sim/test_broker_group.py",
        "tests/sim/test_ha_mutations.py",
        "tests/sim/test_ha_log_mutations.py",
    ],
)
def test_the_table_of_planted_defects_is_what_is_tested(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    docs = {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}
    (found,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "FOUND"
    )
    assert isinstance(found, ast.Dict)
    rows = []
    for key, value in zip(found.keys, found.values, strict=True):
        assert isinstance(key, ast.Name)
        cells = ast.literal_eval(value)
        row = [" ".join(docs[key.id].split()).removesuffix("."), *((cells,) if isinstance(cells, str) else cells)]
        rows.append(f"| {' | '.join(row)} |\n")
    assert "".join(rows) in (ROOT / "docs" / "testing.md").read_text(), "docs/testing.md shall have:\n" + "".join(rows)
