"""A consume queue by itself: units, ends, beginnings, the minimum."""

from __future__ import annotations

from random import Random

import pytest

from perseid.sim.disk import SimDisk
from perseid.store.consume_queue import BLANK_UNIT, ROOM_UNITS
from perseid.store.segments import Folders
from perseid.store.simple_queue import SimpleQueue

FOLDER = "consumequeue/T/3"


def put(queue: SimpleQueue, physical_offset: int, size: int, tag_code: int) -> None:
    queue.put(physical_offset, size, tag_code, 0, queue.end, 1)


def queue(units: int = 0, first: int = 0, disk: SimDisk | None = None, file_bytes: int = 100) -> SimpleQueue:
    """Five units a file; unit n points to 1000 + 100 * n."""
    disk = disk or SimDisk(Random(0))
    made = SimpleQueue(disk, Folders(disk), "T", 3, file_bytes)
    if first:
        made.restart(first)
    for _ in range(units):
        made.prepare()
        put(made, 1000 + 100 * made.end, 99, -(1 << 31))
    return made


def again(old: SimpleQueue, log_start: int = 0) -> SimpleQueue:
    """The same queue as the next life finds it."""
    loaded = SimpleQueue(old.segments._disk, Folders(old.segments._disk), "T", 3, 100)
    assert loaded.load(log_start) == []
    loaded.end = loaded.find_end()
    loaded.correct_min(log_start)
    return loaded


def test_units_stand_where_their_offset_says() -> None:
    made = queue(7)
    assert (made.min, made.end) == (0, 7)
    assert made.unit(6) == (1600, 99, -(1 << 31)) and made.unit(7) is None
    raw = made.segments._disk.read(f"{FOLDER}/{100:020d}")
    assert raw is not None and raw[20:40].hex() == "000000000000064000000063ffffffff80000000"
    assert len(made.units(3, 99)) == 40 and len(made.units(5, 1)) == 20 and len(made.units(5, 99)) == 40


def test_a_file_holds_whole_units() -> None:
    assert queue(1, file_bytes=101).segments.file_bytes == 120


def test_a_queue_that_begins_late_is_filled_with_blanks() -> None:
    made = queue(2, first=7)
    assert (made.first, made.min, made.end) == (5, 7, 9)
    assert made.segments.view(100, 40) == BLANK_UNIT * 2
    assert BLANK_UNIT.hex() == "00000000000000007fffffff0000000000000000", "the original's"
    assert made.unit(6) is None and made.unit(7) is not None
    loaded = again(made)
    assert (loaded.first, loaded.min, loaded.end) == (5, 7, 9)


@pytest.mark.parametrize("units", [0, 1, 4, 5, 6, 14, 15])
def test_the_end_is_found(units: int) -> None:
    made = queue(units)
    assert again(made).end == units
    made.prepare()
    made.reserve(12)  # files made ahead of a batch that was refused
    assert again(made).end == units


@pytest.mark.parametrize(
    ("log_start", "least"), [(0, 0), (1000, 0), (1001, 1), (1500, 5), (1900, 9), (1901, 10), (9999, 10)]
)
def test_the_minimum_is_the_first_record_that_the_log_has(log_start: int, least: int) -> None:
    assert again(queue(10), log_start).min == least


@pytest.mark.parametrize(("log_start", "files"), [(0, 3), (1400, 3), (1401, 2), (1900, 2), (1901, 1), (9999, 1)])
def test_files_of_lost_records_go_but_never_the_last(log_start: int, files: int) -> None:
    made = queue(12)
    made.remove_before(log_start, 9999)
    assert len(made.segments.starts) == files
    assert made.end == 12


@pytest.mark.parametrize(("durable", "files"), [(0, 3), (1500, 3), (1501, 2), (2000, 2), (2001, 1), (9999, 1)])
def test_a_file_stays_until_a_unit_of_the_next_one_is_durable(durable: int, files: int) -> None:
    """A power cut would take what is not, and the queue would begin at 0 again (sim 984 with three slaves)."""
    made = queue(12)
    made.remove_before(9999, durable)
    assert len(made.segments.starts) == files


def test_the_file_of_the_next_unit_stays_though_a_later_one_was_made_ahead() -> None:
    """For a batch, say, that then found no room in the log (sim 1673)."""
    made = queue(9)
    made.reserve(3)
    made.remove_before(9999, 9999)
    assert made.segments.starts == [100, 200]
    made.correct_min(9999)
    assert (made.min, made.end) == (9, 9)
    made.prepare()
    put(made, 1900, 99, 0)
    assert made.unit(9) is not None


def test_a_cut_leaves_zeros() -> None:
    made = queue(12)
    assert made.cut(6) == (80 - 3) + (40 - 3), "up to the last byte that is not zero, in each file"
    assert made.end == 6 and made.segments.starts == [0, 100] and not any(made.segments.view(120, 80))
    made.prepare()
    put(made, 1, 2, 3)
    assert made.unit(6) == (1, 2, 3)


def test_a_hole_between_files_is_told_and_what_follows_goes() -> None:
    made = queue(22)
    made.segments._disk.remove(f"{FOLDER}/{200:020d}")
    loaded = SimpleQueue(made.segments._disk, Folders(made.segments._disk), "T", 3, 100)
    assert loaded.load(0) == [200]
    assert loaded.segments.starts == [0, 100]


def test_a_hole_among_files_of_lost_records_is_none() -> None:
    """A removal that came back after a power cut: older files than those that are gone."""
    made = queue(22)
    made.segments._disk.remove(f"{FOLDER}/{100:020d}")
    loaded = SimpleQueue(made.segments._disk, Folders(made.segments._disk), "T", 3, 100)
    assert loaded.load(2500) == []
    assert loaded.segments.starts == [200, 300, 400]


def test_a_full_disk_changes_no_unit_and_what_comes_later_goes_on() -> None:
    made = queue(5)
    disk = made.segments._disk
    disk.fill(1.0)  # type: ignore[attr-defined]
    with pytest.raises(OSError):
        made.prepare()
    with pytest.raises(OSError):
        made.reserve(3)
    assert made.end == 5 and not made.ready
    disk.fill(0.1)  # type: ignore[attr-defined]
    made.reserve(3)
    made.prepare()
    put(made, 1, 2, 3)
    assert made.unit(5) == (1, 2, 3)


def test_blocks_are_reserved_before_they_are_written_and_not_all_at_once() -> None:
    disk = SimDisk(Random(1))
    queue = SimpleQueue(disk, Folders(disk), "T", 3, 20 * 10 * ROOM_UNITS)
    queue.prepare()
    assert queue.room == ROOM_UNITS
    assert 19 * ROOM_UNITS <= sum(file.allocated for file in disk.files()) < 22 * ROOM_UNITS
    disk.fill(1.0)
    for number in range(ROOM_UNITS):
        queue.prepare()
        put(queue, number, 100, 0)
    with pytest.raises(OSError):
        queue.prepare()
    assert not queue.ready


@pytest.mark.parametrize("count", [1, ROOM_UNITS, 2 * ROOM_UNITS + 1, 3 * ROOM_UNITS, 3 * ROOM_UNITS + 1])
@pytest.mark.parametrize("at_once", [False, True])
def test_there_are_no_more_files_than_the_units_need(count: int, at_once: bool) -> None:
    """Though a file's blocks are reserved in several steps."""
    disk, each = SimDisk(Random(1)), 3 * ROOM_UNITS
    queue = SimpleQueue(disk, Folders(disk), "T", 3, 20 * each)
    if at_once:
        queue.reserve(count)
    for number in range(count):
        queue.prepare()
        put(queue, number, 100, 0)
    assert queue.segments.starts == [20 * each * number for number in range(-(-count // each))]
