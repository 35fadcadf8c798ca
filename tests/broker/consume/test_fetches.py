"""Pulls of what is not in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.fast_path.test_quick_pulls import pull_of
from broker.harness import SMALL, Rig
from broker.streams import send_of
from perseid.base.machine import Closed, Frames, Opened
from perseid.broker.consume import fetches
from perseid.disk.real import RealFile
from perseid.store import reading
from perseid.wire.codes import ResponseCode
from perseid.wire.record import decode

COUNT = 200


class Memory:
    """Which files are in memory: what a test says instead of the kernel."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cold: set[str] = set()
        self.asked: list[str] = []
        patch.setattr(RealFile, "resident", lambda file, offset, length: self._resident(file.path))
        patch.setattr(RealFile, "fetch", lambda file, offset, length: self.cold.discard(file.path))

    def _resident(self, path: str) -> bool:
        self.asked.append(path)
        return path not in self.cold


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(monkeypatch)


@pytest.fixture
def rig(tmp_path: Path, memory: Memory) -> Rig:
    """A broker with 200 messages, the last few of them hot."""
    made = Rig(tmp_path, store=replace(SMALL, hot_bytes=4_000), enable_property_filter=True)
    made.connect(1)
    made.handle(Frames(1, b"".join(send_of(n) for n in range(COUNT))))
    made.sent.clear()
    return made


LOG = "commitlog/00000000000000000000"
UNITS = "consumequeue/Plain/0/00000000000000000000"


def test_a_pull_waits_for_units_and_then_for_records(rig: Rig, memory: Memory) -> None:
    memory.cold = {LOG, UNITS}
    rig.handle(Frames(1, pull_of(1000, commit_offset=7)))
    assert 1 not in rig.sent and [part[0].path for part in rig.fetches[0].parts] == [UNITS]
    assert rig.parts.offsets.query("Plain", "g", 0) == 7
    rig.fetch()
    (answer,) = rig.sent[1]
    assert (answer.opaque, answer.code, answer.ext["nextBeginOffset"]) == (1000, 0, "32")
    assert decode(answer.body).queue_offset == 0
    assert not rig.fetches and not rig.parts.fetches.count, "it waits once, whatever else is missing"
    rig.handle(Frames(1, pull_of(1001, 32)))
    (wanted,) = rig.fetches[0].parts
    assert wanted[0].path == LOG and wanted[2] == len(answer.body), "the next 32 messages, as long as those"
    rig.fetch()
    assert rig.sent[1][-1].ext["nextBeginOffset"] == "64"


def test_what_is_in_memory_is_answered_at_once_and_what_is_hot_without_asking(rig: Rig, memory: Memory) -> None:
    rig.handle(Frames(1, pull_of(1000)))
    assert rig.sent[1][-1].code == 0 and LOG in memory.asked
    memory.asked.clear()
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1001, COUNT - 3)))
    assert rig.sent[1][-1].code == 0 and LOG not in memory.asked


def test_a_subscription_waits_for_the_records_that_it_wants(rig: Rig, memory: Memory) -> None:
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1000, subscription="Nothing")))
    assert rig.sent[1][-1].code == ResponseCode.PULL_RETRY_IMMEDIATELY and not rig.fetches


@pytest.mark.parametrize("expression", ["a IS NULL", "a IS NOT NULL"])
def test_an_expression_waits_for_the_records_that_it_may_look_at(rig: Rig, memory: Memory, expression: str) -> None:
    """In both ways: the second pull is prepared."""
    said = {"expression_type": "SQL92", "subscription": expression}
    for opaque, offset in ((1000, 0), (1001, 0), (1002, 40)):
        memory.cold = {LOG}
        rig.handle(Frames(1, pull_of(opaque, offset, **said)))
        ((file, at, size),) = rig.fetches[0].parts
        assert file.path == LOG and at + size == rig.parts.store.log.end, "not 32 records alone"
        assert not rig.sent.get(1)
        rig.fetch()
        assert rig.sent.pop(1)[-1].opaque == opaque and not rig.fetches
        rig.handle(Frames(1, pull_of(opaque, offset, **said)))
        assert rig.sent.pop(1)[-1].opaque == opaque, "what is there is answered at once"


def test_a_commit_counts_once(rig: Rig, memory: Memory) -> None:
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1000, commit_offset=7)))
    memory.cold.clear()
    rig.handle(Frames(1, pull_of(1001, commit_offset=9)))
    rig.fetch()
    assert [a.opaque for a in rig.sent[1]] == [1001, 1000] and rig.parts.offsets.query("Plain", "g", 0) == 9


def test_what_the_disk_cannot_read_is_refused(rig: Rig, memory: Memory) -> None:
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1000)))
    rig.fetch(fails=True)
    assert rig.sent[1][-1].code == ResponseCode.SYSTEM_ERROR and "disk" in (rig.sent[1][-1].remark or "")
    assert not rig.parts.fetches.count


def test_a_connection_that_closed_meanwhile_gets_nothing(rig: Rig, memory: Memory) -> None:
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1000)))
    rig.handle(Closed(1, "gone"))
    rig.handle(Opened(1, "10.0.0.1:6000", "10.0.0.9:10911", "main"))
    rig.fetch()
    assert 1 not in rig.sent and not rig.parts.fetches.count


def test_no_more_than_a_limit_wait(rig: Rig, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "MAX_FETCHING", 2)
    memory.cold = {LOG}
    for opaque in (1000, 1001, 1002):
        rig.handle(Frames(1, pull_of(opaque)))
    assert [(a.opaque, a.code) for a in rig.sent[1]] == [(1002, ResponseCode.SYSTEM_BUSY)] and len(rig.fetches) == 2


def test_records_far_apart_are_fetched_one_by_one(rig: Rig, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SPAN_BYTES", 10)
    memory.cold = {LOG}
    rig.handle(Frames(1, pull_of(1000, 32)))
    parts = rig.fetches[0].parts
    assert len(parts) == 32 and len({size for _, _, size in parts}) == 1
    assert all(decode(file.view(at, size)).queue_offset == 32 + n for n, (file, at, size) in enumerate(parts))
