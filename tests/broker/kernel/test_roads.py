"""Roads that requests take are counted, exactly, and reasons as well as they are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from broker.streams import send_of
from perseid.base.machine import Frames
from perseid.broker.kernel.roads import EVERY, UNKNOWN_CODE, Road, Roads, roads_of
from perseid.wire.command import encode_request

KEY = "UNIQ_KEY\x01K1\x02"
REFUSED = send_of(11, properties=f"{KEY}INNER_NUM\x013\x02")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, default_topic_queue_nums=1)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    rig.parts.roads.every = 1
    return rig


def road(rig: Rig, *frames: bytes) -> list[Road]:
    """The roads that these frames take in one read."""
    before = rig.parts.roads.details()
    rig.handle(Frames(1, b"".join(frames)))
    return rig.parts.roads.since(before)


def test_each_request_is_counted_once(rig: Rig) -> None:
    assert road(rig, send_of(11)) == [Road(310, True, "", 1)]
    assert road(rig, send_of(11), REFUSED, send_of(12)) == [
        Road(310, True, "", 2), Road(310, False, "", 1), Road(310, False, "CHANGING", 1),
    ]  # fmt: skip
    assert road(rig, encode_request(34, 7, {})) == [Road(34, False, "", 1)]


def test_codes_that_nobody_serves_are_counted_together(rig: Rig) -> None:
    frames = [encode_request(code, code, {}) for code in range(9_000, 9_050)]
    assert road(rig, *frames) == [Road(UNKNOWN_CODE, False, "", 50)]


def test_a_reason_that_is_sampled_counts_for_all(tmp_path: Path) -> None:
    roads = Roads()
    chosen = [number for number in range(3 * EVERY) if roads.looks()]
    assert chosen == [0, EVERY, 2 * EVERY]
    roads.add_why(310, "CUT_SHORT")
    roads.add_why(310, "NOT_ASCII", sampled=False)
    assert roads.since({}) == [Road(310, False, "CUT_SHORT", EVERY), Road(310, False, "NOT_ASCII", 1)]


def test_rows_of_other_brokers_are_read_as_far_as_they_can_be() -> None:
    rows = {"roadFast_310": "7", "roadFast_x": "7", "roadOrdinary_11": "0", "putTps": "1", "roadWhy_310_": "many"}
    assert roads_of(rows) == [Road(310, True, "", 7)]
