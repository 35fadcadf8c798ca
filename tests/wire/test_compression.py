"""Compressed bodies: those of a Java producer, our own, and bombs."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.wire import compression
from perseid.wire.compression import LZ4, ZLIB, ZSTD, compress, decompress, flag_of

KINDS = [LZ4, ZSTD, ZLIB]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_java_bodies(vectors: Any, index: int) -> None:
    vector = vectors["compressed_bodies"][index]
    plain = decompress(bytes.fromhex(vector["body"]), vector["sys_flag"], vector["plain_bytes"])
    assert hashlib.sha256(plain).hexdigest() == vector["plain_sha256"]


@given(st.binary(max_size=2000), st.sampled_from(KINDS), st.integers(1, 9))
def test_round_trip(body: bytes, kind: int, level: int) -> None:
    assert decompress(compress(body, kind, level), flag_of(kind), len(body)) == body


def test_old_clients_and_plain_bodies() -> None:
    assert decompress(compress(b"body", 0), 1) == b"body"
    assert decompress(b"body", 0x300) == b"body"
    assert decompress(memoryview(b"body"), 0) == b"body"


@pytest.mark.parametrize("kind", KINDS)
def test_bombs_are_refused(kind: int) -> None:
    bomb = compress(bytes(10_000_000), kind)
    with pytest.raises(RemoteProtocolError, match="more than 1000 bytes"):
        decompress(bomb, flag_of(kind), 1000)


def test_a_zstd_frame_that_asks_for_too_much_memory_is_refused() -> None:
    window = compression.zstd.CompressionParameter.window_log
    for log, refused in ((compression.MAX_ZSTD_WINDOW_LOG, False), (compression.MAX_ZSTD_WINDOW_LOG + 1, True)):
        compressor = compression.zstd.ZstdCompressor(options={window: log})
        frame = compressor.compress(b"a") + compressor.flush()  # its length is not in it: the window is
        if refused:
            with pytest.raises(RemoteProtocolError, match="too much memory"):
                decompress(frame, flag_of(ZSTD))
        else:
            assert decompress(frame, flag_of(ZSTD)) == b"a"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"a" * 5000, bytes(range(256)) * 20, bytes(300_000)], ids=len)
def test_bodies_that_are_cut_off_are_refused(kind: int, body: bytes) -> None:
    packed = compress(body, kind)
    for cut in {0, 1, 5, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:cut], flag_of(kind))


@given(st.binary(max_size=60), st.sampled_from(KINDS), st.data())
def test_any_bytes_are_a_body_or_refused(junk: bytes, kind: int, data: st.DataObject) -> None:
    packed = bytearray(compress(b"some body " * 5, kind))
    at = data.draw(st.integers(0, len(packed)))
    packed[at : at + len(junk)] = junk
    try:
        assert len(decompress(packed, flag_of(kind), 1000)) <= 1000
    except RemoteProtocolError:
        return


def test_unknown_kinds() -> None:
    with pytest.raises(RemoteProtocolError, match="0x400"):
        decompress(b"x", flag_of(0x400))
    with pytest.raises(LocalProtocolError, match="0x400"):
        compress(b"x", 0x400)
    assert compression.flag_of(ZLIB) == 0x301
