"""Whole frames, found the quick way: the same as `wire.frame` finds, in every stream."""

import struct
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid import core
from perseid.base.errors import RemoteProtocolError
from perseid.core import scan
from perseid.testing.cores import core_from
from perseid.wire import frame

SOURCE: ModuleType = core_from(Path(core.__file__).parent).scan
WAYS = [SOURCE, scan] if scan.compiled else [SOURCE]


def frame_of(header: int, body: int, serializer: int) -> bytes:
    return struct.pack(">II", 4 + header + body, serializer << 24 | header) + bytes(header + body)


def any_words(length: int, header: int, serializer: int) -> bytes:
    return struct.pack(">II", length, serializer << 24 | header)


few, many = st.integers(0, 9), st.integers(0, 40)
streams = st.lists(
    st.one_of(
        st.builds(frame_of, few, few, st.integers(0, 1)),
        st.builds(any_words, many, many, st.integers(0, 3)),
        st.sampled_from([struct.pack(">II", frame.MAX_FRAME_BYTES + 1, 4), b"\xff" * 9, b"\0"]),
    ),
    max_size=6,
).map(b"".join)


def said(complete: object, data: bytes, start: int) -> object:
    try:
        return complete(data, start)  # type: ignore[operator]
    except RemoteProtocolError as error:
        return str(error)


@pytest.mark.parametrize("way", WAYS, ids=["source", "compiled"][: len(WAYS)])
@given(data=streams, cut=st.integers(0, 60), start=st.integers(0, 3))
def test_it_finds_what_the_reference_finds(way: ModuleType, data: bytes, cut: int, start: int) -> None:
    for one in (data, data[: len(data) - cut]):
        if start <= len(one):
            assert said(way.complete, one, start) == said(frame.complete, one, start)
