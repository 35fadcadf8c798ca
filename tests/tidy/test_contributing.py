"""What a contributor is told to run and to read is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_each_target_that_it_names_is_one_of_the_makefile() -> None:
    named = set(re.findall(r"`?make ([a-z-]+)", CONTRIBUTING))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"check", "test", "setup", "interop"} <= named <= targets


def test_each_path_that_it_names_exists() -> None:
    paths = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", CONTRIBUTING)
    assert len(paths) > 6
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_well_formed(form: Path) -> None:
    told = yaml.safe_load(form.read_text())
    if form.stem == "config":
        assert told == {"blank_issues_enabled": True}
        return
    assert told["name"] and told["description"]
    asked = [field for field in told["body"] if field["type"] != "markdown"]
    assert asked and all(field["attributes"]["label"] for field in asked)
    assert len({field["id"] for field in asked}) == len(asked)


def test_hooks_before_a_commit_run_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    check = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert len(hooks) == 3
    for hook in hooks:
        assert hook["entry"].replace(".venv/bin", "$(BIN)") in check, hook["id"]
