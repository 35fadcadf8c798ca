"""Files of a Java broker with 4096-byte log files: our appends give the same bytes (`store_vectors.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.disk.real import RealDisk
from perseid.store import checkpoint
from perseid.store.config import StoreConfig
from perseid.store.index import Index
from perseid.store.segments import Folders
from perseid.store.store import MessageStore
from perseid.wire.host import Host, host_from
from perseid.wire.record import Message, decode

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "store_vectors.json").read_text())
V4 = host_from("127.0.0.1:10911")
V6 = {
    "::1:50001": Host(bytes(15) + b"\1", 50001),
    "fe80:0:0:0:0:0:0:1:10911": Host(b"\xfe\x80" + bytes(13) + b"\1", 10911),
}


def message(vector: dict[str, Any]) -> Message:
    return Message(
        topic=vector["topic"],
        body=vector["body"].encode(),
        queue_id=vector["queueId"],
        born_timestamp=vector["bornTimestamp"],
        born_host=V6.get(vector["bornHost"]) or host_from(vector["bornHost"]),
        store_host=V6.get(vector["storeHost"]) or host_from(vector["storeHost"]),
        properties=bytes.fromhex(vector["properties_hex"]),
    )


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    config = StoreConfig(
        commit_log_file_bytes=4096, consume_queue_file_bytes=400, max_hash_slot_num=10, max_index_num=40
    )
    store = MessageStore(RealDisk(str(tmp_path)), config, V4)
    store.load(1_700_000_000_000)
    return store


def test_records_and_queue_units(store: MessageStore, tmp_path: Path) -> None:
    for vector in VECTORS["records"]:
        done = store.appends.append(message(vector), vector["storeTimestamp"])
        assert (done.physical_offset, done.size) == (vector["physicalOffset"], vector["size"])
        assert done.queue_offset == vector["queueOffset"]
        view = store.reads.record_at(done.physical_offset)
        assert view is not None and view.hex() == vector["record_hex"]
        assert decode(view).msg_id == vector["offsetMsgId"]
    units = (tmp_path / "consumequeue/TopicTest/0" / "0".zfill(20)).read_bytes()
    assert [units[at : at + 20].hex() for at in (0, 20, 40)] == VECTORS["consumequeue TopicTest/0 first 3 units"]


def test_blank_at_the_end_of_a_file(store: MessageStore, tmp_path: Path) -> None:
    vector = VECTORS["blank_at_end_of_file"]
    filler = vector["position"] - 91 - len("T")
    store.appends.append(Message(topic="T", body=bytes(filler)), 1)
    assert store.log.end == vector["position"]
    done = store.appends.append(Message(topic="T", body=b"the next file"), 2)
    assert done.physical_offset == 4096
    log = (tmp_path / "commitlog" / "0".zfill(20)).read_bytes()
    assert log[vector["position"] : vector["position"] + 8].hex() == vector["hex_first_8"]
    assert vector["size"] == 4096 - vector["position"]


def test_index_file_reads(tmp_path: Path) -> None:
    """Header, slots and entries of a Java file mean the same to us."""
    vector = VECTORS["index_file"]
    raw = bytes.fromhex(vector["header_40"] + vector["slots"] + vector["entry0_unused"])
    raw += b"".join(map(bytes.fromhex, vector["entries_1_to_3"]))
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "20261121075409129").write_bytes(raw.ljust(vector["file_size"], b"\0"))
    disk = RealDisk(str(tmp_path))
    index = Index(disk, Folders(disk), StoreConfig(max_hash_slot_num=10, max_index_num=40))
    index.load()
    (file,) = index.files
    assert (file.count, file.slot_count, file.end_offset) == (40, 10, 0x115C)
    assert [file.entry(n)[0] for n in (1, 2, 3)] == [0x15F5F0C4, 0x0029E6A8, 0x0029E6A9]
    assert index.end_offset == 0x115C


def test_index_entries(store: MessageStore, tmp_path: Path) -> None:
    """The first entries of the file are those of the first record's keys."""
    first = VECTORS["records"][0]
    store.appends.append(message(first), first["storeTimestamp"])
    store.close(first["storeTimestamp"])
    (path,) = (tmp_path / "index").iterdir()
    raw = path.read_bytes()
    assert len(path.name) == 17 and len(raw) == VECTORS["index_file"]["file_size"]
    entries = [raw[80 + 20 * n : 100 + 20 * n].hex() for n in range(4)]
    assert entries[0] == VECTORS["index_file"]["entry0_unused"]
    assert entries[1:] == VECTORS["index_file"]["entries_1_to_3"]


def test_checkpoint() -> None:
    vector = VECTORS["checkpoint"]
    java = bytes.fromhex(vector["first_40"]).ljust(vector["size"], b"\0")
    read = checkpoint.decode(java)
    assert (read.log_timestamp, read.queues_timestamp, read.index_timestamp) == (
        0x1A1FD1932F0,
        0x1A1FD1932F0,
        0x1A1FD1932BC,
    )
    assert (read.log_end, read.replay_from) == (-1, -1)
    assert checkpoint.encode(read) == java


def test_files_of_a_running_store(store: MessageStore, tmp_path: Path) -> None:
    """The names that Java has, but for its internal RocksDB and the backup of the abort file."""
    for vector in VECTORS["records"]:
        store.appends.append(message(vector), vector["storeTimestamp"])
    names = {"/" + str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    java = {name for name in VECTORS["files_while_running"] if "rocksdb" not in name and not name.endswith(".bak")}
    ours = {name for name in names if not name.startswith("/index/")}
    assert ours <= java
    assert {"/abort", "/lock", "/checkpoint"} <= ours
    assert (tmp_path / "lock").read_text() == VECTORS["lock_file"]
    store.close(1_800_000_000_000)
    assert not (tmp_path / "abort").exists()
