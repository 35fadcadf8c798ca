"""What the core reads of requests of POP, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perseid import core
from perseid.core.layout import CUT_BORN_TIME, CUT_HANDLE, CUT_OFFSET, CUT_OPAQUE
from perseid.testing.cores import core_from
from perseid.wire.command import decode, decode_all, encode_request
from perseid.wire.headers.pop import AckMessageRequest, PopMessageRequest

BEFORE, BEHIND = b"\0\0\0\x14\0\0\0\x10" + b'{"opaque":', b',"a":1}'
WAYS = {"source": core_from(Path(core.__file__).parent)} | ({"compiled": core.installed} if core.is_compiled else {})


@pytest.fixture(params=WAYS)
def pops(request: pytest.FixtureRequest) -> Any:
    size = len(BEFORE) + len(BEHIND)
    words = (size - 4).to_bytes(4, "big") + (size - 8).to_bytes(4, "big")
    return WAYS[request.param].pops.Pops(words + BEFORE[8:], BEHIND)


def ack(opaque: int, offset: int, handle: str = "7 5 60000 0 0 b 1", **more: Any) -> bytes:
    header = AckMessageRequest(
        consumer_group="g", topic="T", queue_id=1, extra_info=f"{handle} {offset}", offset=offset, **more
    )
    return bytes(encode_request(200051, opaque, header))


def test_the_numbers_and_the_handle_are_no_part_of_the_key(pops: Any) -> None:
    key = pops.find(ack(1, 7), 0)
    assert key and pops.found == CUT_OPAQUE | CUT_OFFSET | CUT_HANDLE
    assert pops.find(b"x" * 9 + ack(-99, 1234, "8 5 60000 0 0 b 1"), 9) == key
    assert (pops.opaque, pops.offset) == (-99, 1234)
    pop = PopMessageRequest(consumer_group="g", topic="T", born_time=1_700_000_000_000)
    assert pops.find(encode_request(200050, 3, pop), 0) not in (key, b"")
    assert pops.found == CUT_OPAQUE | CUT_BORN_TIME and pops.born_time == 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (b'"offset":"7"', b'"offset":"07"'),
        (b'"offset":"7"', b'"offset":"7x"'),
        (b'"offset":"7"', b'"offset":7'),
        (b'"offset":"7"', b'"offset":"7","offset":"7"'),
        (b'"offset":"7"', b'"offset":"' + b"7" * 19 + b'"'),
        (b'"topic":"T"', b'"topic":"\\u0054"'),
        (b'"opaque":1', b'"opaque":1e2'),
        (b'"opaque":1', b'"opaque":2147483648'),
        (b'"opaque":1,', b""),
        (b'"topic":"T"', b'"topic":"' + b"T" * 2048 + b'"'),
    ],
)
def test_odd_headers_have_no_key(pops: Any, text: bytes, other: bytes) -> None:
    raw = ack(1, 7)
    head = raw[8:].replace(text, other)
    assert head != raw[8:]
    assert pops.find((len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head, 0) == b""


def test_a_run_ends_where_another_checkpoint_or_a_message_begins_that_is_not_left(pops: Any) -> None:
    frames = [ack(1, 7), ack(20, 9), ack(3, 9), ack(4, 10), ack(5, 8)]
    data = b"".join(frames)
    assert pops.find(data, 0) and pops.handle(data) == b"7 5 60000 0 0 b 1 7"
    assert pops.begin(data, {7, 8, 9}, 32)
    assert pops.take(data, 0) == sum(map(len, frames[:3]))
    assert (pops.offsets, pops.count) == ([7, 9], 3)
    assert [answer.opaque for answer in decode_all(pops.answers())] == [1, 20, 3]

    data = frames[0] + ack(6, 8, "7 6 60000 0 0 b 1") + frames[1]
    assert pops.find(data, 0) and pops.begin(data, {7, 8, 9}, 32)
    assert pops.take(data, 0) == len(frames[0]) and decode(pops.answers()).opaque == 1
    assert pops.take(data, 0) == 0, "the run has ended"


def test_a_run_has_room_for_so_many(pops: Any) -> None:
    data = b"".join(ack(n, n) for n in range(9))
    assert pops.find(data, 0) and pops.begin(data, set(range(9)), 4)
    assert pops.take(data, 0) == sum(len(ack(n, n)) for n in range(4)) and pops.count == 4


def test_a_handle_without_a_number_at_its_end_begins_no_run(pops: Any) -> None:
    raw = ack(1, 7).replace(b" 1 7", b" 1 x")
    assert pops.find(raw, 0) and not pops.begin(raw, {7}, 32)
