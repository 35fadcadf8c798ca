"""Messages by key and by offset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import properties
from perseid.broker.consume import query
from perseid.wire.command import Command
from perseid.wire.record import decode, decode_all

QUERY, VIEW = 12, 33


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    for n in range(4):
        rig.until(NOW + 10_000 * n)
        rig.send("T", n % 2, b"%d" % n, properties(UNIQ_KEY=f"ID{n}", KEYS=f"k{n} shared", TAGS=f"Tag{n % 2}"))
    return rig


def asked(rig: Rig, key: str, **more: Any) -> Command:
    fields = {"topic": "T", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": rig.now} | more
    return rig.ask(QUERY, {name: str(value) for name, value in fields.items()})


def found(answer: Command) -> list[bytes]:
    return sorted(record.body for record in decode_all(answer.body))


def test_by_key(rig: Rig) -> None:
    answer = asked(rig, "k2")
    assert answer.code == 0 and found(answer) == [b"2"]
    assert answer.ext["indexLastUpdateTimestamp"] == str(NOW + 30_000)
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0
    assert found(asked(rig, "shared")) == [b"0", b"1", b"2", b"3"]
    assert found(asked(rig, "ID1")) == [b"1"], "unique keys are keys"


def test_by_tag(rig: Rig) -> None:
    assert found(asked(rig, "Tag1", indexType="T")) == [b"1", b"3"]
    assert asked(rig, "Tag1").code == 22


def test_times_and_counts(rig: Rig) -> None:
    assert found(asked(rig, "shared", beginTimestamp=NOW + 10_000, endTimestamp=NOW + 20_000)) == [b"1", b"2"]
    assert len(found(asked(rig, "shared", maxNum=2))) == 2
    assert asked(rig, "shared", maxNum=0).code == 22
    assert asked(rig, "shared", maxNum=-1).code == 22
    assert len(found(asked(rig, "shared", maxNum=1, _UNIQUE_KEY_QUERY="true"))) == 4, "defaultQueryMaxNum"


def test_nothing(rig: Rig) -> None:
    late = asked(rig, "k1", endTimestamp=5)
    for answer in (asked(rig, "nobody"), asked(rig, "k1", topic="Other"), asked(rig, ""), late):
        assert answer.code == 22 and answer.remark == "can not find message, maybe time range not correct"


def test_an_answer_fits_into_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, commit_log_file_bytes=4 << 20))
    for n in range(5):
        rig.send("T", 0, bytes([n]) * 300_000, properties(UNIQ_KEY=f"ID{n}", KEYS="k"))
    monkeypatch.setattr(query, "MAX_BYTES", 1_000_000)
    assert len(decode_all(asked(rig, "k").body)) == 3
    monkeypatch.setattr(query, "MAX_BYTES", 1)
    assert len(decode_all(asked(rig, "k").body)) == 1


def test_by_offset(rig: Rig) -> None:
    unit = rig.parts.store.reads.unit("T", 0, 1)
    assert unit is not None
    answer = rig.ask(VIEW, {"offset": str(unit.physical_offset)})
    assert answer.code == 0 and decode(answer.body).body == b"2"


@pytest.mark.parametrize("offset", [-1, 5, 40, 10**9, 2**63 - 1])
def test_offsets_that_hold_no_message(rig: Rig, offset: int) -> None:
    answer = rig.ask(VIEW, {"offset": str(offset)})
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
