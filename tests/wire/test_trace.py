"""Traces as Java clients write them (`traces.json`: bodies of a real trace topic), and what is refused."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import RemoteProtocolError
from perseid.wire.trace import AFTER, BEFORE, END_TRANSACTION, PUB, RECALL, Trace, decode, encode

RECORDED = [base64.b64decode(body) for body in json.loads((Path(__file__).parent / "traces.json").read_text())]


def test_what_a_java_client_wrote_is_read() -> None:
    """Six sends, each taken twice as the listener failed at first, and a transaction (tests/interop/test_trace.py)."""
    found = [trace for body in RECORDED for trace in decode(body)]
    kinds = Counter(trace.kind for trace in found)
    assert kinds == {PUB: 7, BEFORE: 12, AFTER: 12, END_TRANSACTION: 1}
    sent = {trace.msg_id: trace for trace in found if trace.kind == PUB}
    taken = [trace for trace in found if trace.kind == BEFORE]
    ended = {(trace.request_id, trace.msg_id): trace for trace in found if trace.kind == AFTER}
    plain = [trace for trace in sent.values() if trace.message_type == "NORMAL"]
    assert len(plain) == 6 and {trace.msg_id for trace in taken} == {trace.msg_id for trace in plain}
    assert all((trace.tags, trace.keys, trace.body_bytes, trace.ok) == ("red", "k1 k2", 2, True) for trace in plain)
    (half,) = (trace for trace in sent.values() if trace.message_type == "HALF")
    (ended_at,) = (trace for trace in found if trace.kind == END_TRANSACTION)
    assert (half.tags, half.keys) == (None, None) and half.msg_id == ended_at.msg_id
    assert (ended_at.topic, ended_at.state) == (half.topic, "COMMIT_MESSAGE")
    for trace in taken:
        assert trace.time_ms is not None and trace.msg_id is not None
        start = sent[trace.msg_id].time_ms
        assert start is not None and trace.time_ms >= start
        end = ended[trace.request_id, trace.msg_id]
        assert end.cost_ms is not None and end.cost_ms >= 0
        assert (end.ok, end.code) == ((True, "SUCCESS") if trace.retries else (False, "FAILED"))


def test_what_a_java_client_wrote_is_written_again_byte_for_byte() -> None:
    for one in RECORDED:
        assert "".join(map(encode, decode(one))).encode() == one
    recall = Trace(RECALL, 5, "g", "t", "ID", ok=True, region="r")
    assert encode(recall) == "Recall\x015\x01r\x01g\x01t\x01ID\x01true\x02"
    assert encode(Trace(BEFORE, 1, "a\x01b\x02")).count("\x01") == 7, "separators can't be smuggled in"


def body(*fields: object) -> bytes:
    return "\x01".join(map(str, fields)).encode() + b"\x02"


def test_each_kind_with_all_its_fields() -> None:
    pub = (PUB, 1000, "r", "g", "t", "ID1", "tag", "k", "10.0.0.1:10911", 5, 7)
    assert decode(body(*pub, 0, "OFF", "true")) == [
        Trace(PUB, 1000, "g", "t", "ID1", "tag", "k", "10.0.0.1:10911", 5, 7, "NORMAL", True, region="r",
              offset_msg_id="OFF")
    ]  # fmt: skip
    assert decode(body(*pub, 3, "false"))[0].ok is False, "before offsets' ids were written"
    assert decode(body(*pub, 9, "OFF", "true", "10.0.0.9"))[0].message_type == "9"
    assert decode(body(BEFORE, 1, "r", "g", "REQ", "ID1", 2, "null")) == [
        Trace(BEFORE, 1, "g", msg_id="ID1", request_id="REQ", retries=2, region="r")
    ]
    assert decode(body(AFTER, "REQ", "ID1", 3, "true", "k")) == [
        Trace(AFTER, msg_id="ID1", request_id="REQ", cost_ms=3, ok=True, keys="k")
    ]
    assert decode(body(AFTER, "REQ", "ID1", 3, "false", "k", 4, 99, "g")) == [
        Trace(AFTER, 99, "g", msg_id="ID1", request_id="REQ", cost_ms=3, ok=False, keys="k", code="FAILED")
    ]
    assert (
        decode(body(END_TRANSACTION, 1, "r", "g", "t", "ID1", "", "", "h", 2, "TX", "ROLLBACK_MESSAGE", "false"))[
            0
        ].state
        == "ROLLBACK_MESSAGE"
    )
    assert decode(body(RECALL, 1, "r", "g", "t", "ID1", "true"))[0].ok is True
    two = decode(body(*pub, 0, "O", "true") + body(BEFORE, 1, "r", "g", "Q", "I", 0, ""))
    assert [trace.kind for trace in two] == [PUB, BEFORE]
    assert decode(b"") == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (b"\xff\xfe", "not"),
        (b"hello", "no kind of trace: 'hello'"),
        (body(PUB, 1), "a Pub of 2 fields"),
        (body(AFTER, "REQ", "ID1", "x", "true", "k"), "no number of 32 bits: 'x'"),
        (body(AFTER, "REQ", "ID1", 1 << 31, "true", "k"), "no number of 32 bits"),
        (body(BEFORE, 1 << 62, "r", "g", "REQ", "ID1", 2, "k"), "no time from 1970 to 9999"),
        (body(BEFORE, "1_0", "r", "g", "REQ", "ID1", 2, "k"), "no time"),
        (body(AFTER, "REQ", "ID1", 1, "yes", "k"), "neither true nor false"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(wrong: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode(wrong)


@given(st.lists(st.sampled_from([PUB, BEFORE, AFTER, END_TRANSACTION, RECALL, "\x01", "\x02", "1", "true", "x", "-9"])))
def test_any_text_is_traces_or_refused(pieces: list[str]) -> None:
    try:
        found = decode("\x01".join(pieces).encode())
    except RemoteProtocolError:
        return
    assert all(trace.kind in (PUB, BEFORE, AFTER, END_TRANSACTION, RECALL) for trace in found)
