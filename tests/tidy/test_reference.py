"""The pages of docs/reference that are made from the sources, or held against them, are what the sources say."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tidy import cli_reference, settings_reference, spark_options

ROOT = Path(__file__).parents[2]
ENVIRONMENT = (ROOT / "docs" / "reference" / "environment.md").read_text()
NO_VARIABLES = frozenset(
    f"PERSEID_{word}"
    for word in ("CLI", "LITE", "POP", "PRODUCER", "PULL", "SPARK", "SPARK_SINK", "STAMP", "VERIFY", "WARM_SECONDS")
)
"""Groups of clients, a property of messages, a constant."""
BETWEEN_PROCESSES = re.compile(r"PERSEID_(MARKS|MUTANTS_\w+|SHIM)")
"""What tests tell processes of their own."""


def test_the_settings_are_what_the_options_say() -> None:
    assert settings_reference.DOCUMENT.read_text() == settings_reference.whole(), (
        f"write it anew: {settings_reference.COMMAND}"
    )


def test_the_options_for_spark_are_what_the_sources_say() -> None:
    assert spark_options.DOCUMENT.read_text() == spark_options.whole(), f"write it anew: {spark_options.COMMAND}"


def test_the_command_line_is_what_the_commands_say() -> None:
    assert cli_reference.DOCUMENT.read_text() == cli_reference.whole(), f"write it anew: {cli_reference.COMMAND}"


@cache
def sources() -> tuple[Path, ...]:
    folders = (ROOT / name for name in ("src", "tests", "bench", "demo", "examples"))
    return (*(path for folder in folders for path in sorted(folder.rglob("*.py"))), ROOT / "setup.py")


def own_variables() -> set[str]:
    """All names in the sources that look like a variable of ours, and are one."""
    found = {name for path in sources() for name in re.findall(r"\bPERSEID_[A-Z][A-Z_]*[A-Z]\b", path.read_text())}
    return {name for name in found - NO_VARIABLES if not BETWEEN_PROCESSES.fullmatch(name)}


def read_names(path: Path) -> Iterator[str]:
    """What a module reads from the environment by a name that stands there."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ")), args=[ast.Constant(str(name)), *_]):
                yield name
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(str(name))):
                yield name
            case ast.Compare(left=ast.Constant(str(name)), comparators=[ast.Attribute(attr="environ")]):
                yield name


def test_each_variable_of_the_environment_is_described() -> None:
    described = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", ENVIRONMENT))
    own = own_variables()
    assert len(own) > 15
    others = {name for path in (ROOT / "src").rglob("*.py") for name in read_names(path)}
    assert {"ROCKETMQ_HOME", "SPARK_REMOTE", "JAVA_HOME"} <= others
    missing = (own | others) - described
    assert not missing, f"docs/reference/environment.md does not describe {sorted(missing)}"
    gone = {name for name in described if name.startswith("PERSEID_")} - own
    assert not gone, f"docs/reference/environment.md describes {sorted(gone)}, which nothing reads"
