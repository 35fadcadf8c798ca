"""The log of a member: appending, cutting, and what a start finds after a clean end, a power cut or a bad disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from perseid.base.errors import CorruptLog
from perseid.raft.files import CRC_BYTES, MAX_ENTRY_BYTES, FileLog
from perseid.raft.log import LogRefused, MemoryLog, RaftLog
from perseid.sim.disk import CrashPoint, SimDisk
from perseid.wire.dledger import BLANK, BLANK_BYTES, BLANK_MAGIC, ENTRY_HEADER_BYTES, INDEX_UNIT_BYTES, Entry

from .harness import settle

DATA, INDEX = 256, 32 * 8
"""Small files: four short entries, and eight units."""
BODY = ENTRY_HEADER_BYTES + 6
"""What an entry of `bodies` takes."""


def opened(disk: SimDisk, trusted: int = -1, data_bytes: int = DATA) -> tuple[FileLog, list[str]]:
    """The log of a folder after a start, and the notes of it."""
    log = FileLog(disk, data_bytes, INDEX)
    notes = log.load(trusted)
    settle(log)
    return log, notes


def filled(count: int, term: int = 1) -> tuple[SimDisk, FileLog]:
    disk = SimDisk(Random(1))
    log, _ = opened(disk)
    for number in range(count):
        log.append(term, b"body-%d" % (number % 10))
    settle(log)
    return disk, log


def bodies(log: RaftLog) -> list[bytes]:
    found = [log.get(index) for index in range(log.begin, log.end + 1)]
    assert [entry.index for entry in found if entry is not None] == list(range(log.begin, log.end + 1))
    return [entry.body for entry in found if entry is not None]


def numbered(count: int) -> list[bytes]:
    return [b"body-%d" % (number % 10) for number in range(count)]


def spoil(disk: SimDisk, path: str, at: int, data: bytes) -> None:
    """A bad disk, or a bad operator."""
    disk.open(path).write(at, data)


def data(start: int) -> str:
    return f"data/{start:020d}"


def file_log() -> RaftLog:
    return filled(0)[1]


BOTH = pytest.mark.parametrize("make", [file_log, MemoryLog], ids=["file", "memory"])
Make = Callable[[], RaftLog]


# ---- what both logs do ----


@BOTH
def test_a_new_log_is_empty(make: Make) -> None:
    log = make()
    assert (log.begin, log.end, log.end_term, log.durable, log.cutting) == (0, -1, -1, -1, False)
    assert log.get(0) is None and log.get(-1) is None and log.term_of(0) == -1 and log.term_of(-1) == -1


@BOTH
def test_appended_entries_stand_one_behind_the_other(make: Make) -> None:
    log = make()
    for number, term in enumerate((0, 0, 3)):
        entry = log.append(term, b"body-%d" % number)
        assert (entry.index, entry.term, entry.pos, entry.body) == (number, term, number * BODY, b"body-%d" % number)
    assert (log.begin, log.end, log.end_term) == (0, 2, 3)
    assert [log.term_of(index) for index in range(4)] == [0, 0, 3, -1]
    assert bodies(log) == numbered(3) and log.get(3) is None


@BOTH
def test_an_empty_body_is_a_body(make: Make) -> None:
    log = make()
    log.append(1, b"")
    entry = log.get(0)
    assert entry is not None and entry.body == b"" and entry.disk_bytes == ENTRY_HEADER_BYTES


@BOTH
def test_a_leaders_entries_are_put_where_it_has_them(make: Make) -> None:
    leader, log = make(), make()
    for number in range(3):
        log.put(leader.append(2, b"body-%d" % number))
    assert bodies(log) == bodies(leader)
    assert all((a := log.get(i)) and (b := leader.get(i)) and a.same(b) for i in range(3))


@BOTH
@pytest.mark.parametrize("entry", [Entry(2, 1, 2 * BODY, b"x"), Entry(0, 1, 0, b"x"), Entry(-1, 1, BODY, b"x")])
def test_an_entry_out_of_order_is_refused(make: Make, entry: Entry) -> None:
    log = make()
    log.append(1, b"body-0")
    with pytest.raises(LogRefused, match="1"):
        log.put(entry)
    assert bodies(log) == numbered(1)


@BOTH
@pytest.mark.parametrize("pos", [BODY - 1, BODY + 1, 0, 256, -1])
def test_an_entry_at_another_position_is_refused(make: Make, pos: int) -> None:
    log = make()
    log.append(1, b"body-0")
    with pytest.raises(LogRefused, match=f"{pos}"):
        log.put(Entry(1, 1, pos, b"x"))
    assert bodies(log) == numbered(1)


@BOTH
@pytest.mark.parametrize("index", [0, 1, 2])
def test_what_is_cut_is_gone_and_the_next_one_takes_its_place(make: Make, index: int) -> None:
    log = make()
    for number, term in enumerate((0, 1, 2)):
        log.append(term, b"body-%d" % number)
    settle(log)
    log.cut(index)
    assert (log.end, log.end_term) == (index - 1, index - 1) and log.durable <= log.end
    assert log.get(index) is None and log.term_of(index) == -1
    settle(log)
    entry = log.append(7, b"other")
    assert (entry.index, entry.pos) == (index, index * BODY)
    assert bodies(log) == [*numbered(index), b"other"] and log.end_term == 7


@BOTH
def test_a_flush_makes_durable_what_was_there_when_it_was_asked_for(make: Make) -> None:
    log = make()
    log.append(1, b"body-0")
    mark = log.mark()
    log.append(1, b"body-1")
    log.flushed(mark)
    assert log.durable >= 0
    assert isinstance(log, MemoryLog) or log.durable == 0
    settle(log)
    assert log.durable == 1


# ---- files ----


def test_an_entry_never_crosses_the_end_of_a_file() -> None:
    _, log = filled(9)
    assert [entry.pos for index in range(9) if (entry := log.get(index))] == [
        256 * (number // 4) + BODY * (number % 4) for number in range(9)
    ]
    with pytest.raises(LogRefused, match="an entry of 250 bytes; 248 are the most"):
        log.append(1, bytes(202))
    assert log.append(1, bytes(200)).pos == 768


def test_an_entry_longer_than_javas_buffer_is_refused() -> None:
    log = FileLog(SimDisk(Random(1)), 8 << 20, INDEX)
    log.load(-1)
    with pytest.raises(LogRefused, match=f"{MAX_ENTRY_BYTES} are the most"):
        log.append(1, bytes(MAX_ENTRY_BYTES))


@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 30])
def test_a_start_finds_all_entries(count: int) -> None:
    disk, before = filled(count)
    log, notes = opened(disk, count - 1)
    assert bodies(log) == numbered(count) and log.end_term == 1 and log.durable == count - 1 and notes == []
    one, other = log.append(2, b"next"), before.append(2, b"next")
    assert one.same(other)


def test_what_is_durable_survives_any_power_cut() -> None:
    for seed in range(30):
        disk, log = filled(6)
        disk.random.seed(seed)
        for number in range(6, 11):
            log.append(1, b"body-%d" % (number % 10))
        disk.cut_power()
        log, _ = opened(disk, 5)
        assert bodies(log) == numbered(log.end + 1) and 5 <= log.end <= 10


def test_what_was_cut_never_comes_back_behind_other_entries() -> None:
    for seed in range(30):
        disk, log = filled(9)
        disk.random.seed(seed)
        log.cut(2)
        settle(log)
        log.append(2, b"other2")
        disk.cut_power()
        log, _ = opened(disk, 1)
        assert bodies(log) in (numbered(2), [*numbered(2), b"other2"])


def test_nothing_is_put_before_a_cut_is_durable() -> None:
    _, log = filled(5)
    log.cut(3)
    assert log.cutting
    early = log.mark()
    with pytest.raises(AssertionError, match="before what was cut is gone"):
        log.append(2, b"other")
    with pytest.raises(AssertionError, match="before what was cut is gone"):
        log.put(Entry(3, 2, 3 * BODY, b"other"))
    log.cut(2)
    log.flushed(early)
    assert log.cutting, "the flush was asked for before the second cut"
    settle(log)
    assert not log.cutting and log.append(2, b"other").index == 2


def test_nothing_is_put_before_the_first_flush_of_a_life() -> None:
    disk, _ = filled(3)
    log = FileLog(disk, DATA, INDEX)
    log.load(-1)
    assert log.cutting and log.durable == -1
    with pytest.raises(AssertionError):
        log.append(1, b"x")
    settle(log)
    assert not log.cutting and log.durable == 2


def test_only_what_is_there_can_be_cut() -> None:
    _, log = filled(3)
    for index in (-1, 3, 9):
        with pytest.raises(AssertionError):
            log.cut(index)


@pytest.mark.parametrize("index", [0, 3, 4, 5, 8])
def test_a_cut_takes_the_files_behind_it_and_the_blank_before(index: int) -> None:
    disk, log = filled(9)
    log.cut(index)
    settle(log)
    reopened, notes = opened(disk, index - 1)
    assert bodies(reopened) == numbered(index) and notes == []
    assert len(disk.list("data")) <= 1 + index // 4


def test_what_comes_after_a_cut_may_fit_before_the_end_of_the_file() -> None:
    """The entry that was cut did not: a blank stood before it."""
    disk, log = filled(0)
    log.append(1, bytes(150))
    assert log.append(1, bytes(10)).pos == 256
    log.cut(1)
    settle(log)
    assert log.append(2, b"").pos == ENTRY_HEADER_BYTES + 150
    settle(log)
    assert opened(disk, 1)[0].end_term == 2


def test_a_stale_tail_is_cut_off() -> None:
    disk, _ = filled(3)
    stale = b"".join(bytes(part) for part in Entry(9, 1, 3 * BODY, b"stale").encode())
    spoil(disk, data(0), 3 * BODY, stale)
    log, notes = opened(disk, 2)
    assert bodies(log) == numbered(3) and "cut off" in notes[-1]
    raw = disk.read(data(0))
    assert raw is not None and not any(raw[3 * BODY :])


@pytest.mark.parametrize(
    "entry",
    [Entry(3, 0, 3 * BODY, b"x"), Entry(2, 1, 3 * BODY, b"x"), Entry(3, 1, 4 * BODY, b"x"), Entry(3, -1, 3 * BODY)],
    ids=["older term", "index again", "another position", "no term"],
)
def test_an_entry_that_does_not_follow_is_cut_off(entry: Entry) -> None:
    disk, _ = filled(3)
    spoil(disk, data(0), 3 * BODY, b"".join(bytes(part) for part in entry.encode()))
    log, notes = opened(disk, 2)
    assert bodies(log) == numbered(3) and "what follows is no entry" in notes[-1]


def test_a_torn_body_is_found_by_its_checksum() -> None:
    disk, _ = filled(4)
    spoil(disk, data(0), 2 * BODY + ENTRY_HEADER_BYTES + 2, b"\0")
    log, notes = opened(disk, 1)
    assert bodies(log) == numbered(2) and "entry 2 does not match its checksum" in notes[0]


def test_a_torn_body_of_a_log_of_javas_is_not_found() -> None:
    """Java keeps no checksums: a start takes its entries as they are, and knows them from then on."""
    disk, _ = filled(4)
    disk.remove("crc")
    spoil(disk, data(0), 2 * BODY + ENTRY_HEADER_BYTES, b"B")
    log, notes = opened(disk, 3)
    assert bodies(log)[2] == b"Body-2" and "4 entries were not known" in notes[0]
    spoil(disk, data(0), 2 * BODY + ENTRY_HEADER_BYTES, b"b")
    assert opened(disk, 1)[0].end == 1


def test_a_damaged_entry_that_was_durable_stops_the_start() -> None:
    disk, _ = filled(4)
    spoil(disk, data(0), 2 * BODY + ENTRY_HEADER_BYTES + 2, b"\0")
    before = disk.read(data(0))
    with pytest.raises(CorruptLog, match="entry 2 can't be read, and up to 3 were durable") as caught:
        opened(disk, 3)
    assert (caught.value.path, caught.value.offset) == (data(0), 2 * BODY)
    assert disk.read(data(0)) == before, "nothing is lost for who repairs it"


def test_another_size_of_the_data_files_is_refused() -> None:
    disk, _ = filled(5)
    with pytest.raises(CorruptLog, match="256 bytes, mappedFileSizeForEntryData says 512"):
        opened(disk, data_bytes=512)


def test_another_size_of_the_index_files_is_refused() -> None:
    disk, _ = filled(5)
    with pytest.raises(CorruptLog, match="256 bytes, mappedFileSizeForEntryIndex says 512"):
        FileLog(disk, DATA, 512).load(-1)


def test_a_leader_with_files_of_another_size_is_refused_with_both_positions() -> None:
    """The fifth entry stands behind the fourth there, and in the next file here."""
    _, log = filled(4)
    with pytest.raises(LogRefused, match=r"stands at 216 at its leader, and would at 256 here.*\(256 here\)"):
        log.put(Entry(4, 1, 4 * BODY, b"body-4"))
    assert log.end == 3


@pytest.mark.parametrize("folders", [["index"], ["crc"], ["index", "crc"]])
@pytest.mark.parametrize("count", [3, 30])
def test_missing_folders_are_built_anew(folders: list[str], count: int) -> None:
    disk, _ = filled(count)
    for folder in folders:
        disk.remove(folder)
    log, notes = opened(disk, count - 1)
    assert bodies(log) == numbered(count) and any("written anew" in note for note in notes)
    assert opened(disk, count - 1)[1] == []


@pytest.mark.parametrize("file", range(4))
def test_any_missing_index_file_is_built_anew(file: int) -> None:
    disk, _ = filled(30)
    disk.remove(f"index/{file * INDEX:020d}")
    log, _ = opened(disk, 29)
    assert bodies(log) == numbered(30)


def test_a_wrong_unit_of_the_index_is_written_anew() -> None:
    disk, _ = filled(6)
    spoil(disk, f"index/{0:020d}", 2 * INDEX_UNIT_BYTES, bytes(INDEX_UNIT_BYTES))
    log, notes = opened(disk, 5)
    assert bodies(log) == numbered(6) and "1 entries were not known" in notes[0]


@pytest.mark.parametrize("trusted", [-1, 3, 20])
def test_what_a_start_finds_beyond_what_was_durable_is_durable_after_its_flush(trusted: int) -> None:
    """Any number of files: the process ended before a flush of theirs (simulator, seed 49)."""
    disk, log = filled(trusted + 1)
    for number in range(trusted + 1, 60):
        log.append(1, b"body-%d" % (number % 10))
    disk.kill()
    found, _ = opened(disk, trusted)
    assert bodies(found) == numbered(60) and len(found._data.starts) > 10
    disk.cut_power()
    assert bodies(opened(disk, 59)[0]) == numbered(60)


@pytest.mark.parametrize("more", [1, 60], ids=["in the last files", "far behind"])
def test_a_blank_whose_sync_failed_is_written_again(more: int) -> None:
    """It stands between what was durable and what was not (simulator, seed 44; far behind: seed 7000067 of brokers)."""
    disk = SimDisk(Random(1))
    log = opened(disk)[0]
    while log._pos + BODY + BLANK_BYTES <= DATA:
        log.append(1, b"body-0")
    settle(log)
    durable, blank = log.end, log._pos
    for _ in range(more):
        log.append(1, b"body-0")
    disk.failing["sync"] = 1
    with pytest.raises(OSError, match="sync fails"):
        log._data.file(0).sync()
    disk.kill()
    opened(disk, durable)
    disk.cut_power()
    found = opened(disk, durable)[0]
    assert found.end == durable + more
    assert BLANK.unpack(found._data.view(blank, BLANK_BYTES)) == (BLANK_MAGIC, DATA - blank)


def test_half_an_entry_is_found_by_its_checksum() -> None:
    """The process dies within any call of an append: what is found is the entry, or none."""
    lengths = set()
    for seed in range(60):
        disk = SimDisk(Random(seed))
        log = opened(disk)[0]
        log.append(1, b"body-0")
        settle(log)
        disk.crash_in = 1 + seed % 6
        with suppress(CrashPoint):
            log.append(1, bytes(range(1, 120)))
        disk.crash_in = 0
        disk.kill()
        found = bodies(opened(disk)[0])
        assert found in ([b"body-0"], [b"body-0", bytes(range(1, 120))])
        lengths.add(len(found))
    assert lengths == {1, 2}


@pytest.mark.parametrize(("checked", "found"), [(True, 3), (False, 4)])
def test_an_entry_that_lost_its_checksum_is_not_whole_unless_a_java_member_may_have_written_it(
    checked: bool, found: int
) -> None:
    """A power cut took the page of the checksum, and kept a part of the body (simulator, seed 154)."""
    disk, _ = filled(4)
    spoil(disk, f"crc/{0:020d}", 3 * CRC_BYTES, bytes(CRC_BYTES))
    log = FileLog(disk, DATA, INDEX)
    log.load(1, checked=checked)
    assert log.end + 1 == found


def test_what_was_durable_needs_no_checksum() -> None:
    """It may be of the time when a Java member wrote it."""
    disk, _ = filled(4)
    spoil(disk, f"crc/{0:020d}", 2 * CRC_BYTES, bytes(CRC_BYTES))
    log = FileLog(disk, DATA, INDEX)
    log.load(2, checked=True)
    assert log.end == 3


@pytest.mark.parametrize("trusted", [3, 20])
def test_a_hole_beyond_what_was_durable_ends_the_log(trusted: int) -> None:
    """A power cut keeps some pages and not others."""
    disk, _ = filled(60)
    start = opened(disk)[0]._data.starts[6]
    spoil(disk, data(start), 0, bytes(BODY))
    found, _ = opened(disk, trusted)
    assert trusted < found.end < 59 and bodies(found) == numbered(found.end + 1)


def test_a_file_that_is_missing_in_the_middle_takes_what_comes_after_it() -> None:
    disk, _ = filled(12)
    disk.remove(data(256))
    log, notes = opened(disk, 3)
    assert bodies(log) == numbered(4) and f"{data(256)} is missing" in notes[0]
    assert disk.list("data") == [data(0)[5:]]


def test_a_file_that_is_missing_in_the_middle_of_what_was_durable_stops_the_start() -> None:
    disk, _ = filled(12)
    disk.remove(data(256))
    with pytest.raises(CorruptLog, match="up to 11 were durable"):
        opened(disk, 11)
    assert data(512)[5:] in disk.list("data"), "nothing is lost for who brings the file back"


def test_a_log_whose_files_are_all_gone_stops_the_start_if_entries_were_durable() -> None:
    disk, _ = filled(3)
    disk.remove("data")
    with pytest.raises(CorruptLog):
        opened(disk, 2)


def test_a_log_whose_first_entry_is_damaged_stops_the_start_if_it_was_durable() -> None:
    disk, _ = filled(3)
    spoil(disk, data(0), 0, b"\0\0\0\7")
    with pytest.raises(CorruptLog):
        opened(disk, 2)


def test_a_folder_without_an_entry_is_begun_anew() -> None:
    disk = SimDisk(Random(1))
    disk.open(data(0), DATA).write(0, b"\xee" * DATA)
    log, notes = opened(disk)
    assert bodies(log) == [] and "no entry; cut off 256 bytes" in notes[0]
    log.append(0, b"body-0")
    settle(log)
    assert bodies(opened(disk, 0)[0]) == numbered(1)


def test_an_empty_file_is_what_a_crash_left_of_a_create() -> None:
    disk, _ = filled(4)
    disk.write(data(256), b"")
    log, _ = opened(disk, 3)
    assert bodies(log) == numbered(4) and log.append(1, b"body-4").pos == 256


def test_a_log_may_begin_behind_files_that_were_deleted() -> None:
    disk, _ = filled(12)
    disk.remove(data(0))
    log, _ = opened(disk, 11)
    assert (log.begin, log.end) == (4, 11) and bodies(log) == numbered(12)[4:] and log.get(3) is None


def test_a_full_disk_refuses_an_append_and_nothing_has_happened() -> None:
    disk, log = filled(3)
    disk.fill(1.0)
    with pytest.raises(LogRefused, match="no room"):
        for _ in range(5):
            log.append(1, bytes(190))
    end = log.end
    disk.fill(0)
    assert log.append(1, b"next").index == end + 1
    settle(log)
    assert opened(disk, end + 1)[0].end == end + 1
