"""What the documents name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SAID_BY_OTHERS = {"No space left on device", "database or disk is full"}
"""The system, and SQLite."""
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    ("document", "many"), [("testing.md", 30), ("promises.md", 30), ("explanation/acknowledgements.md", 10)]
)
def test_each_test_that_is_named_exists(document: str, many: int) -> None:
    named = TEST.findall((ROOT / "docs" / document).read_text())
    assert len(named) > many
    for path, function in named:
        tree = ast.parse((ROOT / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{function}"


def test_each_promise_has_a_test() -> None:
    faults, _, tests = (ROOT / "docs" / "promises.md").read_text().partition("## The tests behind each row")
    rows, tested = (re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE) for text in (faults, tests))
    assert len(rows) > 30 and rows == tested, f"without a row, or without a test: {set(rows) ^ set(tested)}"


def templates(path: Path) -> list[str]:
    """All texts of a module, with … for what is filled in."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "…" for part in parts]
        if all(isinstance(text, str) for text in texts):
            found.append("".join(map(str, texts)))
    return found


def test_each_line_that_is_looked_up_is_said() -> None:
    """docs/promises.md quotes what the pipeline says, with … for what differs."""
    _, _, lines = (ROOT / "docs" / "promises.md").read_text().partition("## You have a line")
    lines = lines.partition("\n## ")[0]
    quoted = [line for row in re.findall(r"^\| (`.*?`) \|", lines, re.MULTILINE) for line in re.findall("`(.*?)`", row)]
    assert len(quoted) > 15
    own = ROOT / "src" / "perseid"
    sources = [own / "client" / "errors.py", *(own / "spark").rglob("*.py"), *(own / "cli" / "spark").glob("*.py")]
    said = "\n".join(text for source in sources for text in templates(source))
    unsaid = [line for line in quoted if line not in said and line not in SAID_BY_OTHERS]
    assert not unsaid, f"nothing says {unsaid}"


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
        "tests/sim/test_dledger.py",
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
