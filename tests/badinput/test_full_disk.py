"""A disk without room: sends are refused, reads go on, nothing acknowledged is lost, and room ends it."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perseid.base.machine import Buffer
from perseid.client import ServerRefused
from perseid.client.blocking import BlockingAdmin
from perseid.disk.port import File
from perseid.disk.real import RealDisk
from perseid.net.ports import free_port
from perseid.store.config import StoreConfig
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import ResponseCode

from .rig import Acknowledged, Peer, config_file

SMALL = StoreConfig(
    commit_log_file_bytes=256 << 10, consume_queue_file_bytes=20 * 50, max_hash_slot_num=100, max_index_num=400
)
BODY = bytes(20_000)


class FullDisk(RealDisk):
    """A real folder that has no room for a new file, nor for a block of a sparse one, while `full`."""

    full = False

    def open(self, path: str, size: int | None = None, *, sparse: bool = False) -> Any:
        if self.full and size is not None and self.size(path) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file = super().open(path, size, sparse=sparse)
        return SparseFile(self, file) if sparse else file

    def write(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write(path, data)


class SparseFile:
    """A file whose blocks come with the first write of each page."""

    def __init__(self, disk: FullDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self._pages: set[int] = set()

    def write(self, offset: int, data: Buffer) -> None:
        pages = set(range(offset >> 12, (offset + len(data) >> 12) + 1))
        if self._disk.full and not pages <= self._pages:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.path)
        self._pages |= pages
        self._file.write(offset, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def disks() -> list[FullDisk]:
    return []


@pytest.fixture
def broker(tmp_path: Path, disks: list[FullDisk]) -> Iterator[EmbeddedBroker]:
    def disk(root: str) -> FullDisk:
        disks.append(FullDisk(root))
        return disks[-1]

    with EmbeddedBroker(tmp_path, store=SMALL, disk=disk) as running:
        yield running


def fill(at: str, topic: str, body: bytes, **fields: Any) -> tuple[list[bytes], str]:
    """Send until the broker refuses: what it took, and what it said. It answers every send."""
    taken: list[bytes] = []
    with Peer(at) as peer:
        for number in range(1_000):
            text = b"filler %d " % number + body
            answer = peer.send_message(topic, text, **fields)
            if answer.code != 0:
                assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE)
                return taken, answer.remark or ""
            taken.append(text)
    raise AssertionError("the disk was never full")


def test_no_room_for_the_next_log_file(broker: EmbeddedBroker, disks: list[FullDisk]) -> None:
    kept = Acknowledged("T")
    kept.send(broker.namesrv)
    disks[-1].full = True
    taken, why = fill(broker.address, "T", BODY)
    assert taken and os.strerror(errno.ENOSPC) in why
    kept.bodies += taken
    assert kept.read(broker.namesrv) == kept.bodies
    disks[-1].full = False
    kept.check(broker.namesrv)
    broker.stop()
    broker.start()
    kept.check(broker.namesrv)


def test_no_room_for_the_next_queue_file(broker: EmbeddedBroker, disks: list[FullDisk]) -> None:
    kept = Acknowledged("T")
    kept.send(broker.namesrv)
    disks[-1].full = True
    taken, why = fill(broker.address, "T", b"")
    assert taken and os.strerror(errno.ENOSPC) in why
    kept.bodies += taken
    assert kept.read(broker.namesrv) == kept.bodies
    disks[-1].full = False
    kept.check(broker.namesrv)


def test_no_room_for_the_index(broker: EmbeddedBroker, disks: list[FullDisk]) -> None:
    kept = Acknowledged("T")
    kept.send(broker.namesrv)
    disks[-1].full = True
    with Peer(broker.address) as peer:
        for number in range(40):  # a message without its index entry is stored all the same, or refused
            body = b"with a key %d" % number
            answer = peer.send_message("T", body, properties=f"KEYS\x01k{number}\x02UNIQ_KEY\x01{number:032X}\x02")
            if answer.code == 0:
                kept.bodies.append(body)
    assert kept.read(broker.namesrv) == kept.bodies
    disks[-1].full = False
    kept.check(broker.namesrv)
    broker.stop()
    broker.start()
    kept.check(broker.namesrv)


def test_no_room_for_a_new_topic(broker: EmbeddedBroker, disks: list[FullDisk]) -> None:
    kept = Acknowledged("T")
    kept.send(broker.namesrv)
    disks[-1].full = True
    with BlockingAdmin(broker.namesrv) as admin, pytest.raises(ServerRefused, match="could not be saved"):
        admin.create_topic("new", 1)
    kept.send(broker.namesrv)
    disks[-1].full = False
    kept.check(broker.namesrv)
    with BlockingAdmin(broker.namesrv) as admin:
        admin.create_topic("new", 1)
    broker.stop()
    broker.start()
    kept.check(broker.namesrv)
    with BlockingAdmin(broker.namesrv) as admin:
        assert "new" in admin.topic_list()


def test_a_start_on_a_full_disk_names_the_path(tmp_path: Path) -> None:
    """Of the first file that has no room, in one line: what a write of a few bytes meets, too."""
    code = (
        "import errno, os\n"
        "def full(*_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "os.posix_fallocate = full\n"
        "write = os.write\n"
        "os.write = lambda number, data: write(number, data) if number < 3 else full()\n"
        "from perseid.cli.main import main; main()"
    )
    path = config_file(tmp_path, [f"listenPort={free_port()}"])
    done = subprocess.run(
        [sys.executable, "-c", code, "broker", "-c", str(path)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("perseid: ")]
    assert "No space left on device" in line and str(tmp_path / "store") in line
