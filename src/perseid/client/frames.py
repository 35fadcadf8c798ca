"""Frames of sends, by a template for each queue: of a header only three values change from one send to the next.

    {"code":310,"extFields":{…,"g":"BORN",…,"i":"PROPERTIES",…},…,"opaque":OPAQUE,…}

The template is cut out of a frame that `encode_request` has made, so both write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from perseid.base.errors import LocalProtocolError
from perseid.wire.command import encode_request
from perseid.wire.frame import MAX_FRAME_BYTES
from perseid.wire.headers.base import quote
from perseid.wire.headers.send import SendMessageRequestV2

_MARK = 8_888_888_888_888_888_888
"""A time, and digits of a text, that stand nowhere else in a header."""
_OPAQUE = 2**31 - 1
_PREFIX = Struct(">II")

Frame = Callable[[int], bytes]
"""A frame, once it has its `opaque`."""


class SendTemplate:
    """Of sends with one header, but for the time, the properties and the opaque."""

    __slots__ = ("_after_born", "_after_opaque", "_after_properties", "_before_born")

    def __init__(self, code: int, header: SendMessageRequestV2) -> None:
        header.born_timestamp, header.properties = _MARK, f"<{_MARK}>"
        text = encode_request(code, _OPAQUE, header)[_PREFIX.size :].decode()
        self._before_born, rest = _cut(text, f'"{_MARK}"')
        self._after_born, rest = _cut(rest, quote(header.properties))
        self._after_properties, _, self._after_opaque = rest.rpartition(str(_OPAQUE))  # behind all texts
        self._before_born += '"'
        self._after_born = '"' + self._after_born

    def frame(self, opaque: int, born_timestamp: int, properties: str, body: bytes) -> bytes:
        """A whole frame. LocalProtocolError when it is too long to be sent."""
        text = (
            f"{self._before_born}{born_timestamp}{self._after_born}{quote(properties)}{self._after_properties}{opaque}"
            f"{self._after_opaque}"
        )
        head = text.encode() if text.isascii() else text.encode("utf-8", "replace")
        length = 4 + len(head) + len(body)
        if length > MAX_FRAME_BYTES:
            raise LocalProtocolError(f"a frame of {length} bytes; {MAX_FRAME_BYTES} can be sent")
        return b"".join((_PREFIX.pack(length, len(head)), head, body))


def _cut(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    assert found and mark not in after, f"{mark} is to stand in a header once: {text}"
    return before, after
