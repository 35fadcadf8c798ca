"""The body of SEND_BATCH_MESSAGE: several small messages for one queue, one after the other (store.md §3.7).

    total size 4, magic 4 (0), CRC 4 (0), flag 4, body 4 + n, properties 2 + n
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.wire.properties import MAX_BYTES

_HEAD = Struct(">iiiii")
_SHORT = Struct(">h")
FLAG_AT, BODY_SIZE_AT = 12, 16
"""In a message of a batch."""
MIN_ITEM_BYTES = _HEAD.size + _SHORT.size
MAX_MESSAGES = 65536
"""In one batch. A limit of ours: the original has only that of the frame."""


class BatchItem(NamedTuple):
    """One message; `body` is a view of what was decoded, `properties` the encoded form."""

    flag: int
    body: Buffer
    properties: bytes


def encode(items: Iterable[tuple[int, Buffer, bytes]]) -> bytes:
    """The body of a batch of (flag, body, properties)."""
    parts: list[Buffer] = []
    pack_head, pack_short = _HEAD.pack, _SHORT.pack
    for flag, body, properties in items:
        if len(properties) > MAX_BYTES:
            raise LocalProtocolError(f"properties of {len(properties)} bytes; at most {MAX_BYTES} fit")
        total = MIN_ITEM_BYTES + len(body) + len(properties)
        parts += (pack_head(total, 0, 0, flag, len(body)), body, pack_short(len(properties)), properties)
    return b"".join(parts)


def decode(body: Buffer) -> list[BatchItem]:
    """The messages of a batch; RemoteProtocolError when the lengths don't add up."""
    view = memoryview(body)
    total = len(view)
    items: list[BatchItem] = []
    at = 0
    while at < total:
        if total - at < MIN_ITEM_BYTES:
            raise RemoteProtocolError(f"a batch ends with {total - at} bytes that are no message")
        size, _, _, flag, body_bytes = _HEAD.unpack_from(view, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_bytes + 2
        end = at + size
        if end > total or body_bytes < 0 or properties_at > end:
            raise RemoteProtocolError(
                f"message {len(items)} of a batch: {size} bytes, body {body_bytes}, {total - at} left"
            )
        properties_bytes: int = _SHORT.unpack_from(view, properties_at - 2)[0]
        if properties_bytes < 0 or properties_at + properties_bytes != end:
            raise RemoteProtocolError(
                f"message {len(items)} of a batch: {size} bytes, body {body_bytes}, properties {properties_bytes}"
            )
        items.append(BatchItem(flag, view[body_at : properties_at - 2], bytes(view[properties_at:end])))
        if len(items) > MAX_MESSAGES:
            raise RemoteProtocolError(f"a batch of more than {MAX_MESSAGES} messages")
        at = end
    return items
