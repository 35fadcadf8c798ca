"""Message properties: Java's text in both directions."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from perseid.wire import properties

names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)


def test_java_text(vectors: Any) -> None:
    wanted = vectors["properties"]["map"]
    raw = bytes.fromhex(vectors["properties"]["encoded_hex"])
    assert properties.decode(raw) == wanted == properties.decode(raw.decode())
    assert properties.encode({name: wanted[name] for name in properties.decode(raw)}) == raw


def test_edges(vectors: Any) -> None:
    edges = vectors["properties"]["decode_edge"]
    assert properties.decode("a\x01b\x02k\x01\x02") == edges["k\\u0001\\u0002 (empty value)"]
    assert properties.decode("a\x01b\x02c\x01d") == edges["no trailing sep"]
    assert properties.decode("a\x01b\x01c\x02") == edges["value containing \\u0001"]
    assert properties.decode(b"") == {} == properties.decode("\x02\x02\x01\x02a\x02\x01b\x02")
    assert properties.decode(b"a\x01\xff\x02") == {"a": "\ufffd"}


@given(st.dictionaries(names, values, max_size=5))
def test_round_trip(wanted: dict[str, str]) -> None:
    raw = properties.encode(wanted)
    assert properties.decode(raw) == wanted
    assert properties.decode(raw[:-1]) == wanted
    for name in wanted:
        assert properties.get(raw, name) == wanted[name]


pieces = st.lists(st.sampled_from(["a", "b", "aa", "\x01", "\x02", "x", "é"]), max_size=14).map("".join)


@given(pieces)
@example("a\x01x\x02a\x01")
@example("a\x01x\x02a\x01\x02")
@example("a\x01\x02b\x01x")
def test_a_single_look_up_is_what_decoding_gives(text: str) -> None:
    raw = text.encode()
    found = properties.decode(raw)
    for name in ("a", "b", "aa", "é", "x"):
        assert properties.get(raw, name) == found.get(name)


def test_checksum_property(vectors: Any) -> None:
    vector = vectors["crc32_property"]
    assert properties.crc_property(vector["crc"]).hex() == vector["hex"]
    assert len(properties.crc_property(0)) == 20
