"""Wheel and log of timers by themselves, held against lists that are as simple as can be."""

from __future__ import annotations

import errno
from itertools import pairwise
from random import Random

import pytest

from perseid.base.errors import CorruptLog
from perseid.sim.disk import SimDisk, SimFile
from perseid.store.segments import Folders
from perseid.store.timer.log import BLANK_MAGIC, UNIT_BYTES, TimerLog, unit_for
from perseid.store.timer.wheel import PATH, SLOT, Slot, Wheel

PLACES, PRECISION_MS = 8, 500
BEGIN_MS = 100 * PRECISION_MS
FILE_BYTES = 4 * UNIT_BYTES + 30
"""Room for four units, and a blank of more than its head."""
Saved = dict[int, tuple[int, int, int]]
"""By the time of a slot: first unit, last unit, count."""


def wheel(disk: SimDisk) -> Wheel:
    return Wheel(disk, Folders(disk), PLACES, PRECISION_MS)


def save(one: Wheel) -> None:
    for file in one.write(one.take_changed()):
        file.sync()


def in_file(disk: SimDisk) -> Saved:
    """What the file says, of slots that are not of the past."""
    if disk.size(PATH) is None:
        return {}
    view = disk.open(PATH, PLACES * SLOT.size).view(0, PLACES * SLOT.size)
    found: Saved = {}
    for place, (time, first, last, count, _) in enumerate(SLOT.iter_unpack(view)):
        if time:
            assert time % PLACES == place, "a slot stands where its time says"
            found[time * PRECISION_MS] = first, last, count
    return found


class Book:
    """A wheel, and the units of each slot in a list."""

    def __init__(self, seed: int) -> None:
        self.random, self.disk = Random(seed), SimDisk(Random(seed))
        self.wheel = wheel(self.disk)
        self.units: dict[int, list[tuple[int, int]]] = {}
        """By time: where a unit stands, and what it counts."""
        self.end = 0

    def expected(self) -> Saved:
        return {at: (units[0][0], units[-1][0], sum(n for _, n in units)) for at, units in self.units.items()}

    def add(self) -> None:
        wanted = self.wheel.floor(BEGIN_MS + self.random.randrange(40 * PRECISION_MS))
        taken = {time // PRECISION_MS % PLACES: time for time in self.units}
        if len(taken) == PLACES and wanted not in self.units:
            return  # none is free
        at = self.wheel.free(wanted)
        times = (wanted + n * PRECISION_MS for n in range(PLACES))
        assert at == next(time for time in times if taken.get(time // PRECISION_MS % PLACES, time) == time)
        count = self.random.choice((1, 1, 0))
        self.wheel.add(at, self.end, count)
        self.units.setdefault(at, []).append((self.end, count))
        self.end += UNIT_BYTES

    def take_back(self) -> None:
        """The newest of all, as when a batch can't be stored as a whole; one that is not the last changes nothing."""
        for at, units in list(self.units.items()):
            position, count = units[-1]
            if position == self.end - UNIT_BYTES:
                previous = units[-2][0] if len(units) > 1 else self.random.choice((-1, -UNIT_BYTES))
                self.wheel.take_back(at, position - UNIT_BYTES, previous, count)
                self.wheel.take_back(at, position, previous, count)
                units.pop()
                if not units:
                    del self.units[at]
                self.end -= UNIT_BYTES
                return
        self.wheel.take_back(99 * PRECISION_MS, 0, -1, 1)

    def deliver(self) -> None:
        """A whole slot, the oldest."""
        at = self.wheel.oldest
        assert at == min(self.units, default=None)
        if at is not None:
            self.wheel.deliver_from(at, self.units.pop(at)[-1][0] + UNIT_BYTES)
        self.wheel.deliver_from(99 * PRECISION_MS, 0)

    def remove_before(self) -> None:
        limit = BEGIN_MS + self.random.randrange(10) * PRECISION_MS
        self.wheel.remove_before(limit)
        self.units = {at: units for at, units in self.units.items() if at >= limit}

    def save(self) -> None:
        save(self.wheel)
        assert not self.wheel.changed and in_file(self.disk) == self.expected()

    def load(self) -> None:
        """From what was saved; what is before a time is done with, and leaves the file with the next save."""
        save(self.wheel)
        read_ms = BEGIN_MS + self.random.choice((0, 0, 3, 10)) * PRECISION_MS
        again = wheel(self.disk)
        if self.end and any(units[-1][0] == self.end - UNIT_BYTES for at, units in self.units.items() if at >= read_ms):
            assert not wheel(self.disk).load(read_ms, self.end - UNIT_BYTES), "its log was cut"
        assert again.load(read_ms, self.end)
        self.units = {at: units for at, units in self.units.items() if at >= read_ms}
        self.wheel = again
        save(again)
        assert in_file(self.disk) == self.expected()

    def look(self) -> None:
        slots = {at: (slot.first, slot.last, slot.count) for at, slot in self.wheel.slots.items()}
        assert slots == self.expected()
        assert self.wheel.count == sum(n for units in self.units.values() for _, n in units)
        assert self.wheel.oldest == min(self.units, default=None)


@pytest.mark.parametrize("seed", range(20))
def test_a_wheel_keeps_what_came_and_is_not_gone(seed: int) -> None:
    """Also in its file, with places that are so few that slots of other times follow one another in them."""
    book = Book(seed)
    steps = [*[book.add] * 6, book.take_back, book.deliver, book.deliver, book.remove_before, book.save, book.load]
    for _ in range(120):
        book.random.choice(steps)()
        book.look()


def test_a_part_of_a_slot_that_is_delivered_does_not_come_again() -> None:
    disk = SimDisk(Random(0))
    one = wheel(disk)
    for position in (0, 52, 104):
        one.add(1_000, position, 1)
    one.deliver_from(1_000, 52)
    one.deliver_from(1_000, 0)
    assert one.slots[1_000] == Slot(52, 104, 3), "whoever delivers never goes back"
    one.deliver_from(1_000, 104)
    assert one.slots[1_000].first == 104
    save(one)
    assert in_file(disk) == {1_000: (104, 104, 3)}
    one.take_back(1_000, 104, 52, 1)
    assert not one.slots and one.count == 0, "those before it are delivered"


def test_a_wheel_is_written_anew_as_a_whole_and_forgotten_as_a_whole() -> None:
    disk = SimDisk(Random(0))
    one = wheel(disk)
    one.add(1_000, 0, 1)
    one.add(2_500, 52, 1)
    save(one)
    assert not one.changed and one.there
    one.change_all()
    assert sorted(offset for offset, _ in one.take_changed()) == [2 * SLOT.size, 5 * SLOT.size]
    one.clear()
    assert not one.changed and not one.there and one.count == 0 and one.oldest is None
    assert one.free(1_000) == 1_000 and one.free(1_000 + PLACES * PRECISION_MS) == 1_000 + PLACES * PRECISION_MS
    assert wheel(disk).load(0, 0), "without a file nothing waits"


def test_a_wheel_without_a_free_place_has_no_room_until_a_slot_is_delivered() -> None:
    one = wheel(SimDisk(Random(0)))
    times = [BEGIN_MS + number * PRECISION_MS for number in range(PLACES)]
    for number, at in enumerate(times):
        one.add(at, number * UNIT_BYTES, 1)
    later = BEGIN_MS + 3 * PLACES * PRECISION_MS
    with pytest.raises(OSError, match=r"all 8 slots of the timer wheel wait .* \(timerWheelSlots\)") as full:
        one.free(later)
    assert full.value.errno == errno.ENOSPC
    assert [one.free(at) for at in times] == times, "slots that are alive take more"
    one.deliver_from(times[5], 6 * UNIT_BYTES)
    assert one.free(later) == later + 5 * PRECISION_MS


def test_slots_of_the_past_and_of_other_places_leave_the_file() -> None:
    """The original leaves slots of the past there; a slot in a place that its time does not have is nobody's."""
    disk = SimDisk(Random(0))
    file = disk.open(PATH, PLACES * SLOT.size)
    for place, time in ((2, 2), (3, 11), (5, 6), (7, 15)):
        file.write(place * SLOT.size, SLOT.pack(time, 52 * place, 52 * place, 1, 9))
    one = wheel(disk)
    assert one.load(11 * PRECISION_MS, 1_000)
    assert {at: slot.magic for at, slot in one.slots.items()} == {11 * PRECISION_MS: 9, 15 * PRECISION_MS: 9}
    assert one.count == 2 and one.changed
    save(one)
    assert in_file(disk) == {5_500: (156, 156, 1), 7_500: (364, 364, 1)}
    assert not any(file.view(2 * SLOT.size, SLOT.size)) and not any(file.view(5 * SLOT.size, SLOT.size))


@pytest.mark.parametrize(("first", "last", "fits"), [(0, 948, True), (0, 1_000, False), (0, 999, True), (-1, 0, False)])
def test_a_slot_names_units_that_are_there(first: int, last: int, fits: bool) -> None:
    disk = SimDisk(Random(0))
    disk.open(PATH, PLACES * SLOT.size).write(2 * SLOT.size, SLOT.pack(2, first, last, 1, 0))
    assert wheel(disk).load(0, 1_000) is fits


@pytest.mark.parametrize("places", [PLACES - 1, PLACES + 1])
def test_a_file_of_another_size_is_no_wheel(places: int) -> None:
    disk = SimDisk(Random(0))
    disk.open(PATH, places * SLOT.size)
    with pytest.raises(CorruptLog, match=f"{PLACES} slots have {PLACES * SLOT.size}"):
        wheel(disk).load(0, 0)


# ---- the log ----


def log(disk: SimDisk, file_bytes: int = FILE_BYTES) -> TimerLog:
    return TimerLog(disk, Folders(disk), file_bytes)


def filled(one: TimerLog, count: int) -> list[int]:
    return [one.append(unit_for(1_000 + n, 1_000, -1, 0, 100 * n, 10, 0)) for n in range(count)]


@pytest.mark.parametrize("spare", range(16, 16 + UNIT_BYTES))
def test_units_follow_one_another_both_ways(spare: int) -> None:
    """Whatever is left in a file behind its last unit."""
    one = log(SimDisk(Random(0)), 3 * UNIT_BYTES + spare)
    places = filled(one, 8)
    assert places == [n // 3 * (3 * UNIT_BYTES + spare) + n % 3 * UNIT_BYTES for n in range(8)]
    for at, following in pairwise(places):
        assert one.after(at) == following and one.before(following) == at
        assert one.place_from(at + UNIT_BYTES) == following
    assert one.before(one.end) == places[-1]
    assert one.before(3 * UNIT_BYTES) == 2 * UNIT_BYTES, "the end, before a blank is written"
    assert one.before(3 * UNIT_BYTES + spare - 1) == 2 * UNIT_BYTES, "from within a blank"
    for n, at in enumerate(places):
        unit = one.unit(at)
        assert unit is not None and (unit.physical_offset, unit.at_ms) == (100 * n, 1_000 + n)
    for nowhere in (-1, 3 * UNIT_BYTES, one.end, places[-1] + 4 * FILE_BYTES):
        assert one.unit(nowhere) is None


def test_a_file_ends_with_a_blank_that_says_how_long_it_is() -> None:
    one = log(SimDisk(Random(0)))
    filled(one, 5)
    blank = bytes(one.segments.view(4 * UNIT_BYTES, 30))
    assert int.from_bytes(blank[:4], "big") == 30 and int.from_bytes(blank[12:16], "big", signed=True) == BLANK_MAGIC
    assert blank[4:12] == bytes(8) and blank[16:] == bytes(14)


def test_what_is_no_unit_is_none() -> None:
    one = log(SimDisk(Random(0)))
    filled(one, 2)
    file = one.segments.file(0)
    file.write(0, (UNIT_BYTES + 1).to_bytes(4, "big"))
    file.write(UNIT_BYTES + 12, (16).to_bytes(4, "big"))
    assert one.unit(0) is None and one.unit(UNIT_BYTES) is None
    file.write(UNIT_BYTES + 12, (15).to_bytes(4, "big"))
    assert one.unit(UNIT_BYTES) is not None


def test_the_file_in_which_the_log_ends_stays_though_the_next_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk had a name for the next file, and no room in it; then old messages went."""
    one = log(SimDisk(Random(0)))
    filled(one, 8)

    def full(self: SimFile, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "reserve", full)
        with pytest.raises(OSError, match="no space left"):
            filled(one, 1)
    assert one.segments.starts == [0, FILE_BYTES, 2 * FILE_BYTES]
    one.remove_before(10_000)
    assert one.segments.starts == [FILE_BYTES, 2 * FILE_BYTES] and one.start <= one.end
    assert filled(one, 1) == [2 * FILE_BYTES]
    one.remove_before(10_000)
    assert one.segments.starts == [2 * FILE_BYTES], "all before it are done with"


@pytest.mark.parametrize("kept", range(9))
def test_a_log_that_is_cut_goes_on_there(kept: int) -> None:
    disk = SimDisk(Random(0))
    one = log(disk)
    places = filled(one, 9)
    one.take_dirty()
    one.cut(places[kept])
    assert one.end == one.issued == places[kept]
    again = log(disk)
    assert again.load() == []
    assert [again.unit(at) is not None for at in places] == [n < kept for n in range(9)]
    again.end = places[kept]
    assert filled(again, 9 - kept) == places[kept:]


def test_what_was_written_is_handed_out_to_be_synced_once() -> None:
    one = log(SimDisk(Random(0)))
    assert one.take_dirty() == []
    filled(one, 9)
    assert [file.path[-3:] for file in one.take_dirty()] == ["000", "238", "476"]
    filled(one, 4)
    assert [file.path[-3:] for file in one.take_dirty()] == ["476", "714"]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (0, [("000", 0), ("238", 0), ("476", 0)]),
        (FILE_BYTES - 1, [("000", FILE_BYTES - 1), ("238", 0), ("476", 0)]),
        (FILE_BYTES, [("238", 0), ("476", 0)]),
        (2 * FILE_BYTES + UNIT_BYTES, [("476", UNIT_BYTES)]),
        (3 * FILE_BYTES, []),
    ],
)
def test_what_an_earlier_life_could_not_sync_is_written_again(begin: int, expected: list[tuple[str, int]]) -> None:
    disk = SimDisk(Random(0))
    one = log(disk)
    places = filled(one, 11)
    written: list[tuple[str, int]] = []
    disk.wrote = lambda path, offset: written.append((path[-3:], offset))
    one.write_again(begin)
    assert written == expected
    assert all(one.unit(at) is not None for at in places)


def test_files_go_whose_messages_are_all_gone() -> None:
    """The last one stays."""
    one = log(SimDisk(Random(0)))
    filled(one, 12)  # of each file the last unit: 300, 700, 1100
    for limit, starts in ((300, 3), (301, 2), (700, 2), (701, 1), (9_999, 1)):
        one.remove_before(limit)
        assert len(one.segments.starts) == starts, limit
    assert one.start == 2 * FILE_BYTES
    one.clear()
    assert (one.start, one.end, one.segments.starts) == (0, 0, [])
