"""What every test of a broker leaves behind: no open files. And the ways that there are to take frames."""

from collections.abc import Iterator

import pytest

from perseid import core

from .harness import CountedDisk
from .streams import WAYS


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    yield
    while CountedDisk.opened:
        CountedDisk.opened.pop().close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs in plain Python, with the core's source, and with the compiled core."""
    monkeypatch.setattr(core, "compiled", WAYS[request.param])
    return str(request.param)
