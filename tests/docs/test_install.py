"""The page on installation names the extras and the Pythons that there are."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/install.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_CONTRIBUTORS = {"dev", "docs"}


def test_it_names_all_extras() -> None:
    named = re.findall(r"^\| `perseid\[(\w+)\]` \|", PAGE, re.MULTILINE)
    assert set(named) == set(PROJECT["optional-dependencies"]) - FOR_CONTRIBUTORS


def test_the_pythons_that_were_tried_are_those_of_the_classifiers() -> None:
    tried = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    (row,) = [line for line in PAGE.splitlines() if "by `make release-dry`" in line and line.startswith("|")]
    assert row.split("|")[2].strip() == ", ".join(tried)


def test_the_warning_is_the_one_that_a_server_logs() -> None:
    source = (ROOT / "src/perseid/app/about.py").read_text()
    (line,) = [line for line in PAGE.splitlines() if line.startswith("WARNING perseid:")]
    _, _, said = line.partition(" on CPython 3.11.7: ")
    assert said.removesuffix(" …") in source and "uncompiled core" in source
    assert "pip install --force-reinstall --no-cache-dir --no-binary perseid perseid" in source
