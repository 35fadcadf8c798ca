"""Tag codes and index keys of a record, against the plain way of working them out."""

from __future__ import annotations

from random import Random

import pytest

from perseid.base.errors import ConfigError
from perseid.store import dispatch
from perseid.store.dispatch import in_queue, key_hash, key_hashes, parse_delay_levels, tag_code_of
from perseid.wire import properties as props
from perseid.wire.hashing import java_hash, tag_code

ALPHABET = "0123456789ABCDEFabc#|_ é消𝄞"


def plain_hash(topic: str, key: str) -> int:
    h = java_hash(f"{topic}#{key}")
    return 0 if h == -(1 << 31) else abs(h)


def test_key_hashes_are_those_of_java() -> None:
    random = Random(1)
    for _ in range(3000):
        topic = "".join(random.choices(ALPHABET, k=random.randrange(1, 12)))
        key = "".join(
            random.choices(ALPHABET[: random.choice((16, 16, 99))], k=random.choice((1, 7, 8, 9, 32, 56, 300)))
        )
        assert key_hash(topic, key) == plain_hash(topic, key), (topic, key)


def test_the_cache_of_hashes_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_CACHED_HEADS", 10)
    dispatch._head_hashes.clear()
    for number in range(50):
        key = f"{number:032d}"[::-1]
        assert key_hash("T", key) == plain_hash("T", key)
        assert len(dispatch._head_hashes) <= 10


def test_vectors() -> None:
    """From the Java index file of the vectors: topic TopicTest."""
    assert key_hash("TopicTest", "7F0000010001000000000000000A0000") == 0x15F5F0C4
    assert (key_hash("TopicTest", "k1"), key_hash("TopicTest", "k2")) == (0x0029E6A8, 0x0029E6A9)
    assert tag_code_of("T", b"TAGS\x01TagA\x02", 0, ()) == 2598919


def test_keys_of_a_message() -> None:
    raw = props.encode({"KEYS": "k1  k2 ", "UNIQ_KEY": "U" * 32, "TAGS": "t", "A": "b"})
    assert key_hashes("T", raw) == [plain_hash("T", key) for key in ("U" * 32, "k1", "k2", "T#t")]
    assert key_hashes("T", b"") == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"TAGS\x01a",
        b"TAGS\x01a\x02",
        b"TAGS\x01a\x02TAGS\x01b\x02",
        b"TAGS\x01a\x02TAGS\x01\x02",
        b"TAGS\x01\x02",
        b"XTAGS\x01a\x02",
        b"TAGS\x01a\x02XTAGS\x01b\x02",
        b"A\x01TAGS\x01b\x02",
        b"TAGS\x01a\x02A\x01TAGS\x01b\x02",
        b"TAGS\x01a\x01b\x02",
        b"TAGS",
        b"\x02TAGS\x01a\x02",
        "TAGS\x01täg\x02".encode(),
        b"TAGS\x01\xff\xfe\x02",
        b"A\x01b\x02TAGS\x01last",
    ],
)
def test_the_quick_search_says_what_decoding_says(raw: bytes) -> None:
    tag = props.decode(raw).get("TAGS")
    assert tag_code_of("T", raw, 0, ()) == tag_code(tag)
    assert key_hashes("T", raw) == ([plain_hash("T", f"T#{tag}")] if tag else [])


def test_delivery_times_take_the_place_of_tags() -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    levels = parse_delay_levels("1s 5s 2h")
    raw = {level: props.encode({"DELAY": level, "TAGS": "TagA"}) for level in ("1", "3", "9", "0", "-1", "²")}
    assert tag_code_of(topic, raw["1"], 50, levels) == 1_050
    assert tag_code_of(topic, raw["3"], 50, levels) == tag_code_of(topic, raw["9"], 50, levels) == 7_200_050
    assert {tag_code_of(topic, raw[level], 50, levels) for level in ("0", "-1", "²")} == {2598919}
    assert tag_code_of(topic, raw["1"], 50, ()) == 1_050
    assert tag_code_of("other", raw["1"], 50, levels) == 2598919


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 2m 3h 1d") == (1_000, 120_000, 10_800_000, 86_400_000)
    assert parse_delay_levels("") == ()


@pytest.mark.parametrize("text", ["5", "5x", "s", "-1s", "1.5s"])
def test_delay_levels_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_what_stands_in_a_queue() -> None:
    assert [in_queue(flag) for flag in (0, 4, 8, 12, 0x104, 0x101)] == [True, False, True, False, False, True]
