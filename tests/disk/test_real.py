"""The real disk: what the port promises, on a folder of this machine."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseid.base.errors import LocalProtocolError, StoreLocked
from perseid.disk import real
from perseid.disk.real import PIECE_BYTES, RealDisk


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path))


def test_a_new_file_has_its_size_its_blocks_and_zeros(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open("a/b/file", 100_000)
    assert file.size == 100_000 and file.path == "a/b/file"
    assert not any(file.view(0, 100_000))
    assert (tmp_path / "a/b/file").stat().st_blocks * 512 >= 100_000


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="asks the kernel")
@pytest.mark.parametrize("sparse", [True, False])
def test_it_knows_what_was_never_written(disk: RealDisk, sparse: bool) -> None:
    file = disk.open("file", 1 << 24, sparse=sparse)
    file.write(9_000_000, b"abc")
    (begin, end), *more = file.written(0)
    assert begin <= 9_000_000 < 9_000_003 <= end < begin + (1 << 20) and not more
    file.sync()
    assert file.written(8_999_999)[0][0] <= 9_000_000, "durable or not"
    assert file.written(9_000_001)[0] == (9_000_001, end) and file.written(end) == [] == file.written(1 << 24)


def test_a_write_is_seen_at_once_by_views_and_by_others(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open("file", 8192)
    early = file.view(4094, 4)
    file.write(4094, b"abcd")
    assert early == b"abcd" and file.view(4094, 100)[:4] == b"abcd"
    assert (tmp_path / "file").read_bytes()[4094:4098] == b"abcd"
    file.write(0, bytearray(b"x"))
    file.write(1, memoryview(b"y"))
    assert file.view(0, 2) == b"xy"


def test_views_are_read_only_and_short_at_the_end(disk: RealDisk) -> None:
    file = disk.open("file", 10)
    assert len(file.view(8, 100)) == 2
    with pytest.raises(TypeError):
        file.view(0, 1)[0] = 1


@pytest.mark.parametrize(("offset", "data"), [(-1, b"a"), (10, b"a"), (5, b"abcdef")])
def test_a_write_beyond_the_file_is_refused(disk: RealDisk, offset: int, data: bytes) -> None:
    file = disk.open("file", 10)
    with pytest.raises(LocalProtocolError, match="file"):
        file.write(offset, data)


def test_an_existing_file_keeps_its_size_and_contents(disk: RealDisk) -> None:
    disk.write("file", b"0123456789")
    file = disk.open("file", 99)
    assert file.size == 10 and file.view(0, 10) == b"0123456789"


def test_missing_and_empty_files_cannot_be_opened(disk: RealDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("missing")
    disk.write("empty", b"")
    with pytest.raises(OSError, match="empty"):
        disk.open("empty", 10)


def test_sync_and_close(disk: RealDisk) -> None:
    file = disk.open("folder/file", 4096)
    file.write(0, b"kept")
    view = file.view(0, 4)
    file.sync()
    disk.sync_dir("folder")
    disk.sync_dir("")
    file.close()
    assert view == b"kept"
    file.sync()  # of a file that was let go: nothing is left to do
    assert disk.open("folder/file").view(0, 4) == b"kept"


def test_a_sync_that_runs_while_the_file_is_closed_keeps_its_descriptor(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("file", 4096)
    number = []

    def close_meanwhile(descriptor: int) -> None:
        file.close()
        number.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(real.os, "fdatasync", close_meanwhile)
    file.sync()
    assert number == [4096]


def test_a_sparse_file_gets_its_blocks_where_it_is_written(disk: RealDisk, tmp_path: Path) -> None:
    size = 40 * PIECE_BYTES
    file = disk.open("index", size, sparse=True)
    assert (tmp_path / "index").stat().st_blocks == 0
    file.write(20 * PIECE_BYTES - 2, b"over")
    assert 0 < (tmp_path / "index").stat().st_blocks * 512 <= 3 * PIECE_BYTES
    assert file.view(20 * PIECE_BYTES - 2, 4) == b"over"
    again = disk.open("index")
    again.write(30 * PIECE_BYTES, b"!")
    assert file.view(30 * PIECE_BYTES, 1) == b"!"


def full(number: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_an_error_at_creation_and_leaves_nothing(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real.os, "posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        disk.open("folder/log", 4096)
    assert caught.value.errno == errno.ENOSPC
    assert disk.list("folder") == []


def test_a_full_disk_is_an_error_of_a_write_to_a_sparse_file(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("index", 4096, sparse=True)
    monkeypatch.setattr(real.os, "posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        file.write(0, b"a")
    assert caught.value.errno == errno.ENOSPC


def test_what_was_reserved_can_be_written_when_the_disk_is_full(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("queue", 4 * PIECE_BYTES, sparse=True)
    file.reserve(PIECE_BYTES - 1, 2)
    monkeypatch.setattr(real.os, "posix_fallocate", full)
    file.write(0, bytes(2 * PIECE_BYTES))
    file.reserve(0, 2 * PIECE_BYTES)
    with pytest.raises(OSError):
        file.reserve(0, 2 * PIECE_BYTES + 1)


def test_blocks_are_written_where_the_system_cannot_allocate(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(number: int, offset: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(real.os, "posix_fallocate", unsupported)
    file = disk.open("log", PIECE_BYTES + 5)
    file.write(PIECE_BYTES, b"tail!")
    assert (Path(disk.root) / "log").stat().st_blocks * 512 >= PIECE_BYTES
    assert bytes(file.view(PIECE_BYTES, 5)) == b"tail!"


def test_more_than_is_free_is_refused_before_any_of_it_is_taken(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that can't give all gives what there is: the disk would be full for everybody until the file is gone."""
    monkeypatch.setattr(real.os, "posix_fallocate", lambda *_: pytest.fail("asked the kernel for it"))
    with pytest.raises(OSError, match="are free") as caught:
        disk.open("log", disk.usage().total * 2)
    assert caught.value.errno == errno.ENOSPC
    assert disk.list("") == []


def test_names(disk: RealDisk) -> None:
    disk.write("config/topics.json", b"{}")
    disk.write("b", b"1")
    assert disk.list("") == ["b", "config/"]
    assert disk.list("config") == ["topics.json"]
    assert disk.list("nowhere") == [] and disk.list("b") == []
    assert disk.size("b") == 1 and disk.size("config") is None and disk.size("nowhere") is None
    assert disk.read("b") == b"1" and disk.read("nowhere") is None
    disk.rename("b", "config/topics.json")
    assert disk.read("config/topics.json") == b"1" and disk.size("b") is None
    assert disk.modified_ms("config/topics.json") > 1_600_000_000_000
    disk.sync_file("config/topics.json")
    disk.remove("nowhere")
    disk.remove("config")
    assert disk.list("") == []


@pytest.mark.parametrize("path", ["../outside", "a/../../b", "/etc/passwd"])
def test_no_path_leaves_the_folder(disk: RealDisk, path: str) -> None:
    with pytest.raises(LocalProtocolError, match="leaves the folder"):
        disk.read(path)


def test_usage(disk: RealDisk) -> None:
    usage = disk.usage()
    assert 0 <= usage.free <= usage.total and usage.total > 0


def test_a_locked_folder_names_the_file(disk: RealDisk, tmp_path: Path) -> None:
    disk.lock("lock")
    assert (tmp_path / "lock").read_text() == "lock"
    other = RealDisk(str(tmp_path))
    with pytest.raises(StoreLocked, match=str(tmp_path / "lock")):
        other.lock("lock")
    disk.unlock("lock")
    other.lock("lock")
    other.unlock("lock")


def test_a_folder_locked_by_another_process(disk: RealDisk, tmp_path: Path) -> None:
    """The lock is the one that Java takes: on the first byte of the file."""
    script = (
        "import fcntl, os, sys\n"
        f"n = os.open({str(tmp_path / 'lock')!r}, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(n, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match="another process"):
            disk.lock("lock")
        child.stdin.close()
        child.wait(10)
    disk.lock("lock")
    disk.unlock("lock")


def test_what_was_dropped_from_memory_is_fetched_again(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "WARM_S", 0.0)
    size = 1 << 20
    file = disk.open("cold/file", size)
    file.write(0, bytes(range(256)) * (size // 256))
    assert file.resident(0, size)
    with (tmp_path / "cold" / "file").open("rb") as other:
        os.fsync(other.fileno())
        os.posix_fadvise(other.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
    if file.resident(size // 2, 100):
        pytest.skip("this file system (tmpfs is one) keeps what it was told to drop, or can't tell")
    file.fetch(size // 2, 100)
    assert file.resident(size // 2, 100)
    assert file.view(size // 2, 4) == b"\0\1\2\3"


def test_beyond_the_end_there_is_nothing_to_wait_for(disk: RealDisk) -> None:
    file = disk.open("file", 5_000)
    assert file.resident(4_000, 10_000) and file.resident(5_000, 1)
    file.fetch(4_000, 10_000)
    file.close()
    file.fetch(0, 10)
    assert file.resident(0, 10)


def test_where_the_kernel_can_not_tell_all_is_taken_to_be_there(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("file", 5_000)

    monkeypatch.setattr(real, "WARM_S", 0.0)
    why = errno.EOPNOTSUPP

    def refuse(*_: object) -> int:
        raise OSError(why, "not here")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.resident(0, 10)
    why = errno.EIO
    assert not file.resident(0, 10), "the reader thread finds out what is wrong, and can say so"
    with pytest.raises(OSError, match="not here"):
        file.fetch(0, 10)
    monkeypatch.setattr(real, "_NO_WAIT", None)
    assert file.resident(0, 10)


def test_a_chunk_that_is_there_is_asked_for_once(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("file", 3 * real.CHUNK_BYTES)
    asked: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, bufs, at, flags: asked.append(at) or preadv(fd, bufs, at, flags))
    for _ in range(3):
        assert file.resident(real.CHUNK_BYTES - 1, 2)
    assert asked == [0, real.CHUNK_BYTES]
    now = real.time.monotonic()
    monkeypatch.setattr(real.time, "monotonic", lambda: now + real.WARM_S + 1)
    assert file.resident(0, 1) and asked == [0, real.CHUNK_BYTES, 0]


# ---- descriptors ----


@contextmanager
def _no_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_free_descriptor_there_is_one_for_what_makes_things_durable(disk: RealDisk, tmp_path: Path) -> None:
    disk.write("config/a", b"1")
    with _no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            disk.open("log", 4096)
        for round_ in range(3):
            disk.write("config/a", b"%d" % round_)
            disk.sync_file("config/a")
            disk.sync_dir("config")
            disk.sync_dir("")
    assert disk.read("config/a") == b"2"


# ---- whose files they are ----


def test_what_is_made_is_for_its_owner_alone_and_what_is_there_stays(tmp_path: Path) -> None:
    root = tmp_path / "data" / "store"
    theirs = root / "config"
    old = os.umask(0)
    try:
        disk = RealDisk(str(root))
        theirs.mkdir(0o755)
        (theirs / "topics.json").write_bytes(b"{}")
        (theirs / "topics.json").chmod(0o644)
        disk.lock("lock")
        disk.open("commitlog/00000000000000000000", 4096).close()
        disk.open("consumequeue/T/0/00000000000000000000", 4096, sparse=True).close()
        disk.write("config/new.json.tmp", b"{}")
        disk.rename("config/new.json.tmp", "config/new.json")
        disk.unlock("lock")
    finally:
        os.umask(old)
    modes = {str(p.relative_to(tmp_path)): stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    assert modes.pop("data/store/config") == 0o755 and modes.pop("data/store/config/topics.json") == 0o644
    for path, mode in modes.items():
        assert mode == (0o700 if (tmp_path / path).is_dir() else 0o600), path
    assert len(modes) == 10


# ---- a folder that is elsewhere ----


def test_a_folder_that_is_elsewhere(tmp_path: Path) -> None:
    """All that is done below its name is done there; its file system is its own."""
    place = tmp_path / "disk2" / "log"
    disk = RealDisk(str(tmp_path / "root"), {"commitlog": str(place)})
    disk.open("commitlog/0000", 8192).write(0, b"abc")
    disk.write("commitlog/a/b", b"1")
    disk.rename("commitlog/a/b", "commitlog/a/c")
    disk.sync_dir("commitlog")
    disk.sync_file("commitlog/a/c")
    assert disk.list("commitlog") == ["0000", "a/"] and disk.list("") == []
    assert (place / "0000").read_bytes()[:3] == b"abc" and (place / "a" / "c").read_bytes() == b"1"
    assert disk.usage("commitlog/0000").total > 0 and disk.size("commitlog/0000") == 8192
    disk.remove("commitlog/a")
    assert disk.list("commitlog") == ["0000"]
    with pytest.raises(LocalProtocolError, match="leaves the folder"):
        disk.read("commitlog/../x")


def test_two_roots_that_name_the_same_place(tmp_path: Path) -> None:
    """An operator copied a broker's file and changed storePathRootDir alone: the second one has nothing of it, and
    no file of a lock is left in the log's folder, which Java would take for one of the log."""
    place = tmp_path / "log"
    first, second = (RealDisk(str(tmp_path / name), {"commitlog": str(place)}) for name in "ab")
    first.lock("lock")
    with pytest.raises(StoreLocked, match=f"{place}: another store uses the folder"):
        second.lock("lock")
    assert list(place.iterdir()) == []
    first.unlock("lock")
    second.lock("lock")
    second.unlock("lock")
    first.lock("lock")
    first.unlock("lock")


@pytest.mark.parametrize("call", ["posix_fallocate", "write"])
def test_a_full_disk_is_told_with_the_path(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The calls that meet it know a descriptor only."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    sparse = disk.open("queue/sparse", 1 << 20, sparse=True)
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device: ") as told:
        if call == "write":
            disk.write("config/topics.json", b"{}")
        else:
            disk.open("commitlog/0", 4096)
    name = "config/topics.json" if call == "write" else "commitlog/0"
    assert told.value.errno == errno.ENOSPC and told.value.filename == str(tmp_path / name)
    if call == "posix_fallocate":
        with pytest.raises(OSError, match="queue/sparse"):
            sparse.write(0, b"x")
