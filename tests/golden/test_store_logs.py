"""Logs that Java RocketMQ 5.5.0 wrote, read as a table: the rows are what a Java client read back.

`store_logs` has the logs alone, and the list of stored messages, of two more sets of golden folders: two replicas under
a controller, with that controller's own group, and the three members of a group.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from perseid.spark.log.options import parse
from perseid.spark.log.reading import planned, read
from perseid.spark.log.rows import COLUMNS, Chosen, RowOptions
from perseid.wire.record import SYS_COMPRESSED

HERE = Path(__file__).parent
SETS = {
    "plain": HERE / "store_plain" / "store.tar.gz",
    "controller": HERE / "store_logs" / "controller.tar.gz",
    "dledger": HERE / "store_logs" / "dledger.tar.gz",
}
FOLDERS = [
    ("plain", "b0/store"), ("controller", "b0/store"), ("controller", "b1/store"),
    ("dledger", "b0/store"), ("dledger", "b1/store"), ("dledger", "b2/store"),
]  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, packed in SETS.items():
        found[name] = tmp_path_factory.mktemp(name)
        with tarfile.open(packed) as tar:
            tar.extractall(found[name], filter="data")
    return found


def stored(name: str, folder: Path) -> dict[int, dict[str, Any]]:
    """What the client read back, by physical offset."""
    path = HERE / "store_plain" / "manifest.json" if name == "plain" else folder / "manifest.json"
    return {told["physicalOffset"]: told for told in json.loads(path.read_text())["stored"]}


def rows_of(folder: Path, **options: str) -> list[dict[str, Any]]:
    told = parse({"path": str(folder), **options})
    rows = []
    for split in planned(told, Chosen()):
        for batch in read(split, RowOptions(tuple(COLUMNS), most_bytes=told.most_bytes)):
            rows += batch.to_pylist()
    return rows


def check(row: dict[str, Any], told: dict[str, Any]) -> None:
    shown = {name: value for name, value in told["properties"].items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
    assert (row["topic"], row["queueId"], row["queueOffset"]) == (told["topic"], told["queueId"], told["queueOffset"])
    assert row["storeTimestamp"].timestamp() * 1000 == told["storeTimestamp"]
    assert row["bornTimestamp"].timestamp() * 1000 == told["bornTimestamp"]
    assert (f"/{row['storeHost']}", f"/{row['bornHost']}") == (told["storeHost"], told["bornHost"])
    assert row["sysFlag"] & ~SYS_COMPRESSED == told["sysFlag"]
    assert (row["flag"], row["size"]) == (told["flag"], told["storeSize"])
    assert row["reconsumeTimes"] == told["reconsumeTimes"]
    assert (row["bodyCrc"], row["preparedTransactionOffset"]) == (told["bodyCRC"], told["preparedTransactionOffset"])
    assert hashlib.sha256(row["body"]).hexdigest() == told["bodySha256"]
    assert dict(row["properties"]) == shown
    assert (row["keys"], row["tags"]) == (shown.get("KEYS"), shown.get("TAGS"))


@pytest.mark.parametrize(("name", "store"), FOLDERS)
def test_every_message_is_a_row_as_java_shows_it(unpacked: dict[str, Path], name: str, store: str) -> None:
    rows, told = rows_of(unpacked[name] / store), stored(name, unpacked[name])
    assert [row["_corrupt"] for row in rows if row["_corrupt"]] == []
    found = {row["physicalOffset"]: row for row in rows}
    assert len(found) == len(rows) >= len(told) > 200
    if name == "plain" or store == "b0/store":
        assert {place for place in told if place not in found} == set()
    for place in told.keys() & found.keys():
        check(found[place], told[place])
    topics = {row["topic"] for row in rows}
    assert {"GoldenA", "GoldenB", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= topics


@pytest.mark.parametrize(("name", "store"), FOLDERS)
def test_small_splits_give_the_same_rows(unpacked: dict[str, Path], name: str, store: str) -> None:
    whole = rows_of(unpacked[name] / store)
    assert rows_of(unpacked[name] / store, splitBytes="7000") == whole
    assert rows_of(unpacked[name] / store, splitBytes="3000", maxRecordBytes="16k") == whole


def test_replicas_have_the_same_rows(unpacked: dict[str, Path]) -> None:
    """But for what each put back at its own stop, and the address of the one that stored it."""
    for name, stores in (("controller", ["b0/store", "b1/store"]), ("dledger", ["b0/store", "b1/store", "b2/store"])):
        sides = [{r["physicalOffset"]: (r["bodyCrc"], r["topic"]) for r in rows_of(unpacked[name] / s)} for s in stores]
        common = set.intersection(*map(set, sides))
        assert len(common) >= 200
        assert all(side[place] == sides[0][place] for side in sides for place in common)


def test_a_controllers_own_group_has_entries_that_are_no_messages(unpacked: dict[str, Path]) -> None:
    rows = rows_of(unpacked["controller"] / "ctl0" / "store" / "dledger-n0")
    assert rows and all("its body is no message" in row["_corrupt"] for row in rows)
    assert [f"entry {n} of term" in row["_corrupt"] for n, row in enumerate(rows)] == [True] * len(rows)
