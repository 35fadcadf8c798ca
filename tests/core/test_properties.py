"""Properties of stored records, one by its name: the same as `wire.properties` finds."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.core import properties
from perseid.testing.cores import core_from
from perseid.wire import properties as reference
from perseid.wire.record import Message, encode, properties_of

SOURCE: Any = core_from(Path(core.__file__).parent).properties.Properties
WAYS = {"source": SOURCE} | ({"compiled": properties.Properties} if core.is_compiled else {})
HOSTS = [(bytes([10, 0, 0, 1]), 5000), (bytes(range(16)), 5000)]
NAMES = ["a", "TAGS", "ab", "", "TAG", "none", "é"]
PIECES = [
    b"a\x011", b"TAGS\x01TagA", b"ab\x01\xe6\xb6\x88", b"a\x01", b"TAGS\x01", b"\x01v", b"lonely", b"", b"a\x01b\x01c",
    b"TAG\x01\xff\xfe", b"xTAGS\x01no", b"TAGSx\x01no", b"ab\x01\xe6", b"\xc3\xa9\x01acute",
]  # fmt: skip


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


def record_of(random: Random, topic: str, properties: bytes) -> bytes:
    born, store = random.choices(HOSTS, k=2)
    body = random.randbytes(random.choice([1, 100]))
    return bytes(encode(Message(topic=topic, body=body, born_host=born, store_host=store, properties=properties)))


def test_a_property_is_found_as_the_reference_finds_it(way: Any) -> None:
    random = Random(1)
    found = way()
    for _ in range(2_000):
        text = b"\x02".join(random.choices(PIECES, k=random.randint(0, 6))) + random.choice([b"", b"\x02"])
        raw = record_of(random, "t" * random.choice([1, 127, 128, 255, 300]), text)
        before = random.randbytes(random.randint(0, 9))
        window, at = before + raw + b"TAGS\x01behind", len(before)
        found.look_into(window)
        assert found.record(at, len(raw))
        told = reference.decode(properties_of(memoryview(raw)))
        assert {name: found(name) for name in NAMES} == {name: told.get(name) for name in NAMES}
        found.let_go()
        assert found("TAGS") is None


def test_bytes_that_are_no_record_have_no_properties(way: Any) -> None:
    random = Random(2)
    raw = record_of(random, "topic", b"TAGS\x01A\x02")
    found = way()
    for _ in range(5_000):
        other = bytearray(raw)
        for _ in range(random.randint(1, 4)):
            other[random.choice([random.randrange(len(raw)), *range(36, 40), *range(84, 92)])] = random.randrange(256)
        at, size = random.choice([(0, len(raw)), (0, random.randint(-5, 200)), (random.randint(-50, 300), len(raw))])
        found.look_into(bytes(other))
        if not found.record(at, size):
            assert found("TAGS") is None
        else:
            assert 0 <= at <= at + size <= len(raw)
            told = found("TAGS")
            assert told is None or len(told) <= size
        found.let_go()
