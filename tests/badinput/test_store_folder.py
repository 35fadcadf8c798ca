"""Store folders that were damaged: a start on what is whole, or one line that names file and offset."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.combinations import at_each_change

from perseid.base.errors import PerseidError
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker
from perseid.testing.ports import free_port

from .rig import SMALL, Acknowledged, Process, config_file

STORE = replace(
    SMALL_STORE,
    commit_log_file_bytes=int(SMALL["mappedFileSizeCommitLog"]),
    consume_queue_file_bytes=int(SMALL["mappedFileSizeConsumeQueue"]),
    max_hash_slot_num=int(SMALL["maxHashSlotNum"]),
    max_index_num=int(SMALL["maxIndexNum"]),
)
FIRST, SECOND, THIRD = (f"{n << 20:020d}" for n in range(3))


def filled(folder: Path) -> Acknowledged:
    """A store of three log files, left by a clean stop."""
    kept = Acknowledged("T")
    with EmbeddedBroker(folder, store=STORE) as broker:
        kept.send(broker.namesrv, 25, 100_000)
    assert len(list((folder / "store" / "commitlog").iterdir())) == 3
    return kept


def end_of_log(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def starts(folder: Path, kept: Acknowledged) -> None:
    """A broker starts on the folder, has all that was acknowledged, and takes more; twice."""
    for _ in range(2):
        with EmbeddedBroker(folder, store=STORE) as broker:
            kept.check(broker.namesrv)


def refused(folder: Path) -> str:
    """What a process says that can't start on the folder; it leaves every byte of the log as it was."""
    log = folder / "store" / "commitlog"
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    path = config_file(folder, [f"listenPort={free_port((0, -2))}"])
    with Process("broker", "-c", str(path), home=folder) as broker:
        said = broker.refused()
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
    return said


GARBAGE = {
    "random bytes": bytes(range(1, 256)) * 4,
    "half a record": b"",
    "a size that lies": b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" + bytes(100) + b"\1",
    "a size of zero with a magic": b"\0\0\0\0\xda\xa3\x20\xa7" + bytes(100) + b"\1",
}


@pytest.mark.parametrize("garbage", at_each_change(GARBAGE, "random bytes", "a size that lies"))
def test_a_corrupt_tail_behind_what_was_acknowledged(tmp_path: Path, garbage: bytes) -> None:
    kept = filled(tmp_path)
    path = tmp_path / "store" / "commitlog" / THIRD
    data = bytearray(path.read_bytes())
    end = end_of_log(path) + 1  # the last property ends with a byte of its own
    tail = garbage or bytes(data[: end // 5 * 2 // 3])
    data[end : end + len(tail)] = tail
    path.write_bytes(data)
    (tmp_path / "store" / "abort").write_text("1")
    starts(tmp_path, kept)


def test_a_corrupt_record_among_what_was_durable(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "store" / "commitlog" / THIRD
    data = bytearray(path.read_bytes())
    at = end_of_log(path) - 50_000
    data[at] ^= 0xFF
    path.write_bytes(data)
    said = refused(tmp_path)
    found = re.search(r"commitlog/(\d{20}): at byte (\d+): ", said)
    assert found and found[1] == THIRD and int(found[2]) <= at, said
    assert "truncateCorruptLog" in said
    assert refused(tmp_path) == said  # and again, as long as nobody decides


def test_a_corrupt_log_that_its_owner_gives_up(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    path = tmp_path / "store" / "commitlog" / THIRD
    data = bytearray(path.read_bytes())
    data[end_of_log(path) - 50_000] ^= 0xFF
    path.write_bytes(data)
    with EmbeddedBroker(tmp_path, store=replace(STORE, truncate_corrupt_log=True)) as broker:
        assert kept.read(broker.namesrv) == kept.bodies[:-1]


@pytest.mark.parametrize("name", at_each_change((SECOND, THIRD), SECOND))
def test_a_missing_log_file(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / "store" / "commitlog" / name).rename(tmp_path / name)
    said = refused(tmp_path)
    assert f"commitlog/{name}: at byte " in said and "missing" in said
    (tmp_path / name).rename(tmp_path / "store" / "commitlog" / name)


def test_a_missing_log_file_that_was_brought_back(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    path = tmp_path / "store" / "commitlog" / SECOND
    path.rename(tmp_path / SECOND)
    refused(tmp_path)
    (tmp_path / SECOND).rename(path)
    starts(tmp_path, kept)


RESIZED: dict[str, Callable[[bytes], bytes]] = {
    "shorter": lambda data: data[:-4096],
    "longer": lambda data: data + bytes(4096),
}


@pytest.mark.parametrize("resize", RESIZED.values(), ids=RESIZED.keys())
@pytest.mark.parametrize("name", at_each_change((FIRST, THIRD), FIRST))
def test_a_resized_log_file(tmp_path: Path, name: str, resize: Callable[[bytes], bytes]) -> None:
    kept = filled(tmp_path)
    path = tmp_path / "store" / "commitlog" / name
    whole = path.read_bytes()
    path.write_bytes(resize(whole))
    said = refused(tmp_path)
    assert f"commitlog/{name}: at byte " in said and "mappedFileSizeCommitLog" in said
    path.write_bytes(whole)
    starts(tmp_path, kept)


@pytest.mark.parametrize("folder", ["consumequeue", "index", "checkpoint", "config"])
def test_what_the_log_can_bring_back_may_be_gone(tmp_path: Path, folder: str) -> None:
    kept = filled(tmp_path)
    (tmp_path / "store" / folder).rename(tmp_path / "gone")
    if folder == "config":  # the topics are not in the log
        with EmbeddedBroker(tmp_path, store=STORE) as broker:
            broker.create_topic("T", 1)
    starts(tmp_path, kept)


@pytest.mark.parametrize(
    "path", at_each_change(("checkpoint", "config/topics.json", "config/consumerOffset.json"), "config/topics.json")
)
@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"{"], ids=["empty", "zeros", "cut"])
def test_a_spoilt_state_file(tmp_path: Path, path: str, content: bytes) -> None:
    kept = filled(tmp_path)
    (tmp_path / "store" / path).write_bytes(content)
    if path.endswith("topics.json"):
        with EmbeddedBroker(tmp_path, store=STORE) as broker:
            broker.create_topic("T", 1)
    starts(tmp_path, kept)


def test_a_locked_folder(tmp_path: Path) -> None:
    kept = Acknowledged("T")
    with EmbeddedBroker(tmp_path, store=STORE) as broker:
        kept.send(broker.namesrv)
        path = config_file(tmp_path, [f"listenPort={free_port((0, -2))}"])
        with Process("broker", "-c", str(path), home=tmp_path) as second:
            said = second.refused()
        assert said == f"perseid: {tmp_path}/store/lock: another process uses the folder; stop it or choose another"
        with pytest.raises(PerseidError, match="this process uses the folder already"):
            EmbeddedBroker(tmp_path, store=STORE).start()
        kept.check(broker.namesrv)
    starts(tmp_path, kept)


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    path = config_file(tmp_path, [f"listenPort={free_port((0, -2))}"])
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        said = broker.refused()
    assert said.startswith(f"perseid: {tmp_path}/store: can't be used as a folder: ")


@pytest.mark.parametrize("name", at_each_change(("rdb", "topics"), "rdb"))
def test_tables_in_rocksdb(tmp_path: Path, name: str) -> None:
    """A folder of a broker with configManagerVersion=v2, or with queues in RocksDB: all topics and offsets would be
    gone from view. Once they are exported and moved away, it opens."""
    kept = filled(tmp_path)
    tables = tmp_path / "store" / "config" / name
    tables.mkdir()
    (tables / "CURRENT").write_text("MANIFEST-000004\n")
    assert f"config/{name}: RocketMQ keeps this folder's topics, groups and offsets in RocksDB" in refused(tmp_path)
    tables.rename(tmp_path / name)
    starts(tmp_path, kept)
