"""The commit is the one that was written at the build, or Git's; never one of another repository."""

import subprocess
from pathlib import Path

import pytest

from perseid.app import commit as commits


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", "-C", folder, *name, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, and a package in it."""
    (tmp_path / "src/perseid").mkdir(parents=True)
    (tmp_path / "src/perseid/__init__.py").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_checkout_asks_git(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "--short=7", "HEAD")
    assert commits.commit(checkout / "src/perseid") == commit
    git(checkout, "tag", "-a", "v1", "-m", "a tag is no commit")
    assert commits.commit(checkout / "src/perseid") == commit
    (checkout / "src/perseid/__init__.py").write_text("changed = True\n")
    assert commits.commit(checkout / "src/perseid") == f"{commit}-dirty"


def test_what_was_written_at_the_build_goes_first(checkout: Path) -> None:
    (checkout / "src/perseid" / commits.COMMIT_FILE).write_text("abc1234\n")
    assert commits.commit(checkout / "src/perseid") == "abc1234"


def test_an_installed_package_inside_of_another_repository_does_not_take_its_commit(checkout: Path) -> None:
    installed = checkout / "venv/lib/site-packages/perseid"
    installed.mkdir(parents=True)
    assert commits.commit(installed) == commits.UNKNOWN


def test_it_is_unknown_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commits.commit(checkout / "src/perseid") == commits.UNKNOWN


def test_it_is_unknown_before_the_first_commit(tmp_path: Path) -> None:
    (tmp_path / "src/perseid").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    assert commits.commit(tmp_path / "src/perseid") == commits.UNKNOWN
