"""The pytest plugin: it is there as soon as perseid is installed.

    def test_orders(perseid_broker):
        with BlockingProducer(perseid_broker.namesrv) as producer:
            ...

`perseid_broker` is a fresh broker for each test, `perseid_session_broker` one for the whole run,
`perseid_virtual` a broker in virtual time: no sockets, no waiting, `advance(ms)` moves the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perseid.testing.embedded import EmbeddedBroker
    from perseid.testing.virtual import VirtualBroker


@pytest.fixture
def perseid_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A name server and a broker in this process, on free ports, with a store of this test's own."""
    from perseid.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "perseid") as broker:
        yield broker


@pytest.fixture(scope="session")
def perseid_session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The same, one for all tests: quicker; tests keep apart by their topics' names."""
    from perseid.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(tmp_path_factory.mktemp("perseid")) as broker:
        yield broker


@pytest.fixture
def perseid_virtual() -> VirtualBroker:
    """A broker in virtual time, on a simulated disk."""
    from perseid.testing.virtual import VirtualBroker

    return VirtualBroker()
