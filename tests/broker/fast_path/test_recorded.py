"""What stock clients sent (tests/traffic), frame by frame: it is answered and stored as by the handlers."""

from __future__ import annotations

from pathlib import Path

import pytest

import traffic
from broker.streams import Recorder
from perseid.base.machine import Frames, Tick

NOW = 1_795_723_000_000
"""After all of them were recorded, and before the times that they name are long over."""
CLIENT = 1
NAME_SERVERS = 105
"""The tap stood before the name server, too."""


def _broker(root: Path, *, plain: bool) -> Recorder:
    broker = Recorder(root, plain=plain)
    broker.now = NOW
    broker.parts.roads.every = 1
    broker.handle(Tick())
    broker.connect(CLIENT)
    return broker


def _frames(client: str) -> list[traffic.Frame]:
    return [one for one in traffic.frames(client) if one.code != NAME_SERVERS]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("client", traffic.CLIENTS)
def test_frames_are_answered_as_by_the_handlers(tmp_path: Path, client: str) -> None:
    brokers = [_broker(tmp_path / name, plain=name == "plain") for name in ("plain", "handlers")]
    for one in [*_frames(client), *_frames(client)]:
        for broker in brokers:
            broker.handle(Frames(CLIENT, bytearray(one.data)))
    for broker in brokers:
        broker.stop()
    plain, handlers = brokers
    assert plain.answers() == handlers.answers()
    assert plain.files() == handlers.files()
