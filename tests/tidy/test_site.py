"""The site has what it shall have. Broken links, and pages outside the navigation, are errors of `make docs`."""

import ast
import importlib.util
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import griffe
import pytest

import perseid.client
import perseid.client.blocking
import perseid.spark

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = "".join(path.read_text() for path in sorted((DOCS / "reference" / "api").glob("*.md")))


Loaded = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    """A module of docs/, which is no package."""

    @cache
    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="module")
def hooks(loaded: Loaded) -> ModuleType:
    return loaded("hooks")


def test_each_public_name_is_in_the_reference_once() -> None:
    named = re.findall(r"^::: (perseid\.[\w.]+)$", REFERENCE, re.MULTILINE)
    assert len(named) == len(set(named))
    blocking = [name for name in vars(perseid.client.blocking) if re.match("Blocking[A-Z]", name)]
    wanted = {f"perseid.client.{name}" for name in perseid.client.__all__}
    wanted |= {f"perseid.client.blocking.{name}" for name in blocking}
    wanted |= {f"perseid.spark.{name}" for name in perseid.spark.__all__}
    fixtures = re.findall(r"^def (perseid_\w+)", (ROOT / "src/perseid/testing/plugin.py").read_text(), re.MULTILINE)
    wanted |= {f"perseid.testing.plugin.{name}" for name in fixtures}
    missing = wanted - set(named)
    assert not missing, f"docs/reference/api/ has no ::: line for {sorted(missing)}"


TUTORIAL = ROOT / "tests" / "interop" / "test_tutorial.py"
"""Runs the code that needs the real Java parts."""


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^ *```python[^\n]*\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_code_of_tutorials_and_how_to_pages_stands_in_files_that_tests_name() -> None:
    tests = "".join(path.read_text() for path in [*(ROOT / "tests" / "docs").glob("test_*.py"), TUTORIAL])
    pages = [path for folder in ("tutorials", "how-to") for path in sorted((DOCS / folder).glob("*.md"))]
    blocks = [(page, block) for page in pages for block in python_blocks(page)]
    assert len(blocks) > 30
    for page, block in blocks:
        included = re.fullmatch(r' *--8<-- "([\w/.-]+?)(:\w+)?"\n', block)
        assert included is not None, f"{page.name} has code of its own, which nothing runs: include a file\n{block}"
        code = Path(included[1])
        names = (code.stem, code.parent.name, page.name)
        assert any(re.search(rf"\b{re.escape(name)}\b", tests) for name in names), f"no test of tests/docs runs {code}"


def test_other_code_can_be_parsed() -> None:
    pages = [path for path in DOCS.rglob("*.md") if path.parent.name not in ("tutorials", "how-to")]
    blocks = [block for page in [*pages, *ROOT.glob("*.md")] for block in python_blocks(page)]
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "a page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize(
    ("page", "text", "on_the_site"),
    [
        ("index.md", "[shape](../ARCHITECTURE.md#map)", "[shape](project/architecture.md#map)"),
        ("project/architecture.md", "[Raft](docs/raft.md)", "[Raft](../raft.md)"),
        ("project/contributing.md", "[CHANGELOG.md](CHANGELOG.md)", "[CHANGELOG.md](changelog.md)"),
        ("how-to/a.md", "[a](b.md#c), [d](../spark.md)", "[a](b.md#c), [d](../spark.md)"),
        ("project/architecture.md", "[docs/decisions](docs/decisions)", "[docs/decisions](../decisions/index.md)"),
        ("testing.md", "[tests/impact.py](../tests/impact.py)", "`tests/impact.py`"),
        ("testing.md", "[the map](../tests/impact.py)", "the map (`tests/impact.py`)"),
        ("testing.md", "[there](https://example.org/a), [here](#b)", "[there](https://example.org/a), [here](#b)"),
        ("testing.md", "[nowhere](../gone.py)", "[nowhere](../gone.py)"),
        ("testing.md", "```\n[code](../tests/impact.py)\n```\n", "```\n[code](../tests/impact.py)\n```\n"),
    ],
)
def test_links_lead_to_pages_of_the_site(hooks: ModuleType, page: str, text: str, on_the_site: str) -> None:
    assert hooks.relinked(text, page) == on_the_site


def test_bars_in_the_code_of_a_table(hooks: ModuleType) -> None:
    assert hooks.pipes("| `a \\| b` | c \\| d |\n") == "| `a | b` | c \\| d |\n"
    assert hooks.pipes("`a \\| b`\n") == "`a \\| b`\n"


@pytest.mark.parametrize(
    ("text", "on_the_site"),
    [
        ("#7709, a commit\n", "\\#7709, a commit\n"),
        ("# Title\n", "# Title\n"),
        ("Some:\n- one\n- two\n", "Some:\n\n- one\n- two\n"),
        ("Before.\n\nSome\nmore:\n1. one\n", "Before.\n\nSome\nmore:\n\n1. one\n"),
        ("# Title\nSome:\n1. one\n2. two\n", "# Title\nSome:\n\n1. one\n2. two\n"),
        ("- one\n  more\n- two\n", "- one\n  more\n- two\n"),
        ("```\na\n- b\n#c\n```\n", "```\na\n- b\n#c\n```\n"),
    ],
)
def test_markdown_is_read_as_on_github(hooks: ModuleType, text: str, on_the_site: str) -> None:
    assert hooks.as_on_github(text) == on_the_site


def test_the_list_of_decisions_has_all_of_them(hooks: ModuleType) -> None:
    paths = sorted((DOCS / "decisions").glob("*.md"))
    page = hooks.decisions(paths)
    assert page.count("\n- ") == len(paths)
    assert "- 8: [Raft: DLedger's wire and disk, Raft's safety](0008-raft.md)\n" in page


def test_code_in_docstrings_is_highlighted(loaded: Loaded) -> None:
    text = "How to:\n\n    async with x:\n        y()\n\n    z()\n\nAnd so on.\n"
    fenced = "How to:\n\n```python\nasync with x:\n    y()\n\nz()\n```\n\nAnd so on.\n"
    assert loaded("docstrings").highlighted(text) == fenced
    drawn = "```python\nsend()\n```\n\n```text\nopen --full--> sent\n```"
    assert loaded("docstrings").highlighted("    send()\n\n    open --full--> sent") == drawn
    assert loaded("docstrings").highlighted("Not\n    code.\n") == "Not\n    code.\n"


def test_names_in_docstrings_are_links_where_the_reference_has_them(loaded: Loaded, tmp_path: Path) -> None:
    module = griffe.visit("clients", tmp_path / "clients.py", "class Client:\n    def send(self): ...\n")
    linked = loaded("docstrings").linked

    def link(path: str, name: str) -> str:
        return f'<autoref identifier="{path}" optional><code>{name}</code></autoref>'

    client, known = module["Client"], {"Message": "perseid.client.model.Message"}
    assert linked("`send()`", client, known) == link("clients.Client.send", "send()")
    assert linked("`Message.tag`", client, known) == link("perseid.client.model.Message.tag", "Message.tag")
    told = link("perseid.client.hooks.Hook", "perseid.client.hooks")
    assert linked("`perseid.client.hooks`", client, known) == told
    assert linked("`other`, ``send``, `a b`", client, known) == "`other`, ``send``, `a b`"
