"""Records: Java's bytes in both directions, and bytes that are no record."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import LocalProtocolError, StoreError
from perseid.wire import record
from perseid.wire.host import Host, host_from
from perseid.wire.record import Message, RecordError

V4 = Host(b"\x7f\0\0\1", 10911)
V6 = Host(bytes(15) + b"\1", 50001)


def message_of(vector: Any) -> Message:
    return Message(
        topic=vector["topic"],
        body=vector["body"].encode(),
        queue_id=vector["queueId"],
        born_timestamp=vector["bornTimestamp"],
        born_host=host_from(vector["bornHost"]),
        store_host=host_from(vector["storeHost"]),
        properties=bytes.fromhex(vector["properties_hex"]),
    )


@pytest.mark.parametrize("index", [0, 1, 2], ids=["v1", "v2", "ipv6"])
def test_java_records(vectors: Any, index: int) -> None:
    vector = vectors["records"][index]
    raw = bytes.fromhex(vector["record_hex"])
    made = record.encode(message_of(vector))
    record.patch(made, vector["queueOffset"], vector["physicalOffset"], vector["storeTimestamp"])
    assert made == raw
    got = record.decode(b"before" + raw + b"after", 6)
    assert (got.size, got.magic) == (vector["size"], vector["magic"]) == record.size_and_magic(raw)
    assert (got.topic, got.body, got.queue_id) == (vector["topic"], vector["body"].encode(), vector["queueId"])
    assert (got.queue_offset, got.physical_offset) == (vector["queueOffset"], vector["physicalOffset"])
    assert (got.born_timestamp, got.store_timestamp) == (vector["bornTimestamp"], vector["storeTimestamp"])
    assert (got.born_host, got.store_host) == (host_from(vector["bornHost"]), host_from(vector["storeHost"]))
    assert got.properties.hex() == vector["properties_hex"]
    assert got.msg_id == vector["offsetMsgId"]


def test_what_a_record_says_of_its_properties(vectors: Any) -> None:
    got = record.decode(bytes.fromhex(vectors["records"][0]["record_hex"]))
    assert got.tag == "TagA"
    assert got.keys == ["k1", "k2"]
    assert got.unique_key == "7F0000010001000000000000000A0000"
    assert got.props == {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": got.unique_key}
    bare = record.decode(record.encode(Message(topic="T", body=b"")))
    assert (bare.tag, bare.keys, bare.unique_key, bare.props) == (None, [], None, {})


def test_all_records_of_a_pull(vectors: Any) -> None:
    raws = [bytes.fromhex(vector["record_hex"]) for vector in vectors["records"]]
    got = record.decode_all(memoryview(b"".join(raws)))
    assert [r.topic for r in got] == [vector["topic"] for vector in vectors["records"]]
    assert record.decode_all(b"") == []
    with pytest.raises(RecordError):
        record.decode_all(b"".join(raws) + b"\0" * 7)


def test_blank(vectors: Any) -> None:
    blank = record.blank(vectors["blank"]["size"])
    assert blank.hex() == vectors["blank"]["hex_first_8"]
    assert record.size_and_magic(blank) == (82, record.BLANK_MAGIC)
    with pytest.raises(RecordError, match="magic"):
        record.decode(blank + bytes(200))


hosts = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
messages = st.builds(
    Message,
    topic=st.text(max_size=300),
    body=st.binary(max_size=300),
    queue_id=int32,
    flag=int32,
    sys_flag=int32,
    born_timestamp=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    properties=st.binary(max_size=300),
)


@given(message=messages, places=st.tuples(int64, int64, int64))
def test_any_message_round_trips(message: Message, places: tuple[int, int, int]) -> None:
    raw = record.encode(message)
    record.patch(raw, *places)
    got = record.decode(raw)
    assert got.size == len(raw)
    assert (got.queue_offset, got.physical_offset, got.store_timestamp) == places
    v6 = record.SYS_BORN_HOST_V6 | record.SYS_STORE_HOST_V6
    assert got.sys_flag & ~v6 == message.sys_flag & ~v6
    for name in ("topic", "body", "queue_id", "flag", "born_timestamp", "born_host", "store_host", "reconsume_times"):
        assert getattr(got, name) == getattr(message, name), name
    assert got.prepared_transaction_offset == message.prepared_transaction_offset
    assert got.properties == message.properties
    assert got.magic == (record.MAGIC_V1 if len(message.topic.encode()) <= 127 else record.MAGIC_V2)


@given(message=messages, cut=st.integers(0, 1000))
def test_a_record_that_is_cut_off_is_none(message: Message, cut: int) -> None:
    raw = record.encode(message)
    with pytest.raises(RecordError):
        record.decode(raw[: min(cut, len(raw) - 1)])


@pytest.mark.parametrize("host", [V4, V6], ids=["v4", "v6"])
def test_any_changed_length_is_found(host: Host) -> None:
    """Lengths have to add up: no single length can be changed to another that is accepted."""
    raw = record.encode(Message(topic="Topic", body=b"12345", born_host=host, store_host=host, properties=b"A\1B\2"))
    body_at = 80 + 2 * len(host.ip)
    topic_at = body_at + 5
    properties_at = topic_at + 6
    for at, size in ((0, 4), (body_at - 4, 4), (topic_at, 1), (properties_at, 2)):
        right = int.from_bytes(raw[at : at + size], "big")
        for wrong in {0, 1, right - 1, right + 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1)} - {right}:
            changed = raw[:at] + wrong.to_bytes(size, "big") + raw[at + size :]
            with pytest.raises(RecordError):
                record.decode(changed + bytes(50), check_crc=False)


def test_a_changed_body_is_found_when_looked_for() -> None:
    raw = record.encode(Message(topic="T", body=b"12345"))
    raw[90] ^= 1
    with pytest.raises(RecordError, match="checksum"):
        record.decode(raw)
    assert record.decode(raw, check_crc=False).body != b"12345"
    assert issubclass(RecordError, StoreError)


def test_a_topic_that_is_not_utf8() -> None:
    raw = record.encode(Message(topic="T", body=b""))
    raw[89] = 0xFF
    with pytest.raises(RecordError, match="UTF-8"):
        record.decode(raw)


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="T" * 32768, body=b""),
        Message(topic="T", body=b"", properties=bytes(32768)),
        Message(topic="T", body=b"", queue_id=2**31),
        Message(topic="T", body=b"", born_timestamp=2**63),
        Message(topic="T", body=b"", reconsume_times=-(2**31) - 1),
    ],
    ids=["topic", "properties", "queue", "born", "times"],
)
def test_what_does_not_fit(message: Message) -> None:
    with pytest.raises(RecordError):
        record.encode(message)


def test_hosts() -> None:
    assert str(host_from("1.2.3.4:5")) == "1.2.3.4:5"
    assert str(host_from("[::1]:5")) == "[::1]:5" == str(host_from("0:0:0:0:0:0:0:1:5"))
    assert host_from("[fe80::1%eth0]:5") == host_from("fe80:0:0:0:0:0:0:1:5")
    for wrong in ("", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "localhost:5", "1.2.3:5"):
        with pytest.raises(LocalProtocolError):
            host_from(wrong)


@given(st.binary(max_size=300), st.integers(0, 10))
def test_any_bytes_are_a_record_or_refused(data: bytes, at: int) -> None:
    for magic in (record.MAGIC_V1, record.MAGIC_V2):
        raw = (len(data) + 8).to_bytes(4, "big") + (magic & 0xFFFFFFFF).to_bytes(4, "big") + data
        try:
            assert record.decode(bytes(at) + raw, at, check_crc=False).size == len(raw)
        except RecordError:
            continue
