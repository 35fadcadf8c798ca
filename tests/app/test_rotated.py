"""A file of lines that begins anew when it is long."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perseid.app.rotated import RotatedFile

LINE = b"x" * 99


def test_a_bounded_number_of_files_is_kept_and_the_last_lines_are_in_them(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "audit" / "audit.log", 1_000, 3)
    for number in range(95):
        file.write(b"%099d" % number)
    found = sorted(path.name for path in file.path.parent.iterdir())
    assert found == ["audit.log", "audit.log.1", "audit.log.2"]
    texts = [(file.path.parent / name).read_bytes() for name in reversed(found)]
    assert [len(text) for text in texts] == [1_000, 1_000, 500]
    assert b"".join(texts).split() == [b"%099d" % number for number in range(70, 95)]
    assert {path.stat().st_mode & 0o777 for path in file.path.parent.iterdir()} == {0o600}


def test_it_goes_on_where_it_was_and_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    first = RotatedFile(path, 1_000, 2)
    first.write(b"one")
    first.close()
    with path.open("ab") as torn:
        torn.write(b'{"half')
    again = RotatedFile(path, 1_000, 2)
    again.write(b"two")
    assert path.read_bytes() == b'one\n{"half\ntwo\n'


def test_nothing_is_made_before_the_first_line(tmp_path: Path) -> None:
    RotatedFile(tmp_path / "audit" / "audit.log", 1_000, 2).close()
    assert not (tmp_path / "audit").exists()


def test_a_folder_that_cannot_be_used_stops_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("a file")
    file = RotatedFile(tmp_path / "audit" / "audit.log", 1_000, 2)
    for _ in range(3):
        file.write(LINE)
    (told,) = caplog.messages
    assert "1 lines could not be written: File exists" in told and "auditLogPath" in told


def test_a_full_disk_costs_the_line_and_the_next_one_stands_for_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RotatedFile(tmp_path / "audit.log", 1_000, 2)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda number, data: write(number, data[:10]))
        file.write(LINE)
        full.setattr(os, "write", lambda number, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        file.write(LINE)
    file.write(b"after")
    assert file.path.read_bytes() == b"x" * 10 + b"\nafter\n"
    assert "the disk is full" in caplog.messages[0]
