"""Sequences of files, and the folders that hold them."""

from __future__ import annotations

from random import Random

import pytest

from perseid.base.errors import CorruptLog, StoreError
from perseid.sim.disk import PAGE, SimDisk, SimFile
from perseid.store.segments import CHUNK_BYTES, MAX_OPEN_FILES, Folders, Segments, write_again, written_bytes, zero


def sequence(files: int = 0, file_bytes: int = 100, disk: SimDisk | None = None) -> Segments:
    disk = disk or SimDisk(Random(0))
    segments = Segments(disk, Folders(disk), "a/b", file_bytes)
    for number in range(files):
        segments.create(segments.end).write(0, b"%d" % number)
    return segments


def test_names_and_places() -> None:
    segments = sequence(3)
    assert segments.starts == [0, 100, 200] and segments.end == 300
    assert segments.path(100) == "a/b/00000000000000000100"
    assert [segments.start_of(n) for n in (-1, 0, 99, 100, 299, 300)] == [None, 0, 0, 100, 200, None]
    assert segments.view(200, 1) == b"2" and len(segments.view(250, 99)) == 50 and len(segments.view(300, 1)) == 0
    assert [file.path[-3:] for file in segments.files_between(99, 101)] == ["000", "100"]
    assert segments.files_between(100, 100) == [] and len(segments.files_between(100, 200)) == 1


def test_a_sequence_may_begin_anywhere() -> None:
    segments = sequence()
    segments.create(500)
    segments.create(600)
    assert segments.start_of(499) is None and segments.start_of(650) == 600


def test_only_the_ends_are_removed_and_the_next_file_follows_the_last() -> None:
    segments = sequence(3)
    with pytest.raises(AssertionError):
        segments.remove(100)
    with pytest.raises(AssertionError):
        segments.create(400)
    segments.remove_from(100)
    assert segments.starts == [0]


def test_load_tells_what_is_missing() -> None:
    disk = SimDisk(Random(0))
    sequence(6, disk=disk)
    for start in (100, 400):
        disk.remove(f"a/b/{start:020d}")
    again = sequence(disk=disk)
    assert again.load("key") == [100, 400]
    assert again.starts == [0, 200, 300, 500]


def test_load_names_a_file_of_another_size() -> None:
    disk = SimDisk(Random(0))
    sequence(2, disk=disk)
    with pytest.raises(CorruptLog, match="100 bytes, someKey says 200"):
        sequence(file_bytes=200, disk=disk).load("someKey")


def test_few_files_are_open_at_once_and_writes_are_not_lost() -> None:
    disk = SimDisk(Random(0))
    segments = sequence(3 * MAX_OPEN_FILES, disk=disk)
    assert len(segments._open) == MAX_OPEN_FILES
    for start in segments.starts:
        assert segments.view(start, 2).tobytes().rstrip(b"\0") == b"%d" % (start // 100)
    assert len(segments._open) == MAX_OPEN_FILES and segments.starts[-1] in segments._open


def test_a_file_that_cannot_be_opened_is_named() -> None:
    disk = SimDisk(Random(0))
    sequence(2, disk=disk)
    again = sequence(disk=disk)
    again.load("key")
    disk.remove("a/b/00000000000000000100")
    with pytest.raises(StoreError, match="00000000000000000100"):
        again.view(100, 1)


def test_a_removal_that_fails_changes_nothing() -> None:
    disk = SimDisk(Random(0))
    segments = sequence(2, disk=disk)
    disk.failing["remove"] = 1
    with pytest.raises(OSError):
        segments.remove(0)
    assert segments.starts == [0, 100]


def test_zeros_to_the_end() -> None:
    segments = sequence(2, file_bytes=3 * CHUNK_BYTES)
    file = segments.file(0)
    file.write(2 * CHUNK_BYTES + 5, b"x\0y")
    assert zero(file, 1) == 2 * CHUNK_BYTES + 7
    assert not any(file.view(1, file.size)) and file.view(0, 1) == b"0"
    file.write(10, b"abc")
    assert segments.zero_from(11) == 2 + 1, "two bytes here, one in the next file"
    assert segments.starts == [0] and file.view(10, 2) == b"a\0"


@pytest.mark.parametrize("again", ["zero", "write_again"])
def test_bytes_that_a_failed_sync_lost_reach_the_disk_when_written_again(again: str) -> None:
    for seed in range(10):
        disk = SimDisk(Random(seed))
        file = disk.open("f", 5000)
        file.write(0, b"old")
        file.sync()
        disk.sync_dir("")
        file.write(0, b"\0\0\0")
        disk.failing["sync"] = 1
        with pytest.raises(OSError):
            file.sync()
        if again == "zero":
            zero(file, 0)
        else:
            write_again(file, 0, 3)
        file.sync()
        disk.cut_power()
        assert disk.open("f").view(0, 3) == b"\0\0\0"


# ---- folders ----


def paths(folders: Folders, under: str | None = None) -> list[str]:
    return [folder.path for folder in folders.take(under)]


def test_a_new_folder_is_an_entry_of_its_parents() -> None:
    folders = Folders(SimDisk(Random(0)))
    folders.touch("a/b/c")
    assert paths(folders) == ["a/b/c", "a/b", "a", ""]
    folders.touch("a/b/c")
    folders.touch("a/d")
    assert sorted(paths(folders)) == ["a", "a/b/c", "a/d"]
    assert paths(folders) == []


def test_one_folder_is_taken_with_its_parents() -> None:
    folders = Folders(SimDisk(Random(0)))
    folders.touch("log")
    folders.touch("logs/x")
    assert paths(folders, "log") == ["log", ""]
    assert sorted(paths(folders)) == ["logs", "logs/x"]


def test_what_was_handed_out_can_be_had_again() -> None:
    folders = Folders(SimDisk(Random(0)))
    folders.touch("a")
    folders.take()
    folders.touch("b")
    assert {folder.path for folder in folders.take_again()} == {"a", "b", ""}


def test_a_removed_folder_changes_its_parent() -> None:
    folders = Folders(SimDisk(Random(0)))
    folders.touch("a/b/c")
    folders.take()
    folders.forget("a/b")
    assert paths(folders) == ["a"]
    folders.touch("a/b/c")
    assert paths(folders) == ["a/b/c", "a/b", "a"]
    folders.distrust()
    assert set(paths(folders)) == {"a/b/c", "a/b", "a", ""}


def test_folders_are_distrusted_up_to_the_top_though_one_has_changed_since() -> None:
    """A store that makes a file in a folder which an earlier life made and never synced (sim 17883)."""
    folders = Folders(SimDisk(Random(0)))
    folders.known("a/b/c")
    folders.touch("a/b/c")
    folders.distrust()
    assert paths(folders) == ["a/b/c", "a/b", "a", ""]


class Gone(SimDisk):
    def sync_dir(self, folder: str) -> None:
        raise FileNotFoundError(folder)


def test_a_folder_that_is_gone_needs_no_sync() -> None:
    folders = Folders(Gone(Random(0)))
    folders.touch("a")
    for folder in folders.take():
        folder.sync()


def test_zeros_behind_the_end_need_no_room_on_a_full_disk() -> None:
    """Seed 89 of the group model without the core: a follower that was to cut its log wrote zeros where the file had no
    block yet, and its disk was full."""
    disk = SimDisk(Random(1))
    segments = Segments(disk, Folders(disk), "log", 1 << 20, sparse=True)
    segments.create(0)
    file = segments.file(0)
    file.write(100, b"x" * 5_000)
    disk.fill(1.0)
    assert disk.usage().free == 0
    assert segments.zero_from(200) == 4_900
    assert bytes(file.view(0, 1 << 20)).rstrip(b"\0") == bytes(100) + b"x" * 100
    assert segments.zero_from(12_288) == 0


def test_of_a_large_file_only_what_was_written_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start looks for the end of each batch consume queue, whose files are 13.8 MB of which little is written."""
    disk = SimDisk(Random(1))
    segments = Segments(disk, Folders(disk), "queue", 13 << 20, sparse=True)
    segments.create(0)
    file = segments.file(0)
    assert written_bytes(file) == 0
    file.write(5_000, b"x")
    file.write(9 << 20, bytes(46))
    looked_at: list[int] = []
    view = SimFile.view
    monkeypatch.setattr(SimFile, "view", lambda self, at, length: looked_at.append(length) or view(self, at, length))
    assert written_bytes(file) == 5_001
    assert sum(looked_at) <= 2 * PAGE
