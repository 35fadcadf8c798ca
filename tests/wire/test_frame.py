"""Finding frames: whole ones, cut ones, lying ones."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import RemoteProtocolError
from perseid.wire import frame


def made(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), serializer << 24 | len(header)) + header + body


def test_nothing_whole_means_the_start() -> None:
    whole = made(b"{}", b"body")
    for cut in range(len(whole)):
        assert frame.complete(whole[:cut]) == 0
    assert frame.complete(whole) == len(whole)
    assert frame.complete(b"..." + whole, 3) == 3 + len(whole)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 1)), max_size=5), st.data())
def test_random_cuts_find_every_frame_once(parts: list[tuple[bytes, bytes, int]], data: st.DataObject) -> None:
    frames = [made(*part) for part in parts]
    stream = b"".join(frames)
    found: list[bytes] = []
    kept = bytearray()
    at = 0
    while at < len(stream):
        step = data.draw(st.integers(1, 30))
        kept += stream[at : at + step]
        at += step
        end = frame.complete(kept)
        found += [bytes(one) for one in frame.split(bytes(kept[:end]))]
        del kept[:end]
        assert frame.missing(kept) > 0, "what is kept is no whole frame"
    assert found == frames
    assert not kept


@pytest.mark.parametrize(
    ("lie", "shown_at"),
    [
        (struct.pack(">I", frame.MAX_FRAME_BYTES + 1), 4),
        (struct.pack(">I", 0xFFFFFFFF), 4),
        (struct.pack(">I", 3), 4),
        (struct.pack(">IB", 100, 2), 5),
        (struct.pack(">IB", 100, 0xFF), 5),
        (struct.pack(">II", 100, 97), 8),
        (struct.pack(">II", 4, 0x01000001), 8),
    ],
)
def test_a_lie_is_refused_as_soon_as_it_shows(lie: bytes, shown_at: int) -> None:
    before = made(b"{}")
    for cut in range(shown_at):
        assert frame.complete(before + lie[:cut]) == len(before)
    for rest in (b"", bytes(200)):
        with pytest.raises(RemoteProtocolError):
            frame.complete(before + lie + rest)


def test_the_largest_frame_is_accepted() -> None:
    assert frame.complete(struct.pack(">II", frame.MAX_FRAME_BYTES, 10)) == 0
    assert frame.missing(struct.pack(">II", frame.MAX_FRAME_BYTES, 10)) == frame.MAX_FRAME_BYTES - 4
    whole = struct.pack(">II", frame.MAX_FRAME_BYTES, 10) + bytes(frame.MAX_FRAME_BYTES - 4)
    assert frame.complete(whole) == len(whole)
    with pytest.raises(RemoteProtocolError, match="16777217"):
        frame.complete(struct.pack(">II", frame.MAX_FRAME_BYTES + 1, 10) + whole[7:])


def test_left_over_bytes_are_no_frames() -> None:
    with pytest.raises(RemoteProtocolError, match="2 bytes"):
        list(frame.split(made(b"{}") + b"12"))
    with pytest.raises(RemoteProtocolError, match="9 bytes"):
        list(frame.split(made(b"{}", b"x")[:-2]))


@given(st.binary(max_size=40))
def test_any_bytes_are_found_or_refused(data: bytes) -> None:
    try:
        end = frame.complete(data)
    except RemoteProtocolError:
        return
    assert sum(len(one) for one in frame.split(data[:end])) == end
