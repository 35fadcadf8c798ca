"""Message ids of brokers and clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import RemoteProtocolError
from perseid.wire.host import Host, host_from
from perseid.wire.ids import UniqueIds, offset_message_id, parse_offset_message_id


def test_java_ids(vectors: Any) -> None:
    known = vectors["message_ids"]
    v4, v6 = host_from("127.0.0.1:10911"), host_from("[::1]:10911")
    assert offset_message_id(v4, 4096) == known["offsetMsgId_v4(127.0.0.1:10911,offset=4096)"]
    assert offset_message_id(v6, 4096) == known["offsetMsgId_v6(::1:10911,offset=4096)"]


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
    st.integers(0, 2**63 - 1),
)
def test_offset_ids_round_trip(ip: bytes, port: int, offset: int) -> None:
    assert parse_offset_message_id(offset_message_id(Host(ip, port), offset)) == (Host(ip, port), offset)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "7F 0" * 8, "0" * 33, "F" * 32, "0" * 16 + "F" * 16, "é" * 32])
def test_what_is_no_offset_id(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a message id"):
        parse_offset_message_id(text)


def test_unique_ids_hold_their_parts() -> None:
    ids = UniqueIds(b"\x0a\0\0\1", 0x12345, 0xCAFEBABE, counter=0xFFFF)
    november = 1_793_491_200_000  # 2026-11-01T00:00:00Z
    assert ids.next(november) == "0A0000012345CAFEBABE00000000FFFF"
    assert ids.next(november + 1) == "0A0000012345CAFEBABE000000010000"
    assert ids.next(november - 1) == f"0A0000012345CAFEBABE{31 * 86_400_000 - 1:08X}0001"
    assert len(UniqueIds(bytes(16), 1, 2).next(november)) == 56


def test_the_months_of_a_year_s_end() -> None:
    ids = UniqueIds(bytes(4), 0, 0)
    january = 1_798_761_600_000  # 2027-01-01T00:00:00Z
    assert ids.next(january - 1)[20:28] == f"{31 * 86_400_000 - 1:08X}"
    assert ids.next(january)[20:28] == "00000000"


def test_unique_ids_are_unique() -> None:
    ids = UniqueIds(bytes(4), 1, 2)
    assert len({ids.next(1_700_000_000_000 + i // 60_000) for i in range(100_000)}) == 100_000
