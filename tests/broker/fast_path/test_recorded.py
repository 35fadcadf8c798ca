"""What stock clients sent (tests/traffic), frame by frame: the road that it takes, and the handlers' answers to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import traffic
from broker.streams import Recorder
from perseid import core
from perseid.base.machine import Frames, Tick
from traffic.roads import is_fast

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


@pytest.mark.skipif(core.compiled is None, reason="plain Python knows fewer fast frames")
@pytest.mark.parametrize("client", traffic.CLIENTS)
def test_frames_take_the_road_that_the_table_says(tmp_path: Path, client: str) -> None:
    broker = _broker(tmp_path, plain=True)
    for one in _frames(client):  # what is learnt from the first of a kind
        broker.handle(Frames(CLIENT, bytearray(one.data)))
    wrong = []
    for one in _frames(client):
        before = broker.parts.roads.details()
        broker.handle(Frames(CLIENT, bytearray(one.data)))
        took = [road for road in broker.parts.roads.since(before) if road.code == one.code]
        if any(road.fast for road in took) != is_fast(one):
            reasons = ", ".join(road.why for road in took if road.why)
            wrong.append(f"{one.name}: {'ordinary' if is_fast(one) else 'fast'} {reasons}")
    assert not wrong, "\n".join(wrong)


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
