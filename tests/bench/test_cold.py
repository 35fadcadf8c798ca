"""A log is called cold only when the system says that none of it is in memory."""

import mmap
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from cold import evict, resident_bytes
from servers import BenchError

SIZE = 4 << 20


def test_what_was_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    assert resident_bytes(path) == SIZE
    path.write_bytes(b"")
    assert resident_bytes(path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="process_madvise is Linux's")
def test_what_a_process_has_mapped_is_evicted_or_the_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store" / "log"
    path.parent.mkdir()
    path.write_bytes(b"x" * SIZE)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as mapped:
        assert sum(mapped[at] for at in range(0, SIZE, mmap.PAGESIZE))  # each page is mapped
        try:
            evict([os.getpid()], path.parent)
        except BenchError as error:
            assert resident_bytes(path) > SIZE // 20 and "not cold" in str(error)
        else:
            assert resident_bytes(path) <= SIZE // 20
        assert mapped[SIZE - 1] == ord("x")
