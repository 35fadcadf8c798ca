"""What several files of bad input need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perseid.testing.embedded import EmbeddedBroker

from .rig import Acknowledged


@pytest.fixture
def kept(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[Acknowledged]:
    """A topic that holds messages; after the test it holds the same ones, and takes more."""
    topic = Acknowledged("T" + "".join(c for c in request.node.name if c.isalnum())[-100:])
    topic.send(broker.namesrv)
    yield topic
    topic.check(broker.namesrv)
