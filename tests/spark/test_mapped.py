"""How the tests' JVMs get their archive of classes; without a JVM."""

import fcntl
import os
import sys
from pathlib import Path

import pytest
from tests.spark import mapped


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mapped.Mapped:
    monkeypatch.setattr(mapped, "_digest", lambda: "0123")
    monkeypatch.setenv(mapped.OPTIONS, "-Xmx1g")
    return mapped.Mapped(tmp_path / "folder")


def test_an_archive_is_mapped_once_it_is_there_and_named_once(archives: mapped.Mapped) -> None:
    archives.use()
    assert os.environ[mapped.OPTIONS] == "-Xmx1g"
    archives.archive.parent.mkdir()
    archives.archive.touch()
    for _ in range(2):
        archives.use()
        assert os.environ[mapped.OPTIONS] == f"-Xmx1g -XX:SharedArchiveFile={archives.archive} {mapped.QUIET}"


def test_nobody_waits_for_the_one_that_makes_it(archives: mapped.Mapped) -> None:
    archives.archive.parent.mkdir()
    with archives.archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archives.make()
    assert not archives.archive.exists()


def test_a_new_archive_takes_the_place_of_others(archives: mapped.Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = archives.archive.parent
    folder.mkdir()
    (folder / "spark-classes-other.jsa").touch()
    maker = folder / "maker"
    maker.write_text('#!/bin/sh\necho mapped >"$3"\n')
    maker.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(maker))
    archives.make()
    assert [path.name for path in folder.glob("*.jsa")] == [archives.archive.name]
    assert archives.archive.read_text() == "mapped\n"


def test_where_none_can_be_made_a_warning_says_why(archives: mapped.Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.warns(UserWarning, match="without an archive of its classes"):
        archives.make()
    slow = archives.archive.parent / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(mapped, "MAKE_S", 0.01)
    with pytest.warns(UserWarning, match="timed out after"):
        archives.make()
    archives.use()
    assert os.environ[mapped.OPTIONS] == "-Xmx1g"
