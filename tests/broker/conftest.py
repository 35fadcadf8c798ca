"""What every test of a broker leaves behind: no open files."""

from collections.abc import Iterator

import pytest

from .harness import CountedDisk


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    yield
    while CountedDisk.opened:
        CountedDisk.opened.pop().close()
