"""The index: what it writes, finds, keeps after a crash."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.sim.disk import PAGE_BITS, SimDisk, SimFile
from perseid.store.config import StoreConfig
from perseid.store.index import FOLDER, KEY, Index
from perseid.store.segments import Folders

from .harness import Node, message

START = 1_700_000_000_000
ALL = (0, 1 << 60)


def fresh(disk: SimDisk | None = None, **settings: Any) -> Index:
    disk = disk or SimDisk(Random(0))
    index = Index(
        disk, Folders(disk), StoreConfig(max_hash_slot_num=7, max_index_num=settings.pop("most", 20), **settings)
    )
    index.load()
    return index


def reopened(index: Index) -> Index:
    """The same files as the next life finds them, headers written or not."""
    return fresh(index._disk, most=index._most)  # type: ignore[arg-type]


def no_time(offset: int) -> int:
    return 0


def test_entries_of_one_slot_are_a_chain() -> None:
    index = fresh()
    for number in range(5):
        index.put([3 + 7 * (number % 2)], 100 * number, START + 1000 * number)
    (file,) = index.files
    assert [file.entry(n) for n in range(1, 6)] == [
        (3, 0, 0, 0), (10, 100, 1, 1), (3, 200, 2, 2), (10, 300, 3, 3), (3, 400, 4, 4)
    ]  # fmt: skip
    assert (file.slot_count, file.count) == (1, 6)
    assert index.find(3, 9, *ALL) == [400, 200, 0]
    assert index.find(10, 9, *ALL) == [300, 100]
    assert index.find(17, 9, *ALL) == []


def test_packed_entries_that_wait_are_written_by_the_core_that_the_index_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker of the pytest run may live on while another test switches the core off."""
    index = fresh()
    index.put_many(bytearray(KEY.pack(3, 100) + KEY.pack(10, 200)), START)
    monkeypatch.setattr(core, "compiled", None)
    assert (index.find(3, 9, *ALL), index.find(10, 9, *ALL)) == ([100], [200])
    assert index.files[0].entry(2) == (10, 200, 0, 1)


def test_limits_of_a_search() -> None:
    index = fresh(most=6)
    for number in range(12):
        index.put([1], number, START + 1000 * number)
    assert len(index.files) == 3
    assert index.find(1, 99, *ALL) == list(range(11, -1, -1))
    assert index.find(1, 7, *ALL) == list(range(11, 4, -1))
    assert index.find(1, 99, START + 4000, START + 7000) == [7, 6, 5, 4]
    assert index.find(1, 99, START + 99_000, START + 100_000) == []


def test_a_full_file_is_followed_by_one_that_knows_where_it_ended() -> None:
    index = fresh(most=3)
    for number in range(2):
        index.put([1], number, START + number)
    index.put([1, 2], 2, START + 2)
    first, second = index.files
    assert first.count == 3
    assert (second.begin_offset, second.begin_timestamp, second.end_offset) == (2, START + 2, 2)
    assert (index.end_offset, index.end_timestamp) == (2, START + 2)
    assert len({first.name, second.name}) == 2 and first.name < second.name


def test_names_go_up_even_when_the_clock_goes_back() -> None:
    index = fresh(most=2)
    for number, now in enumerate((START, START - 5_000_000, START, START + 1)):
        index.put([number], number, now)
    names = [file.name for file in index.files]
    assert names == sorted(set(names)) and len(names) == 4
    assert reopened(index).files[0].name == names[0]


@pytest.mark.parametrize("stored", [-1, -(1 << 63), 1 << 47, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_makes_a_file_that_is_found_again(stored: int) -> None:
    """A slave indexes what its master's log says. Found by the fuzz target `slave`."""
    index = fresh(most=2)
    for number in range(3):
        index.put([number], number, stored)
    names = [file.name for file in index.files]
    assert names == sorted(set(names)) and len(names) == 3
    assert [file.name for file in reopened(index).files] == names


def test_times_before_the_begin_count_as_it() -> None:
    index = fresh()
    index.put([1], 0, START)
    index.put([1], 1, START - 60_000)
    assert index.files[0].entry(2)[2] == 0


def test_headers_are_written_when_it_is_flushed() -> None:
    index = fresh()
    index.put([1], 5, START)
    assert index.end_offset == 5
    assert reopened(index).files[0].count == 1
    (file,) = index.take_dirty()
    assert file.path.startswith(FOLDER)
    again = reopened(index).files[0]
    assert (again.count, again.slot_count, again.end_offset, again.begin_timestamp) == (2, 1, 5, START)
    assert index.take_dirty() == []


def ruin_the_header(index: Index) -> None:
    index.files[-1].file.write(0, b"\xff" * 40)


def ruin_the_slots(index: Index) -> None:
    index.files[-1].file.write(40, bytes([0, 0, 0, 9] * 7))


def lose_the_slots(index: Index) -> None:
    index.files[-1].file.write(40, bytes(28))


def ruin_what_is_not_durable(index: Index) -> None:
    index.files[-1].file.write(68 + 20 * 9, b"\xaa" * 50)


@pytest.mark.parametrize("ruin", [ruin_the_header, ruin_the_slots, lose_the_slots, ruin_what_is_not_durable])
def test_a_crash_leaves_what_is_durable(ruin: Callable[[Index], None]) -> None:
    """Entries of records before 800 are durable, everything else may be anything."""
    index = fresh()
    for number in range(12):
        index.put([number % 3], 100 * number, START + 1000 * number)
    index.take_dirty()
    ruin(index)
    again = reopened(index)
    again.repair(800, lambda offset: START + 10 * offset)
    (file,) = again.files
    assert (file.count, file.end_offset, file.end_timestamp) == (9, 700, START + 7000)
    assert (file.begin_offset, file.begin_timestamp, file.slot_count) == (0, START, 3)
    for number in range(8, 12):
        again.put([number % 3], 100 * number, START + 1000 * number)
    for key in range(3):
        assert again.find(key, 99, *ALL) == [100 * n for n in range(11, -1, -1) if n % 3 == key]
    whole = fresh()
    for number in range(12):
        whole.put([number % 3], 100 * number, START + 1000 * number)
    whole.take_dirty()
    again.take_dirty()
    assert again.files[0].file.view(0, 9999) == whole.files[0].file.view(0, 9999), "the same bytes as without a crash"


def test_files_without_a_durable_entry_go() -> None:
    index = fresh(most=4)
    for number in range(10):
        index.put([1], 100 * number, START + number)
        if number == 4:
            index.take_dirty()
    again = reopened(index)
    again.repair(401, no_time)
    assert [(file.begin_offset, file.end_offset) for file in again.files] == [(0, 200), (300, 400)]
    again.repair(0, no_time)
    assert again.files == [] and again.end_offset == -1


def test_times_of_records_that_the_log_has_lost() -> None:
    index = fresh()
    index.put([1], 100, START)
    index.put([1], 200, START + 5500)
    index.repair(300, no_time)
    file = index.files[0]
    assert (file.begin_timestamp, file.end_timestamp) == (START, START + 5000), "the seconds that entries tell"


def test_old_files_go() -> None:
    index = fresh(most=4)
    for number in range(10):
        index.put([1], 100 * number, START + number)
    index.remove_before(300)
    assert index.files[0].begin_offset == 300
    assert len(index._disk.list(FOLDER)) == len(index.files) == 3
    index.clear()
    assert index._disk.list(FOLDER) == []


@pytest.mark.parametrize("slot", [1, 5, 19, -3, 0x7FFFFFFF])
def test_damaged_chains_end(slot: int) -> None:
    """A slot or a chain that leads anywhere: the search ends, and finds nothing that is not there."""
    index = fresh()
    for number in range(5):
        index.put([1], number, START)
    index.take_dirty()
    index = reopened(index)
    index.files[0].file.write(44, slot.to_bytes(4, "big", signed=True))
    assert set(index.find(1, 99, *ALL)) <= set(range(5))
    index.put([1], 5, START)  # the slots are in memory now
    assert set(index.find(1, 99, *ALL)) <= set(range(6))
    index = reopened(index)
    index.files[0].file.write(44, (5).to_bytes(4, "big"))
    for number in range(1, 6):  # each entry points to itself
        index.files[0].file.write(68 + 20 * number + 16, number.to_bytes(4, "big"))
    assert index.find(1, 99, *ALL) == [4]


def test_a_full_disk_is_told_and_nothing_raised() -> None:
    disk = SimDisk(Random(0))
    index = fresh(disk)
    disk.fill(1.0)
    index.put([1], 0, START)
    assert index.files == [] and "no space left" in index.broken and disk.list(FOLDER) == []
    disk.fill(0)
    index.put([1], 1, START)
    assert index.files == [] and index.broken
    index.broken = ""
    index.put([1], 2, START)
    assert index.find(1, 9, *ALL) == [2]


def test_a_flush_needs_no_room() -> None:
    """Slots get their blocks with the first entry: what a flush writes out later is there already."""
    disk = SimDisk(Random(0))
    index = fresh(disk)
    index.put([1], 0, START)
    assert index.find(1, 9, *ALL) == [0]
    index.put([2, 3, 4], 1, START)
    disk.fill(1.0)
    assert len(index.take_dirty()) == 1 and not index.broken
    assert reopened(index).find(1, 9, *ALL) == [0] and reopened(index).find(4, 9, *ALL) == [1]


def test_slots_are_written_where_they_changed() -> None:
    """Entries that come in several turns, in two lives, are the same bytes as those of one turn."""
    settings = StoreConfig(max_hash_slot_num=5000, max_index_num=100)
    disks = SimDisk(Random(0)), SimDisk(Random(0))
    hashes = [number * 1_234_567 for number in range(90)]
    for disk, step in zip(disks, (90, 9), strict=True):
        for first in range(0, 90, step):
            index = Index(disk, Folders(disk), settings)
            index.load()
            for number in range(first, first + step):
                index.put([hashes[number]], number, START)
            index.take_dirty()
    one, other = (disk.open(f"{FOLDER}/{disk.list(FOLDER)[0]}") for disk in disks)
    assert one.view(0, one.size) == other.view(0, other.size)
    index = Index(disks[1], Folders(disks[1]), settings)
    index.load()
    assert [index.find(key, 9, *ALL) for key in hashes] == [[number] for number in range(90)]


def test_entries_that_find_no_room_leave_no_trace() -> None:
    disk = SimDisk(Random(0))
    index = fresh(disk, most=2000)
    index.put([1], 0, START)
    index.take_dirty()
    disk.fill(1.0)
    index.put([1, 3] * 500, 1, START)
    assert index.find(1, 9, *ALL) == [0] and index.broken
    disk.fill(0)
    index.broken = ""
    index.put([3, 1], 2, START)
    assert (index.find(1, 9, *ALL), index.find(3, 9, *ALL)) == ([2, 0], [2])
    (file,) = index.files
    assert (file.count, file.slot_count) == (4, 2)


def test_nothing_is_read_that_has_no_block_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is memory (tmpfs), reading a hole takes room: when there is none the kernel ends the process. A
    soak with full disks found that (SIGBUS), right when a new file of the index was begun."""
    real = SimFile.view
    read = 0

    def view(self: SimFile, offset: int, length: int) -> memoryview:
        nonlocal read
        if self.path.startswith("index/") and length:
            read += 1
            pages = set(range(offset >> PAGE_BITS, ((offset + length - 1) >> PAGE_BITS) + 1))
            there = self.blocks is None or pages <= self.blocks
            assert there, f"{self.path}: {length} bytes at {offset} are read, some have no block"
        return real(self, offset, length)

    monkeypatch.setattr(SimFile, "view", view)
    node = Node(max_hash_slot_num=5_000, max_index_num=9_000)
    node.load()
    for number in range(20):
        node.store.appends.append(message(KEYS=f"k{number}"), node.now)
    assert len(node.store.reads.query("T", "k7", 9, 0, node.now).records) == 1
    assert read
