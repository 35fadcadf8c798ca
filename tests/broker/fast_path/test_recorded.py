"""What stock clients sent (tests/traffic), frame by frame: the road that it takes, and the handlers' answers to it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import traffic
from broker.streams import Recorder
from perseid import core
from perseid.base.machine import Frames, Tick
from perseid.wire import command
from perseid.wire.codes import RequestCode
from perseid.wire.headers.topics import CreateTopicRequest
from traffic.roads import is_fast

NOW = 1_795_720_000_000
"""Before they were recorded, so that no time that they name has come."""
CLIENT = 1
NAME_SERVERS = 105
"""The tap stood before the name server, too."""
LEAST_SENDS, LEAST_PULLS = 8, 1
"""Of each client, so many are compared."""


def _broker(root: Path, *, plain: bool) -> Recorder:
    broker = Recorder(root, plain=plain)
    broker.now = NOW
    broker.parts.roads.every = 1
    broker.handle(Tick())
    broker.connect(CLIENT)
    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("recorded", "TBW102", 4, 4, 6, "SINGLE_TAG"))
    return broker


def _frames(client: str) -> list[traffic.Frame]:
    return [one for one in traffic.frames(client) if one.code != NAME_SERVERS]


@pytest.mark.skipif(core.compiled is None, reason="plain Python knows fewer fast frames")
@pytest.mark.parametrize("client", traffic.CLIENTS)
def test_frames_take_the_road_that_the_table_says(tmp_path: Path, client: str) -> None:
    broker = _broker(tmp_path, plain=True)
    wrong = []
    seen: Counter[int] = Counter()
    for one in _frames(client):
        broker.handle(Frames(CLIENT, bytearray(one.data)))  # the handlers answer the first of a kind
        before, answers = broker.parts.roads.details(), len(broker.raw.get(CLIENT, b""))
        broker.handle(Frames(CLIENT, bytearray(one.data)))
        answer = bytes(broker.raw.get(CLIENT, b"")[answers:])
        one_way = command.decode(one.data).flag != 0
        if not (one_way or answer) or (answer and command.decode_all(answer)[0].code):
            continue  # it is held, or refused: heartbeats that it needs were not all recorded
        took = [road for road in broker.parts.roads.since(before) if road.code == one.code]
        seen[one.code] += 1
        if any(road.fast for road in took) != is_fast(one):
            reasons = ", ".join(road.why for road in took if road.why)
            wrong.append(f"{one.name}: {'ordinary' if is_fast(one) else 'fast'} {reasons}")
    assert not wrong, "\n".join(wrong)
    assert sum(seen[code] for code in (10, 310, 320)) >= LEAST_SENDS, f"{seen} were compared"
    assert seen[11] >= LEAST_PULLS, f"{seen} were compared"


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
