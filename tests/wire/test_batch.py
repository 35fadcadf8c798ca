"""Producer batches against Java's bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.wire import batch, properties

item = st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50))
items = st.lists(item, max_size=6)


def test_java_batch(vectors: Any) -> None:
    raw = bytes.fromhex(vectors["batch_body"]["hex"])
    got = batch.decode(raw)
    wanted = vectors["batch_body"]["messages"]
    assert [(i.flag, bytes(i.body), properties.decode(i.properties)) for i in got] == [
        (m["flag"], m["body"].encode(), m["props"]) for m in wanted
    ]
    assert batch.encode((m["flag"], m["body"].encode(), properties.encode(m["props"])) for m in wanted) == raw


@given(items)
def test_round_trip(wanted: list[tuple[int, bytes, bytes]]) -> None:
    got = batch.decode(batch.encode(wanted))
    assert [(i.flag, bytes(i.body), i.properties) for i in got] == wanted


@given(items.filter(len), st.integers(0, 700))
def test_a_batch_that_is_cut_off_is_refused_or_shorter(wanted: list[tuple[int, bytes, bytes]], cut: int) -> None:
    raw = batch.encode(wanted)
    try:
        got = batch.decode(raw[: min(cut, len(raw) - 1)])
    except RemoteProtocolError:
        return
    assert len(got) < len(wanted)


@pytest.mark.parametrize("at", [0, 16, 25])
@pytest.mark.parametrize("wrong", [b"\xff", b"\x7f"])
def test_lying_lengths(at: int, wrong: bytes) -> None:
    raw = bytearray(batch.encode([(0, b"body!", b"A\1B\2"), (0, b"", b"")]))
    raw[at : at + 1] = wrong
    with pytest.raises(RemoteProtocolError):
        batch.decode(raw)


def test_limits() -> None:
    with pytest.raises(LocalProtocolError):
        batch.encode([(0, b"", bytes(32768))])
    one = batch.encode([(0, b"", b"")])
    assert len(batch.decode(one * batch.MAX_MESSAGES)) == batch.MAX_MESSAGES
    with pytest.raises(RemoteProtocolError, match="more than"):
        batch.decode(one * (batch.MAX_MESSAGES + 1))
