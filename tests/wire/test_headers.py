"""Every header class: what is written is read again, by both serializers, quickly or with care."""

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.wire import headers
from perseid.wire.codes import Serializer
from perseid.wire.command import decode, encode_request
from perseid.wire.headers import base
from perseid.wire.headers.base import Header, from_ext, to_ext
from perseid.wire.headers.pull import PullMessageResponse
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse

ALL: list[type[Header]] = sorted(
    {
        kind
        for module in pkgutil.iter_modules(headers.__path__)
        for kind in vars(importlib.import_module(f"{headers.__name__}.{module.name}")).values()
        if isinstance(kind, type) and issubclass(kind, Header) and kind is not Header
    },
    key=lambda kind: kind.__name__,
)

TEXT = st.text(min_size=1, max_size=12)


def drawn(kind: type[Header], data: st.DataObject) -> Header:
    """An instance with any values; what may be None is None now and then."""
    values: dict[str, Any] = {}
    for field in base._plan(kind).fields:
        strategy = {"str": TEXT, "int": st.integers(field.low, field.high), "bool": st.booleans()}[field.kind]
        if field.default is None:
            strategy = st.none() | strategy
        values[field.attr] = data.draw(strategy)
    return kind(**values)


def test_all_are_found() -> None:
    assert len(ALL) > 80
    assert SendMessageRequestV2 in ALL


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@settings(max_examples=10)
@given(data=st.data())
def test_round_trips(kind: type[Header], data: st.DataObject) -> None:
    header = drawn(kind, data)
    for serializer in Serializer:
        assert decode(encode_request(10, 1, header, serializer=serializer)).header(kind) == header
    ext = to_ext(header)
    assert decode(encode_request(310, 1, header)).ext == ext
    assert from_ext(kind, ext) == header
    assert base._from_ext_with_care(kind, base._plan(kind), ext) == header


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_no_two_fields_share_a_name(kind: type[Header]) -> None:
    names = [field.name for field in base._plan(kind).fields]
    assert len(set(names)) == len(names)


@given(data=st.data())
@pytest.mark.parametrize("kind", [SendMessageResponse, PullMessageResponse])
def test_the_quick_writers_write_the_same(kind: type[Header], data: st.DataObject) -> None:
    header = drawn(kind, data)
    assert header.json_ext() == base.json_ext(header)


@given(ext=st.dictionaries(st.sampled_from("abcdefghijklmnx"), st.text(max_size=5) | st.sampled_from(["1", "true"])))
def test_quick_and_careful_reading_agree(ext: dict[str, str]) -> None:
    def read(serializer: Serializer) -> Any:
        got = decode(encode_request(310, 1, ext, serializer=serializer))
        try:
            return got.header(SendMessageRequestV2)
        except base.RequestRefused as refused:
            return refused.code

    kept = {name: value for name, value in ext.items() if value}
    try:
        careful: Any = base._from_ext_with_care(SendMessageRequestV2, base._plan(SendMessageRequestV2), kept)
    except base.RequestRefused as refused:
        careful = refused.code
    assert read(Serializer.ROCKETMQ) == careful
    if kept == ext:
        assert read(Serializer.JSON) == careful


def test_v2_has_all_names_of_the_table() -> None:
    long = {field.attr: field.name for field in base._plan(SendMessageRequestV2).fields}
    assert "".join(sorted(long.values())) == "abcdefghijklmn"
    assert long["properties"] == "i" and long["batch"] == "m" and long["broker_name"] == "n"
