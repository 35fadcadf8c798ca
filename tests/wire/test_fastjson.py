"""JSON with fastjson's liberties, and JSON that is none."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.wire import fastjson
from perseid.wire.body import MessageQueue
from perseid.wire.fastjson import JsonError

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def bare(value: Any) -> Any:
    """A value as fastjson writes it: members that are null are left out."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if v is not None}
    return [bare(v) for v in value] if isinstance(value, list) else value


def test_integer_keys() -> None:
    assert fastjson.loads(b'{0:"a",-1 : "b", "2":"c"}') == {"0": "a", "-1": "b", "2": "c"}
    assert fastjson.dumps({0: "a", 1: {"x": None}}) == b'{0:"a",1:{}}'
    assert fastjson.dumps({0: "a"}, standard=True) == b'{"0":"a"}'


def test_object_keys() -> None:
    text = '{"t":{{"topic":"é","queueId":0,"brokerName":"b"}:{"x":[1]}}}'
    got = fastjson.loads(text)
    key = '{"brokerName":"b","queueId":0,"topic":"é"}'
    assert got == {"t": {key: {"x": [1]}}}
    queue = MessageQueue.from_json(key)
    assert queue == MessageQueue("é", "b", 0)
    assert fastjson.dumps({queue: 1}).decode() == f"{{{key}:1}}"
    assert fastjson.loads(fastjson.dumps({queue: 1})) == {key: 1}


@given(values)
def test_round_trips_of_plain_json(value: Any) -> None:
    for text in (fastjson.dumps(value), fastjson.dumps(value, standard=True), fastjson.pretty(value)):
        assert fastjson.loads(text) == bare(value)
        assert json.loads(text) == bare(value)
    assert fastjson.dumps(value, standard=True).isascii()


@given(values)
def test_the_tolerant_reader_reads_plain_json_as_well(value: Any) -> None:
    text = json.dumps(value)
    assert fastjson._Reader(text).document() == json.loads(text)
    text = json.dumps(value, indent=2, ensure_ascii=False)
    assert fastjson._Reader(text).document() == json.loads(text)


def test_pretty_is_java_s(vectors: Any) -> None:
    text = vectors["json_bodies"]["topics.json (pretty)"]
    assert fastjson.pretty(fastjson.loads(text)).decode() == text


def test_what_is_written_already() -> None:
    assert fastjson.dumps({"a": b'{"x" : 1}', "b": msgspec.Raw(b"[2]")}) == b'{"a":{"x" : 1},"b":[2]}'
    assert fastjson.pretty({"a": b'{"x" : 1}'}) == b'{\n\t"a":{\n\t\t"x":1\n\t}\n}'
    assert fastjson.dumps({"e": []}) == b'{"e":[]}' and fastjson.pretty({"e": {}}) == b'{\n\t"e":{}\n}'


def test_numbers_and_text() -> None:
    assert fastjson.dumps([0.0, 1e-7, float("inf"), float("nan")]) == b"[0.0,1e-07,null,null]"
    assert fastjson.dumps("é\x01\ud800") == b'"\xc3\xa9\\u0001?"'
    assert fastjson.loads(b'{a:"\x01\\ud800"}') == {"a": "\x01?"}
    assert fastjson.loads("{a:true,b:null,c:1.5,d:-2}") == {"a": True, "b": None, "c": 1.5, "d": -2}
    with pytest.raises(LocalProtocolError, match="object"):
        fastjson.dumps(object())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{0",
        b"{0:",
        b"{0:1",
        b"{0:1,}",
        b"{0:1}}",
        b"{0 1}",
        b"[1 2]",
        b"[0:1]",
        b"{0:x}",
        b'{0:"',
        b'{0:"\\q"}',
        b"{0:--1}",
        b"{{0:1}}",
        b"{0:1}{",
        b"{0:\xff}",
        b"{0:" + b"9" * 5000 + b"}",
        b"{0:" * 200 + b"1" + b"}" * 200,
        b"[" * 100_000,
        b"{" * 100_000,
        b"{{{1:2}:3}:4}",
    ],
)
def test_text_that_is_no_json(text: bytes) -> None:
    with pytest.raises(JsonError):
        fastjson.loads(text)


def test_its_error_is_a_peer_s_and_a_value_s() -> None:
    assert issubclass(JsonError, RemoteProtocolError) and issubclass(JsonError, ValueError)
    with pytest.raises(JsonError, match="character 3"):
        fastjson.loads("{0:!}")


@given(st.text(st.sampled_from('{}[]:,"\\ 0a.-tn'), max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        json.dumps(fastjson.loads(text))
    except JsonError:
        return
