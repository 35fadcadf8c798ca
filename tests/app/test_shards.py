"""The configuration of shards, their folders, their output. That they run is in tests/cli/test_servers.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.app import broker, shards
from perseid.base.errors import ConfigError


@pytest.fixture
def loaded(tmp_path: Path) -> broker.Loaded:
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerName=a\nlistenPort=10911\nstorePathRootDir={tmp_path}/store\nfileReservedTime=48\n")
    return broker.load(path, "127.0.0.1:9876")


def test_each_shard_has_its_own_name_port_and_folder(loaded: broker.Loaded) -> None:
    root = loaded.process.store_path_root_dir
    found = [shards.of(loaded, number, 3) for number in range(3)]
    assert [one.broker.broker_name for one in found] == ["a-0", "a-1", "a-2"]
    assert [one.broker.listen_port for one in found] == [10911, 10921, 10931]
    assert [one.process.store_path_root_dir for one in found] == [f"{root}/0", f"{root}/1", f"{root}/2"]
    assert {one.store.file_reserved_time for one in found} == {48}
    memory = {one.store.physical_memory_bytes for one in found}
    assert memory == {loaded.store.physical_memory_bytes // 3}


@pytest.mark.parametrize(("count", "why"), [(0, "--shards 3 at least"), (2, "--shards 3 at least"), (3, ""), (5, "")])
def test_no_shard_is_left_out(loaded: broker.Loaded, count: int, why: str) -> None:
    for number in range(3):
        (Path(loaded.process.store_path_root_dir) / str(number)).mkdir(parents=True)
    if not why:
        shards.check(loaded, count)
        return
    with pytest.raises(ConfigError, match=why):
        shards.check(loaded, count)


def test_a_folder_of_a_broker_without_shards_is_not_taken(loaded: broker.Loaded) -> None:
    (Path(loaded.process.store_path_root_dir) / "commitlog").mkdir(parents=True)
    shards.check(loaded, 0)
    with pytest.raises(ConfigError, match="without shards"):
        shards.check(loaded, 2)


def test_all_ports_have_to_be_ports(loaded: broker.Loaded) -> None:
    shards.check(loaded, 64)
    with pytest.raises(ConfigError, match="65542"):
        shards.check(shards.of(loaded, 5460, 5461), 4)


def test_lines_of_shards_never_run_into_each_other() -> None:
    """They share the output: a line is one write, even where Python itself buffers nothing (PYTHONUNBUFFERED)."""
    reader, writer = os.pipe2(os.O_DIRECT)  # each write is read by itself
    with open(reader, "rb", buffering=0) as packets:
        code = "from perseid.app import process; process.say('one'); process.say('two')"
        subprocess.run([sys.executable, "-u", "-c", code], stdout=writer, check=True)
        os.close(writer)
        assert [packets.read(100) for _ in range(3)] == [b"one\n", b"two\n", b""]
