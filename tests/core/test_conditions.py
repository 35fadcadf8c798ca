"""Parts of SQL92 expressions: what they come to of a record's bytes is what they come to of its properties as texts."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.sql_cases import VALUES, Draw

from perseid import core
from perseid.broker.consume import sql92
from perseid.core import conditions
from perseid.testing.cores import core_from
from perseid.wire import properties as reference
from perseid.wire.record import Message, encode

SOURCE = core_from(Path(core.__file__).parent)
WAYS: dict[str, Any] = {"source": SOURCE} | ({"compiled": core.installed} if core.is_compiled else {})
NAMES = [b"a", b"b", b"TAGS", b"$x", b"_y9"]
ODD = [
    b"\xff\xfe", b"x\xff", b"\xed\xa0\x80", "\ufffd".encode(), b"\xc3", b"\xbc", "ü".encode(), "xü".encode(), b"abab",
]  # fmt: skip
LONGS = [
    "5", "007", "0" * 5_000 + "7", "-" + "0" * 5_000, "+" + "\u0660" * 5_000 + "7", "1" * 18, "9" * 18,
    "9223372036854775807", "٣", "+5", "-5",
]  # fmt: skip
PARTS = [
    "Compared", "Constant", "Equal", "IsNull", "Junction", "Named", "Negative", "Not", "OneOf", "Said", "Says",
    "TextTest", "order",
]  # fmt: skip


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A core, of whose parts expressions are made."""
    way = WAYS[request.param]
    sql92.forget()
    for name in PARTS:
        monkeypatch.setattr(sql92, name, getattr(way.conditions, name))
    yield way
    sql92.forget()


def told(way: Any, expression: sql92.Expression, ask: Any) -> object:
    try:
        return expression.result(ask)
    except way.conditions.NotComparable:
        return "not comparable"


def looked_at(way: Any, pairs: list[tuple[bytes, bytes]]) -> tuple[Any, dict[str, str]]:
    """The properties of a record with these, and the same as texts."""
    raw = b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)
    record = bytes(encode(Message(topic="t", body=b"body", born_host=(b"\x7f\0\0\1", 1), properties=raw)))
    found = way.properties.Properties()
    found.look_into(record)
    assert found.record(0, len(record))
    return found, reference.decode(raw)


def test_drawn_expressions_come_to_the_same(way: Any) -> None:
    random, draw, readable = Random(1), Draw(1), 0
    values = [value.encode() for value in VALUES] + ODD
    for _ in range(4_000):
        try:
            expression = sql92.parse(str(draw.case()["expr"]))
        except sql92.SqlError:
            continue
        readable += 1
        for _ in range(4):
            pairs = [(random.choice(NAMES), random.choice(values)) for _ in range(random.randint(0, 8))]
            found, texts = looked_at(way, pairs)
            assert told(way, expression, found) == told(way, expression, texts.get), (expression.text, pairs)
            assert expression.wants(found) is (told(way, expression, texts.get) is True)
    assert readable > 2_000


@pytest.mark.parametrize("word", ["=", "CONTAINS", "STARTSWITH", "ENDSWITH", "NOT CONTAINS", "NOT ENDSWITH"])
def test_texts_are_compared_where_they_stand_as_texts_are(way: Any, word: str) -> None:
    random = Random(2)
    pieces = [b"a", b"b", b"ab", *ODD]
    for _ in range(2_000):
        value = b"".join(random.choices(pieces, k=random.randint(1, 4)))
        text = random.choice([value, value[1:], value[:-1], b"".join(random.choices(pieces, k=random.randint(0, 2)))])
        try:
            said = text.decode("utf-8", random.choice(["replace", "ignore", "surrogatepass"]))
        except UnicodeDecodeError:
            continue
        found, texts = looked_at(way, [(b"TAGS", value)])
        expression = sql92.parse(f"TAGS {word} '{said}'")
        assert told(way, expression, found) == told(way, expression, texts.get), (said, value)


@pytest.mark.parametrize("text", [*LONGS, "²", "5 ", "1_0", "9223372036854775808", "9" * 5_000])
def test_longs_are_read_as_java_reads_them(way: Any, text: str) -> None:
    expression = sql92.parse("a >= -9223372036854775807")
    assert told(way, expression, {"a": text}.get) == (True if text in LONGS else "not comparable")


@pytest.mark.parametrize("text", ["0x1p9999", "-0x1p9999", "0x1p" + "9" * 5_000, "0x" + "f" * 5_000 + "p1", "1e9999"])
def test_doubles_that_are_too_large_are_infinite(way: Any, text: str) -> None:
    expression = sql92.parse("a < -1.7e308" if text.startswith("-") else "a > 1.7e308")
    assert told(way, expression, {"a": text}.get) is True


def test_the_installed_parts_are_those_that_expressions_are_made_of() -> None:
    assert sql92.Says is conditions.Says
