"""Inner batches as clients take them apart."""

from __future__ import annotations

from perseid.wire import batch, compression, inner
from perseid.wire.host import host_from
from perseid.wire.record import Message, Record, decode, decode_all, encode, patch

HOST = host_from("10.0.0.1:10911")


NUMBER = b"INNER_NUM\x012\x02"


def record(body: bytes, sys_flag: int = inner.WRAPPED, offset: int = 7, properties: bytes = NUMBER) -> bytes:
    made = encode(
        Message(
            topic="T", body=body, queue_id=3, sys_flag=sys_flag, born_timestamp=5, born_host=HOST, store_host=HOST,
            properties=properties,
        )
    )  # fmt: skip
    patch(made, offset, 4_096, 9)
    return bytes(made)


BATCH = batch.encode([(1, b"a", b"TAGS\x01x\x02"), (2, b"b", b"TAGS\x01y\x02")])


def facts(one: Record) -> tuple[object, ...]:
    return one.queue_offset, one.body, one.tag, one.flag, one.physical_offset, one.store_timestamp, one.sys_flag


def test_each_message_has_an_offset_and_the_place_of_its_record() -> None:
    assert [facts(one) for one in inner.unwrap(decode(record(BATCH)))] == [
        (7, b"a", "x", 1, 4_096, 9, 0),
        (8, b"b", "y", 2, 4_096, 9, 0),
    ]


def test_a_body_that_is_compressed_as_a_whole() -> None:
    packed = compression.compress(BATCH)
    assert [one.body for one in inner.unwrap(decode(record(packed, inner.WRAPPED | 0x301)))] == [b"a", b"b"]


def test_what_is_no_batch_is_one_message() -> None:
    for body, sys_flag in ((b"hello", inner.WRAPPED), (BATCH, 0), (BATCH, 0x80), (BATCH, 0x40), (BATCH[:-1], 0xC0)):
        one = decode(record(body, sys_flag))
        assert inner.unwrap(one) == [one]


def test_expanded_each_message_has_a_record_of_its_own() -> None:
    plain = record(b"c", 0, 9, b"")
    body = record(BATCH) + plain
    found = inner.expanded(memoryview(body), 8, 10)
    assert [(one.queue_offset, one.body, one.tag) for one in decode_all(found)] == [(8, b"b", "y"), (9, b"c", None)]
    assert bytes(found).endswith(plain)
    assert inner.expanded(plain, 0, 10) is plain, "nothing to do"
    assert decode_all(inner.expanded(body, 0, 8))[0].body == b"a"
