"""What survives on a simulated disk: synced bytes and names always, others as the dice fall."""

import errno
from collections import Counter
from random import Random

import pytest

from perseid.base.errors import LocalProtocolError, StoreLocked
from perseid.sim.disk import BIG_BYTES, PAGE, TOTAL_BYTES, CrashPoint, SimDisk

SIZE = 4 * PAGE


def made(seed: int) -> SimDisk:
    """A disk with one synced file of zeros whose name is durable."""
    disk = SimDisk(Random(seed))
    disk.open("log/a", SIZE).sync()
    disk.sync_dir("")
    disk.sync_dir("log")
    return disk


def test_reads_see_writes_and_sizes_are_kept() -> None:
    disk = made(1)
    file = disk.open("log/a")
    file.write(PAGE - 2, b"abcd")
    assert bytes(disk.open("log/a", 99).view(PAGE - 2, 4)) == b"abcd"
    assert disk.size("log/a") == SIZE and disk.size("log/b") is None and disk.read("log/b") is None
    assert disk.list("") == ["log/"] and disk.list("log") == ["a"] and disk.list("none") == []
    with pytest.raises(LocalProtocolError):
        file.write(SIZE - 1, b"ab")
    with pytest.raises(FileNotFoundError):
        disk.open("log/b")


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = made(1)
    disk.open("log/a").write(0, b"x")
    disk.lock("lock")
    with pytest.raises(StoreLocked):
        disk.lock("lock")
    disk.kill()
    disk.lock("lock")
    assert bytes(disk.open("log/a").view(0, 1)) == b"x"


@pytest.mark.parametrize("seed", range(50))
def test_synced_bytes_survive_every_power_cut(seed: int) -> None:
    disk = made(seed)
    file = disk.open("log/a")
    file.write(0, b"A" * (2 * PAGE))
    file.sync()
    file.write(2 * PAGE - 100, b"B" * 200)
    assert file.durable_bytes() == 2 * PAGE - 100
    disk.cut_power()
    data = disk.read("log/a")
    assert data is not None and len(data) == SIZE
    assert data[: 2 * PAGE - 100] == b"A" * (2 * PAGE - 100)
    assert data[2 * PAGE + 100 :] == bytes(SIZE - 2 * PAGE - 100)


def test_a_big_file_takes_no_memory_for_zeros_and_meets_the_same_fates() -> None:
    for seed in range(30):
        left = []
        for size in (SIZE, BIG_BYTES):
            disk = SimDisk(Random(seed))
            file = disk.open("log/a", size)
            assert isinstance(file.data, bytearray) == (size < BIG_BYTES)
            file.sync()
            disk.sync_dir("")
            disk.sync_dir("log")
            file.write(PAGE - 2, memoryview(b"A" * PAGE))
            assert bytes(file.view(PAGE - 3, 5)) == b"\0AAAA" and file.durable_bytes() == PAGE - 2
            disk.cut_power()
            data = disk.read("log/a")
            assert data is not None and len(data) == size and not any(data[SIZE:])
            left.append(data[:SIZE])
        assert left[0] == left[1]


def test_unsynced_pages_meet_every_fate() -> None:
    fates: Counter[str] = Counter()
    for seed in range(300):
        disk = made(seed)
        disk.open("log/a").write(0, b"B" * (2 * PAGE))
        disk.cut_power()
        data = disk.read("log/a")
        assert data is not None
        for page in (data[:PAGE], data[PAGE : 2 * PAGE]):
            if page == b"B" * PAGE:
                fates["kept"] += 1
            elif page == bytes(PAGE):
                fates["dropped"] += 1
            elif set(page) <= set(b"B\0"):
                fates["torn"] += 1
            else:
                fates["garbage"] += 1
    assert min(fates[fate] for fate in ("kept", "dropped", "torn", "garbage")) > 20


def test_what_is_written_during_a_sync_is_not_covered_by_it() -> None:
    outcomes = set()
    for seed in range(100):
        disk = made(seed)
        file = disk.open("log/a")
        file.write(0, b"1")
        file.begin_sync()
        file.write(1, b"2")
        file.end_sync()
        disk.cut_power()
        data = disk.read("log/a")
        assert data is not None and data[:1] == b"1"
        outcomes.add(data[1:2])
    assert {b"\0", b"2"} <= outcomes


def test_a_failed_sync_loses_its_pages_for_good() -> None:
    lost = kept = 0
    for seed in range(100):
        disk = made(seed)
        file = disk.open("log/a")
        file.write(0, b"1")
        disk.failing["sync"] = 1
        with pytest.raises(OSError, match="sync fails"):
            file.sync()
        file.sync()  # says that all is well, and it is not
        if seed % 2:
            file.write(1, b"2")
            file.sync()
            disk.cut_power()
            data = disk.read("log/a")
            assert data is not None and data[:2] == b"12"
        else:
            disk.cut_power()
            data = disk.read("log/a")
            assert data is not None
            lost, kept = lost + (data[0] == 0), kept + (data[0] == 49)
    assert lost and kept


def test_a_page_that_was_written_during_a_failed_sync_is_synced_by_the_next() -> None:
    for seed in range(30):
        disk = made(seed)
        file = disk.open("log/a")
        file.write(0, b"1")
        file.begin_sync()
        file.write(1, b"2")
        disk.failing["sync"] = 1
        with pytest.raises(OSError, match="sync fails"):
            file.end_sync()
        file.sync()
        disk.cut_power()
        data = disk.read("log/a")
        assert data is not None and data[:2] == b"12"


def test_names_survive_only_with_their_folders() -> None:
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(200):
        disk = made(seed)
        disk.open("log/b", PAGE).sync()
        disk.open("new/c", PAGE).sync()
        disk.sync_dir("new")  # but not the folder that holds "new"
        disk.cut_power()
        seen[disk.size("log/b") is not None, disk.size("new/c") is not None] += 1
        assert disk.size("log/a") == SIZE
    assert len(seen) == 4


@pytest.mark.parametrize("seed", range(60))
def test_a_rename_is_whole_and_a_saved_state_survives(seed: int) -> None:
    disk = made(seed)
    for text in (b"one", b"two"):
        disk.write("state.tmp", text)
        disk.sync_file("state.tmp")
        disk.rename("state.tmp", "state")
        if text == b"one":
            disk.sync_dir("")
    disk.cut_power()
    assert disk.read("state") in (b"one", b"two")


def test_a_rename_without_a_sync_of_the_file_may_leave_rubbish() -> None:
    results = set()
    for seed in range(200):
        disk = made(seed)
        disk.write("state.tmp", b"text")
        disk.rename("state.tmp", "state")
        disk.sync_dir("")
        disk.cut_power()
        results.add(disk.read("state"))
    assert {b"", b"text"} <= results and len(results) > 4


def test_a_removed_file_may_come_back() -> None:
    results = set()
    for seed in range(50):
        disk = made(seed)
        disk.remove("log")
        assert disk.list("") == []
        disk.cut_power()
        results.add(disk.size("log/a"))
    assert results == {None, SIZE}


def test_a_file_that_was_never_synced_may_come_back_empty() -> None:
    results = set()
    for seed in range(100):
        disk = made(seed)
        disk.open("log/b", PAGE)
        disk.sync_dir("log")
        disk.cut_power()
        results.add(disk.size("log/b"))
    assert results == {0, PAGE}


def test_a_full_disk_refuses_new_files_and_sparse_blocks_only() -> None:
    disk = made(1)
    sparse = disk.open("log/index", SIZE, sparse=True)
    assert disk.usage().free == TOTAL_BYTES - SIZE
    disk.fill(1.0)
    disk.open("log/a").write(0, b"x")
    for call in (lambda: disk.open("log/b", PAGE), lambda: disk.write("s", b"t"), lambda: sparse.write(0, b"x")):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.ENOSPC
    assert disk.usage().free == 0
    disk.fill(0)
    sparse.write(0, b"x")
    assert disk.usage().free == TOTAL_BYTES - SIZE - PAGE


def test_the_process_dies_at_the_chosen_change() -> None:
    places = set()
    for crash_in in range(1, 6):
        disk = made(crash_in)
        disk.crash_in = crash_in
        with pytest.raises(CrashPoint) as raised:
            disk.open("log/a").write(0, b"abc")
            disk.write("t", b"x")
            disk.rename("t", "u")
            disk.sync_dir("")
        places.add(str(raised.value))
        disk.kill()
        disk.sync_dir("")
    assert places == {"write of log/a", "create of t", "write of t", "rename of u", "sync_dir of "}


def test_what_is_used_is_what_all_files_take_whatever_happened_to_them() -> None:
    random = Random("usage")
    disk = SimDisk(random)

    def check() -> None:
        assert disk.usage().free == TOTAL_BYTES - sum(file.allocated for file in disk.files())

    for number in range(300):
        path = f"a/{random.randrange(6)}"
        step = random.randrange(8)
        check()
        if step == 0 and disk.size(path) in (None, 0):
            disk.remove(path)
            disk.open(path, random.choice((1_000, 9_000, 20_000)), sparse=number % 2 == 0)
        elif step == 1:
            disk.write(path + ".s", b"x" * random.randrange(5_000))
        elif step == 2 and disk.size(path + ".s") is not None:
            disk.rename(path + ".s", path)
        elif step == 3:
            disk.remove(path)
        elif step == 4 and not number % 5:
            disk.cut_power()
        elif step > 4 and disk.size(path):
            file = disk.open(path)
            file.write(random.randrange(file.size), b"y")
            if step == 7:
                disk.remove(path)
                file.write(file.size - 1, b"z")  # who has it open goes on
        check()


def test_durable_bytes_end_at_the_first_byte_that_is_not() -> None:
    for at in (0, 1, 511, 2_047, 4_095, 4_096, 8_000):
        disk = SimDisk(Random(1))
        file = disk.open("f", 8_192)
        file.sync()
        file.write(at, b"\1")
        assert file.durable_bytes() == at


def test_names_are_listed_anew_after_each_change() -> None:
    disk = SimDisk(Random(1))
    for change, names in (
        (lambda: disk.write("a/b", b""), ["b"]),
        (lambda: disk.write("a/c/d", b""), ["b", "c/"]),
        (lambda: disk.rename("a/b", "a/e"), ["c/", "e"]),
        (lambda: disk.remove("a/c"), ["e"]),
    ):
        change()
        disk.list("a").append("of the caller")
        assert disk.list("a") == names
