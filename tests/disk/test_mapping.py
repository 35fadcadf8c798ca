"""Mapped pages: those of the file, without an open file of their own, for as long as anyone looks at them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perseid.disk import mapping
from perseid.disk.real import RealDisk

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(params=["as installed", "by Python"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., memoryview]:
    if request.param == "by Python":
        monkeypatch.setattr(mapping, "_C", None)
    return mapping.pages


def mappings_of(path: Path) -> int:
    return sum(line.rstrip().endswith(str(path)) for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("at_random", [True, False])
def test_what_is_written_to_pages_is_in_the_file_and_the_other_way_round(
    pages: Callable[..., memoryview], tmp_path: Path, at_random: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("r+b") as file:
        view = pages(file.fileno(), 10, at_random=at_random)
    view[2:4] = b"ab"
    assert path.read_bytes() == b"01ab456789"
    with path.open("r+b") as file:
        file.write(b"x")
    assert view[:5] == b"x1ab4" and view.format == "B" and not view.readonly


def test_what_can_not_be_mapped_is_an_error(pages: Callable[..., memoryview]) -> None:
    with pytest.raises(OSError, match="Bad file"):
        pages(9_999, 10)


@LINUX
def test_pages_go_with_the_last_view_of_them(pages: Callable[..., memoryview], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        view = pages(file.fileno(), 8192)
    part = view[4096:4100].toreadonly()
    del view
    gc.collect()
    assert mappings_of(path) == 1 and part == bytes(4)
    del part
    assert mappings_of(path) == 0


@LINUX
def test_a_mapped_file_is_one_open_file(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    files = [disk.open(f"queue/{number}", 4096, sparse=True) for number in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 20
    for file in files:
        file.close()
    assert len(os.listdir("/proc/self/fd")) == before
