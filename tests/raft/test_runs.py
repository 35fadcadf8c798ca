"""Entries by the run: a log that got them at once is the one that got them one by one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from perseid import core
from perseid.raft.files import FileLog
from perseid.raft.log import MemoryLog, RaftLog
from perseid.raft.runs import Run, runs
from perseid.sim.disk import SimDisk
from perseid.wire.dledger import Entry

from .harness import settle

DATA, INDEX = 2_048, 32 * 8
"""Small files, so that units and checksums of a run stand in several."""


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "compiled", core.installed if request.param == "compiled" else None)


def opened(disk: SimDisk) -> FileLog:
    log = FileLog(disk, DATA, INDEX)
    log.load(-1)
    settle(log)
    return log


def run_of(log: RaftLog, *sizes: int, term: int = 1) -> Run:
    """What a leader would push that has got these bodies."""
    leader = MemoryLog()
    for index in range(log.begin, log.end + 1):
        entry = log.get(index)
        assert entry is not None
        leader._entries.append(entry)
        leader._pos = entry.pos + entry.disk_bytes
    if isinstance(log, FileLog):
        leader._pos = log.place(48 + sizes[0])
    made = [leader.append(term, bytes([65 + n]) * size) for n, size in enumerate(sizes)]
    data = b"".join(bytes(part) for entry in made for part in entry.encode())
    return Run(data, made[0].index, len(made), made[0].pos, term)


def contents(disk: SimDisk) -> dict[str, bytes]:
    names = [f"{folder}/{name}" for folder in ("data", "index", "crc") for name in disk.list(folder)]
    return {name: disk.read(name) or b"" for name in names}


@pytest.mark.parametrize("seed", range(6))
def test_a_log_is_the_same_by_runs_and_by_entries(seed: int) -> None:
    random = Random(seed)
    disks = SimDisk(Random(1)), SimDisk(Random(1))
    by_runs, by_entries = map(opened, disks)
    term = 1
    for _ in range(12):
        term += random.random() < 0.2
        run = run_of(by_runs, *random.choices([0, 1, 30, 100], k=random.randint(1, 12)), term=term)
        if by_runs.fits(run):
            by_runs.extend(run)
        else:
            for entry in run.entries():
                by_runs.append(entry.term, entry.body)
        for entry in run.entries():
            by_entries.append(entry.term, entry.body)
        assert (by_runs.end, by_runs.end_term, by_runs.pos) == (by_entries.end, term, by_entries.pos)
    assert contents(disks[0]) == contents(disks[1])
    for log in (by_runs, by_entries):
        settle(log)
        assert log.durable == log.end
    disks[0].cut_power()
    again = opened(disks[0])
    assert [again.get(index) for index in range(again.end + 1)] == [by_entries.get(i) for i in range(again.end + 1)]
    assert again.end == by_entries.end


@pytest.mark.parametrize("kept", ["memory", "files"])
def test_what_is_not_next_does_not_fit(kept: str) -> None:
    log: RaftLog = MemoryLog() if kept == "memory" else opened(SimDisk(Random(1)))
    log.extend(run_of(log, 10, 20, term=3))
    run = run_of(log, 10, 20, term=3)
    assert log.fits(run)
    for other in ({"index": run.index + 1}, {"index": run.index - 1}, {"pos": run.pos + 1}, {"term": 2}):
        assert not log.fits(replace(run, **other)), other
    log.extend(run)
    assert log.end == 3 and [entry.body for i in range(4) if (entry := log.get(i))] == [
        b"A" * 10, b"B" * 20, b"A" * 10, b"B" * 20,
    ]  # fmt: skip


def test_a_run_that_crosses_the_end_of_a_file_does_not_fit() -> None:
    log = opened(SimDisk(Random(1)))
    log.extend(run_of(log, 900, 900))
    assert not log.fits(run_of(log, 40, 100)), "the second of them does not fit in"
    run = run_of(log, 100, 40)
    assert run.pos == DATA and log.fits(run)
    log.extend(run)
    assert log.data.starts == [0, DATA] and log.end == 3


def test_a_push_carries_so_many_as_are_asked_for_and_those_of_one_file() -> None:
    log = opened(SimDisk(Random(1)))
    for size in (900, 900, 100, 40):
        log.append(1, b"x" * size)
    assert [log.text(0, most).count for most in (1, 948, 949, 1 << 20)] == [1, 1, 2, 2]
    found = log.text(2, 1 << 20)
    texts = [entry.json() for i in (2, 3) if (entry := log.get(i))]
    assert (found.count, found.json.decode()) == (2, ",".join(texts)) and found == runs().text(on_disk(log, 2, 3), 999)


def on_disk(log: FileLog, *indices: int) -> bytes:
    entries = [log.get(index) for index in indices]
    return b"".join(bytes(part) for entry in entries if entry is not None for part in entry.encode())


def test_room_is_within_a_file_and_reserved() -> None:
    log = opened(SimDisk(Random(1)))
    assert log.room() == (0, 8 * 139), "as many messages as a file of the index has units for"
    log.append(1, b"x" * 1_500)
    assert log.room() == (1_548, 1_548 + min(7 * 139, DATA - 8 - 1_548))
    log.append(1, b"x" * 440)
    at, limit = log.room()
    assert at == 1_548 + 488 and limit - at < 139


def test_whoever_watches_runs_is_shown_each_entry_once() -> None:
    class Watched(FileLog):
        seen = 0

        def _append(self, entry: Entry) -> None:
            self.seen += 1
            super()._append(entry)

        def extend(self, run: Run) -> None:
            self.seen += len(list(run.entries()))
            super().extend(run)

    log = Watched(SimDisk(Random(1)), DATA, INDEX)
    log.load(-1)
    settle(log)
    log.extend(run_of(log, 1, 2, 3))
    assert (log.seen, log.end) == (3, 2)


SECOND = (b'"batchEntry":[]', b'"batchEntry":null', b'"batch\\u0045ntry":[]', b'"entry":null,"x":"\\\\"')


@pytest.mark.parametrize("second", [b"", *SECOND])
def test_a_push_that_names_its_entries_twice_is_decoded_in_the_ordinary_way(second: bytes) -> None:
    """The last one counts, as for every decoder: a run may not be taken from the first. So it is with whatever may hide
    a name in an escape."""
    run = run_of(MemoryLog(), 10, 20, 30)
    ways = runs()
    text = ways.text(run.data, 1 << 16)
    rest = b'"commitIndex":-1,"group":"g","leaderId":"n1","localId":"n1","remoteId":"n0","term":1,"type":"APPEND"'
    body = b'{"batchEntry":[' + text.json + b"]," + rest + (b"," + second if second else b"") + b"}"
    found = ways.push(body)
    if second or core.compiled is None:
        assert found is None
    else:
        assert found is not None and found.run is not None and found.run.data == run.data and found.term == 1
