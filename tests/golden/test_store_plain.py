"""A store folder that Java RocketMQ 5.5.0 wrote: read it, take it over, and write the same bytes.

`store_plain/manifest.json` tells what was sent and what a Java client read back; the client adds MIN_OFFSET and
MAX_OFFSET, and shows compressed bodies inflated, with bit 0 of the sysFlag cleared.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from perseid.base.errors import CorruptLog
from perseid.disk.real import RealDisk
from perseid.store.config import StoreConfig
from perseid.store.results import ReadStatus
from perseid.store.store import MessageStore
from perseid.wire.compression import decompress
from perseid.wire.host import host_from
from perseid.wire.record import SYS_COMPRESSED, Message, Record, decode, decode_all

HERE = Path(__file__).parent / "store_plain"
MANIFEST: dict[str, Any] = json.loads((HERE / "manifest.json").read_text())
STORED: list[dict[str, Any]] = MANIFEST["stored"]
SETTINGS = MANIFEST["settings"]
HOST = host_from("127.0.0.1:10911")
NOW = max(m["storeTimestamp"] for m in STORED) + 60_000


def config(**more: Any) -> StoreConfig:
    return StoreConfig(
        commit_log_file_bytes=SETTINGS["mappedFileSizeCommitLog"],
        consume_queue_file_bytes=SETTINGS["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SETTINGS["maxHashSlotNum"],
        max_index_num=SETTINGS["maxIndexNum"],
        **more,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(HERE / "store.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "b0" / "store"


def contents(folder: Path, *parts: str) -> dict[str, bytes]:
    """Path below the store → bytes, of the given sub-folders."""
    files = [f for part in parts for f in sorted((folder / part).rglob("*")) if f.is_file()]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def opened(folder: Path) -> MessageStore:
    store = MessageStore(RealDisk(str(folder)), config(), HOST)
    store.load(NOW)
    store.validate()
    return store


def log_records(store: MessageStore) -> list[Record]:
    return list(store.log.walk(store.log.start))


def check_same(record: Record, told: dict[str, Any]) -> None:
    """A record is what the Java client showed of it."""
    body = record.body
    if record.sys_flag & SYS_COMPRESSED:
        body = decompress(body, record.sys_flag)
    shown = {k: v for k, v in told["properties"].items() if k not in ("MIN_OFFSET", "MAX_OFFSET")}
    assert record.topic == told["topic"]
    assert (record.queue_id, record.queue_offset) == (told["queueId"], told["queueOffset"])
    assert (record.physical_offset, record.size) == (told["physicalOffset"], told["storeSize"])
    assert (record.born_timestamp, record.store_timestamp) == (told["bornTimestamp"], told["storeTimestamp"])
    assert (f"/{record.born_host}", f"/{record.store_host}") == (told["bornHost"], told["storeHost"])
    assert record.sys_flag & ~SYS_COMPRESSED == told["sysFlag"]
    assert (record.flag, record.body_crc) == (told["flag"], told["bodyCRC"])
    assert record.reconsume_times == told["reconsumeTimes"]
    assert record.prepared_transaction_offset == told["preparedTransactionOffset"]
    assert record.msg_id == told["offsetMsgId"]
    assert hashlib.sha256(body).hexdigest() == told["bodySha256"]
    assert len(body) == told["bodySize"]
    assert record.props == shown


def test_every_message_reads_back_as_java_shows_it(folder: Path) -> None:
    store = opened(folder)
    for told in STORED:
        unit = store.reads.unit(told["topic"], told["queueId"], told["queueOffset"])
        assert unit is not None and unit[:2] == (told["physicalOffset"], told["storeSize"])
        view = store.reads.record_at(unit.physical_offset)
        assert view is not None
        check_same(decode(view), told)


def test_queues_read_from_end_to_end(folder: Path) -> None:
    store = opened(folder)
    seen = []
    for topic, queue_id in store.queues.table:
        offset = store.reads.min_offset(topic, queue_id)
        while offset < store.reads.max_offset(topic, queue_id):
            found = store.reads.read(topic, queue_id, offset, 5, 1 << 20)
            assert found.status is ReadStatus.FOUND
            records = decode_all(b"".join(found.buffers))
            assert [r.queue_offset for r in records] == list(range(offset, found.next_offset))
            seen += [(r.topic, r.queue_id, r.queue_offset) for r in records]
            offset = found.next_offset
    told = {(m["topic"], m["queueId"], m["queueOffset"]) for m in STORED}
    assert len(seen) == len(set(seen)) == len(log_records(store))
    assert told < set(seen)  # at its stop the broker put some half messages back, after the client had looked


def test_sent_messages_are_where_java_said(folder: Path) -> None:
    store = opened(folder)
    places = 0
    for sent in MANIFEST["sent"]:
        for place in sent.get("records", [sent] if "physicalOffset" in sent else []):
            view = store.reads.record_at(place["physicalOffset"])
            assert view is not None
            record = decode(view)
            assert record.store_timestamp == place["storeTimestamp"]
            assert record.unique_key == sent["msgId"]
            places += 1
    assert places >= len(MANIFEST["sent"])


def test_keys_are_found_in_javas_index(folder: Path) -> None:
    store = opened(folder)
    asked = 0
    for told in STORED:
        for key in [told["properties"].get("UNIQ_KEY"), *(told.get("keys") or "").split()]:
            if key:
                found = store.reads.query(told["topic"], key, 64, 0, NOW).records
                assert told["physicalOffset"] in [decode(view).physical_offset for view in found]
                asked += 1
    assert asked > 200


def test_taking_over_a_clean_folder_changes_nothing_in_it(folder: Path) -> None:
    parts = ("commitlog", "consumequeue", "index", "config")
    before = contents(folder, *parts)
    store = opened(folder)
    store.close(NOW)
    assert contents(folder, *parts) == before
    assert not (folder / "abort").exists()


@pytest.mark.parametrize("lost", [[], ["consumequeue"], ["index"], ["consumequeue", "index"], ["checkpoint"]])
def test_recovery_after_a_crash_gives_javas_bytes_again(folder: Path, lost: list[str]) -> None:
    """Queues and index that are gone are built anew, byte for byte (the index but for its files' names)."""
    before, index = contents(folder, "commitlog", "consumequeue"), list(contents(folder, "index").values())
    for part in lost:
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()
    (folder / "abort").write_text("4711")
    store = opened(folder)
    store.close(NOW)
    assert contents(folder, "commitlog", "consumequeue") == before
    assert list(contents(folder, "index").values()) == index


def test_the_same_messages_make_the_same_files(folder: Path, tmp_path: Path) -> None:
    """Our appends of what Java stored: log, queues and index are the same bytes."""
    java = opened(folder)
    ours = MessageStore(RealDisk(str(tmp_path / "ours")), config(), HOST)
    ours.load(NOW)
    for r in log_records(java):
        ours.appends.append(
            Message(
                topic=r.topic, body=r.body, queue_id=r.queue_id, flag=r.flag, sys_flag=r.sys_flag,
                born_timestamp=r.born_timestamp, born_host=r.born_host, store_host=r.store_host,
                reconsume_times=r.reconsume_times, prepared_transaction_offset=r.prepared_transaction_offset,
                properties=r.properties,
            ),
            r.store_timestamp,
        )  # fmt: skip
    ours.validate()
    for part in ("commitlog", "consumequeue"):
        theirs = contents(folder, part)
        same = contents(tmp_path / "ours", part)
        assert {name: same[name] for name in same} == {name: theirs[name] for name in same}
        assert all(not any(theirs[name]) for name in theirs.keys() - same.keys())
    java.close(NOW)
    ours.close(NOW)
    assert list(contents(tmp_path / "ours", "index").values()) == list(contents(folder, "index").values())


# ---- a log in another place (storePathCommitLog) ----


def elsewhere(folder: Path) -> tuple[RealDisk, Path]:
    """Java's folder with the log at another place, as its `storePathCommitLog` would have it."""
    place = folder.parent / "disk2" / "log"
    if not place.exists():
        place.parent.mkdir()
        shutil.move(folder / "commitlog", place)
    return RealDisk(str(folder), {"commitlog": str(place)}), place


@pytest.mark.parametrize("lost", [[], ["consumequeue", "index"], ["checkpoint"]])
def test_a_log_in_another_place_is_taken_over_recovered_and_written(folder: Path, lost: list[str]) -> None:
    """Byte for byte, after a crash too, and nothing of the log comes into the usual place."""
    log, queues = contents(folder, "commitlog"), contents(folder, "consumequeue")
    disk, place = elsewhere(folder)
    for part in lost:
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()
    (folder / "abort").write_text("4711")
    store = MessageStore(disk, config(), HOST)
    store.load(NOW)
    store.validate()
    assert {f"commitlog/{name}": data for name, data in contents(place, "").items()} == log
    assert contents(folder, "consumequeue") == queues
    for told in STORED:
        view = store.reads.record_at(told["physicalOffset"])
        assert view is not None
        check_same(decode(view), told)
    end, big = store.log.end, bytes(SETTINGS["mappedFileSizeCommitLog"] // 4)
    for _ in range(8):
        too_big = Message(topic="T", body=big, queue_id=0, born_timestamp=NOW, born_host=HOST, store_host=HOST)
        store.appends.append(too_big, NOW)
    store.close(NOW)
    assert len(list(place.iterdir())) > len(log), "its next files are there too"
    assert not (folder / "commitlog").exists()
    again = MessageStore(elsewhere(folder)[0], config(), HOST)
    again.load(NOW)
    assert again.log.end > end + 8 * len(big)
    again.close(NOW)


def test_without_the_key_a_store_whose_log_is_elsewhere_is_refused(folder: Path) -> None:
    """The operator forgot the line: what was durable is not there, and nothing is cut."""
    before = contents(folder, "consumequeue")
    _, place = elsewhere(folder)
    log = contents(place, "")
    with pytest.raises(CorruptLog):
        opened(folder)
    assert contents(folder, "consumequeue") == before and contents(place, "") == log
