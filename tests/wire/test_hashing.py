"""Hashes that Java computes as well."""

import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perseid.wire import hashing


def test_java_hashes(vectors: Any) -> None:
    for name, wanted in vectors["hash"].items():
        function, _, text = name.rstrip(")").partition("(")
        if function == "String.hashCode":
            assert hashing.java_hash(text) == wanted, text
        elif function == "tagsCode":
            assert hashing.tag_code(text) == wanted, text


def test_checksums(vectors: Any) -> None:
    known = vectors["hash"]
    assert hashing.crc32(b"hello") == known["crc32_31bit(hello)"]
    assert hashing.crc32_raw(b"a") == known["crc32_raw(a) unsigned"]
    assert hashing.crc32(memoryview(b"a")) == known["crc32_31bit(a)"]


def test_tags() -> None:
    assert hashing.tag_code(None) == hashing.tag_code("") == 0
    assert hashing.tag_code("Aa") == hashing.tag_code("BB")
    assert hashing.tag_code("t" * 1000) == hashing.java_hash("t" * 1000)


def test_characters_beyond_16_bits_count_as_two() -> None:
    assert hashing.java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert hashing.java_hash("\ud83d") == 0xD83D


@given(st.binary(max_size=200))
def test_the_checksum_is_zlib_s(data: bytes) -> None:
    assert hashing.crc32_raw(data) == zlib.crc32(data)


@given(st.text(max_size=40))
def test_the_hash_is_an_int32_and_adds_up(text: str) -> None:
    value = hashing.java_hash(text)
    assert -(2**31) <= value < 2**31
    assert (hashing.java_hash(text + "a") - (31 * value + 97)) % 2**32 == 0
