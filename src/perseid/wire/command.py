"""Commands: the requests and responses that travel in frames.

`decode_all` makes one pass over the frames of a read and decodes the few fields that every command has; the
ext fields of a JSON header stay raw bytes. `Command.header(SomeRequest)` then decodes those straight into the
typed header: no dictionary is made on the way. `Command.ext` is the dictionary, for those who need it.

    for command in decode_all(data):                    # a send: 1.9 µs; any other: 1.1 µs
        header = command.header(SendMessageRequestV2)   # a send: 0.1 µs; any other: 0.9 µs
        …
        out.append(encode_response(command.opaque, header=SendMessageResponse(…)))      # 1.3 µs

For sends and pulls (`HOT`) the typed header is decoded in the same step. Their frames are known by four bytes:
a header that begins with `{"code":310,` has `310,` at byte 16. That is a guess only: whatever is asked for
afterwards is decoded from the bytes again when the guess was wrong.

What the quick way refuses (raw control characters, numbers in place of strings, odd escapes) is read again
with care before it is given up.

A command points into the bytes that it was decoded from: call `keep()` to hold one for longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, TypeVar

import msgspec

from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.base.machine import Buffer
from perseid.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, Language, Serializer
from perseid.wire.frame import MAX_FRAME_BYTES
from perseid.wire.headers.base import (
    INT_MAX,
    INT_MIN,
    Header,
    Int,
    bools_of,
    from_ext,
    from_json,
    quote,
    say_true,
    to_ext,
    true_texts_of,
)
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2

__all__ = [
    "JSON_END",
    "Command",
    "Serializer",
    "decode",
    "decode_all",
    "decode_at",
    "decode_each",
    "encode_request",
    "encode_response",
    "response_head",
    "response_parts",
]

H = TypeVar("H", bound=Header)

_PREFIX = Struct(">II")
_prefix = _PREFIX.unpack_from
_pack_prefix = _PREFIX.pack
JSON_END = f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
"""Ends each JSON header. Clients in Rust can't read one that doesn't say its serializer."""
_HINTED = Struct(">II8xI")
"""Length, serializer and header length, and what follows `{"code":`."""
_hinted = _HINTED.unpack_from
_BINARY_HEAD = Struct(">hBhii")
_INT = Struct(">i")
_int = _INT.unpack_from
_SHORT = Struct(">h")

_NO_EXT = msgspec.Raw(b"{}")
_BINARY = msgspec.Raw(b"")
"""In the place of raw JSON: the ext fields of a binary header are decoded at once."""

MAX_REMARK_BYTES = 1024
"""Of an answer, in UTF-8."""

_LANGUAGE_CODES = {language.name: int(language) for language in Language}
_OTHER = int(Language.OTHER)
_MAX_LANGUAGE = max(Language)


class Command(msgspec.Struct):
    """One request or response. Decoded straight from a JSON header, so the first fields are its members."""

    code: Int = 0
    opaque: Int = 0
    flag: Int = 0
    version: Int = 0
    _language: Any = msgspec.field(default=None, name="language")
    remark: str | None = None
    _raw: msgspec.Raw = msgspec.field(default=_NO_EXT, name="extFields")
    """The ext fields: raw JSON, `_BINARY`, or (in subclasses, for hot requests) the typed header."""
    body: Any = b""
    """What follows the header: a view of the received bytes, or `b""`."""
    _ext: Any = None
    _head: Any = None
    """The whole JSON header, where `_raw` is typed."""

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Nobody waits for an answer, so none may be sent."""
        return self.flag & FLAG_ONEWAY != 0

    @property
    def language(self) -> int:
        """The peer's `Language`; OTHER when it is unknown."""
        value = self._language
        if isinstance(value, str):
            return _LANGUAGE_CODES.get(value, _OTHER)
        return value if type(value) is int and 0 <= value <= _MAX_LANGUAGE else _OTHER

    @property
    def serializer(self) -> Serializer:
        """How the header was written."""
        return Serializer.ROCKETMQ if self._raw is _BINARY else Serializer.JSON

    @property
    def ext(self) -> dict[str, str]:
        """All ext fields as strings. RemoteProtocolError when the JSON can't be read."""
        ext: dict[str, str] | None = self._ext
        if ext is None:
            raw = self._raw if type(self._raw) is msgspec.Raw else _decode_json_head(self._head, 0)._raw
            ext = self._ext = _ext_of(raw)
        return ext

    def header(self, header_type: type[H]) -> H:
        """The ext fields as a typed header.

        Of a request that lacks a required field or has an unreadable one: RequestRefused(1), naming it. Of a
        response, and when the JSON can't be read at all: RemoteProtocolError.
        """
        raw: Any = self._raw
        if type(raw) is header_type:
            typed: H = raw
            return typed
        if self._ext is None and type(raw) is msgspec.Raw:
            header = from_json(header_type, raw)
            if header is not None:
                return header
        try:
            return from_ext(header_type, self.ext)
        except RequestRefused as refused:
            if self.is_response:
                raise RemoteProtocolError(f"a response that can't be understood: {refused.remark}") from None
            raise

    @property
    def quick_header(self) -> Header | None:
        """The typed header, where it was decoded together with the command (`HOT`); None: ask `header`."""
        raw: Any = self._raw
        return raw if isinstance(raw, Header) else None

    def keep(self) -> Command:
        """Copy what points into received bytes, so that the command may outlive the call; returns itself."""
        if type(self._raw) is not msgspec.Raw:
            self._head = bytes(self._head)
        elif self._raw is not _BINARY:
            self._raw = self._raw.copy()
        if self.body:
            self.body = bytes(self.body)
        return self


# ---- decoding ----

_decode_head = msgspec.json.Decoder(Command, strict=False).decode
_decode_ext = msgspec.json.Decoder(dict[str, str]).decode

HOT: dict[bytes, type[Header]] = {
    b"310,": SendMessageRequestV2,
    b"320,": SendMessageRequestV2,
    b'10,"': SendMessageRequest,
    b"11,\"": PullMessageRequest,
    b"904,": BrokerHeartbeatRequest,
}
"""What follows `{"code":` in the headers that are decoded whole at once."""


_Quick = tuple[Callable[[Any], Command], Callable[[Any], tuple[Any, ...]], tuple[bytes, ...]]


def _quick_decoder(header_type: type[Header]) -> _Quick:
    """A decoder of the whole JSON header, a getter of the booleans of the typed one, and how they say true."""
    fields = [("_raw", header_type, msgspec.field(name="extFields")), ("_ext", None, None)]
    kind: Any = msgspec.defstruct(f"{header_type.__name__}Command", fields, bases=(Command,), kw_only=True)
    return msgspec.json.Decoder(kind, strict=False).decode, bools_of(header_type), true_texts_of(header_type)


_QUICK = {int.from_bytes(hint, "big"): _quick_decoder(header_type) for hint, header_type in HOT.items()}


def decode(frame: Buffer) -> Command:
    """The command in one whole frame, with its length word; RemoteProtocolError when there is none."""
    commands = decode_all(frame)
    if len(commands) != 1:
        raise RemoteProtocolError(f"{len(commands)} frames where one was expected")
    return commands[0]


def decode_all(data: Buffer) -> list[Command]:
    """The commands in whole frames that follow one another (`frame.complete` finds where they end).

    RemoteProtocolError at the first frame that can't be read.
    """
    return list(decode_each(data))


def decode_each(data: Buffer) -> Iterator[Command]:
    """The same one after the other: what stands before a frame that can't be read comes out."""
    view, at = memoryview(data), 0
    while at < len(view):
        command, at = decode_at(view, at)
        yield command


def decode_at(view: memoryview, at: int) -> tuple[Command, int]:
    """The command in the frame that begins at `at`, and where that ends."""
    left = len(view) - at
    if left < 8:
        raise RemoteProtocolError(f"{left} bytes after the last whole frame")
    length, word, hint = _hinted(view, at) if left >= 20 else (*_prefix(view, at), 0)
    body_at = at + 8 + (word & 0xFFFFFF)
    end: int = at + 4 + length
    if length > left - 4 or body_at > end:
        raise RemoteProtocolError(f"a frame of {length} bytes, {word & 0xFFFFFF} of them header, where {left} are left")
    head = view[at + 8 : body_at]
    if word <= 0xFFFFFF:
        command = _decode_json_head(head, hint)
    elif word <= 0x1FFFFFF:
        command = _decode_binary_head(head)
    else:
        raise RemoteProtocolError(f"unknown serializer {word >> 24} of a frame's header")
    command.body = view[body_at:end] if end > body_at else b""
    return command, end


def _decode_json_head(head: Buffer, hint: int) -> Command:
    quick = _QUICK.get(hint)
    if quick is not None:
        try:
            command = quick[0](head)
            bools = quick[1](command._raw)
            if True not in bools or say_true(bytes(head), bools, quick[2]):
                command._head = head
                return command
        except (ValueError, RecursionError):
            pass
    try:
        command = _decode_head(head)
        command._ext = None
        return command
    except (ValueError, RecursionError):
        return _decode_head_with_care(bytes(head))


def _load_with_care(raw: bytes) -> Any:
    """JSON as lenient as Java's reader: raw control characters, lone surrogates. Numbers stay texts."""
    try:
        return json.loads(str(raw, "utf-8"), strict=False, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise RemoteProtocolError(f"a JSON header that can't be read: {why}") from None


def _text(value: Any) -> str:
    """What a JSON value is as the value of an ext field."""
    if value is True or value is False:
        return "true" if value else "false"
    if not isinstance(value, str):
        try:
            value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise RemoteProtocolError("an ext field of a JSON header is nested too deeply") from None
    return value if value.isascii() else str(value.encode("utf-8", "replace"), "utf-8")


def _strings(members: Any) -> dict[str, str]:
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise RemoteProtocolError("the extFields of a JSON header are no object")
    return {_text(name): _text(value) for name, value in members.items() if value is not None}


def _ext_of(raw: msgspec.Raw) -> dict[str, str]:
    try:
        ext: dict[str, str] = _decode_ext(raw)
        return ext
    except (ValueError, RecursionError):
        return _strings(_load_with_care(bytes(raw)))


def _decode_head_with_care(raw: bytes) -> Command:
    members = _load_with_care(raw)
    if not isinstance(members, dict):
        raise RemoteProtocolError("a JSON header that is no object")
    language, remark = members.get("language"), members.get("remark")
    if isinstance(language, str) and language.isdecimal() and len(language) < 4:
        language = int(language)
    command = Command(
        code=_int32(members, "code"),
        opaque=_int32(members, "opaque"),
        flag=_int32(members, "flag"),
        version=_int32(members, "version"),
        remark=None if remark is None else _text(remark),
    )
    command._language = language
    command._ext = _strings(members.get("extFields"))
    return command


def _int32(members: dict[str, Any], name: str) -> int:
    text = members.get(name)
    if text is None:
        return 0
    try:
        number = int(text) if isinstance(text, str) and len(text) < 20 else INT_MAX + 1
    except ValueError:
        number = INT_MAX + 1
    if not INT_MIN <= number <= INT_MAX:
        raise RemoteProtocolError(f"the {name} of a header is no int32: {str(text)[:80]}")
    return number


def _decode_binary_head(head: memoryview) -> Command:
    """The ROCKETMQ form: fixed part, remark, pairs of short-length names and int-length values."""
    total = len(head)
    if total < 21:
        raise RemoteProtocolError(f"a binary header of {total} bytes; at least 21 are needed")
    code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(head)
    remark_bytes: int = _int(head, 13)[0]
    at = 17 + remark_bytes
    if remark_bytes < 0 or at + 4 > total:
        raise RemoteProtocolError(f"a remark of {remark_bytes} bytes in a binary header of {total}")
    ext_bytes: int = _int(head, at)[0]
    at += 4
    if ext_bytes < 0 or at + ext_bytes > total:
        raise RemoteProtocolError(f"ext fields of {ext_bytes} bytes in a binary header of {total}")
    try:
        remark = str(head[17 : 17 + remark_bytes], "utf-8") if remark_bytes else None
        ext = _binary_ext(bytes(head[at : at + ext_bytes]))
    except UnicodeDecodeError:
        raise RemoteProtocolError("a binary header with text that is not UTF-8") from None
    command = Command(code, opaque, flag, version, remark=remark)
    command._language, command._raw, command._ext = language, _BINARY, ext
    return command


def _binary_ext(raw: bytes) -> dict[str, str]:
    """Pairs; those with an empty name or value count as absent."""
    ext: dict[str, str] = {}
    at, total = 0, len(raw)
    while at < total:
        name_at = at + 2
        value_word_at = name_at + (raw[at] << 8 | raw[at + 1]) if name_at <= total else total
        value_at = value_word_at + 4
        if value_at > total:
            raise RemoteProtocolError("an ext field of a binary header is longer than the header")
        value_bytes: int = _int(raw, value_word_at)[0]
        at = value_at + value_bytes
        if value_bytes < 0 or at > total:
            raise RemoteProtocolError("an ext field of a binary header is longer than the header")
        if value_bytes and value_word_at > name_at:
            ext[raw[name_at:value_word_at].decode()] = raw[value_at:at].decode()
    return ext


# ---- encoding ----


def encode_request(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str | None] | None = None,
    body: Buffer = b"",
    *,
    oneway: bool = False,
    serializer: Serializer = Serializer.JSON,
) -> bytes:
    """A whole frame with a request. LocalProtocolError when it can't be written."""
    flag = FLAG_ONEWAY if oneway else 0
    head = _head(code, opaque, flag, header, None, len(body), serializer)
    return b"".join((head, body)) if body else head


def encode_response(
    opaque: int,
    code: int = 0,
    header: Header | Mapping[str, str | None] | None = None,
    body: Buffer = b"",
    *,
    remark: str | None = None,
    serializer: Serializer = Serializer.JSON,
) -> bytes:
    """A whole frame with a response. LocalProtocolError when it can't be written."""
    head = _head(code, opaque, FLAG_RESPONSE, header, _clipped(remark), len(body), serializer)
    return b"".join((head, body)) if body else head


def response_parts(
    opaque: int,
    code: int = 0,
    header: Header | Mapping[str, str | None] | None = None,
    body: Buffer = b"",
    *,
    remark: str | None = None,
    serializer: Serializer = Serializer.JSON,
) -> tuple[bytes, Buffer]:
    """The same as two pieces, the body not copied."""
    return _head(code, opaque, FLAG_RESPONSE, header, _clipped(remark), len(body), serializer), body


def response_head(
    opaque: int,
    code: int = 0,
    header: Header | Mapping[str, str | None] | None = None,
    body_bytes: int = 0,
    *,
    remark: str | None = None,
    serializer: Serializer = Serializer.JSON,
) -> bytes:
    """A response's frame up to its body: the caller sends `body_bytes` after it, in any number of pieces."""
    return _head(code, opaque, FLAG_RESPONSE, header, _clipped(remark), body_bytes, serializer)


def _clipped(remark: str | None) -> str | None:
    """At most MAX_REMARK_BYTES of it, for it may quote what a stranger sent."""
    if remark is None or 4 * len(remark) <= MAX_REMARK_BYTES:
        return remark
    raw = remark.encode("utf-8", "replace")
    return remark if len(raw) <= MAX_REMARK_BYTES else raw[:MAX_REMARK_BYTES].decode("utf-8", "ignore") + "…"


def _head(
    code: int,
    opaque: int,
    flag: int,
    header: Header | Mapping[str, str | None] | None,
    remark: str | None,
    body_bytes: int,
    serializer: Serializer,
) -> bytes:
    if not serializer:  # JSON
        end = JSON_END if remark is None else f'"remark":{quote(remark)},{JSON_END}'
        if code == 0 and flag == FLAG_RESPONSE and header is not None:  # the usual answer
            text = f'{{"code":0,"extFields":{_json_of(header)},"flag":1,"language":"PYTHON","opaque":{opaque},{end}'
        else:
            ext = "" if header is None else f'"extFields":{_json_of(header)},'
            text = f'{{"code":{code},{ext}"flag":{flag},"language":"PYTHON","opaque":{opaque},{end}'
        head = text.encode() if text.isascii() else text.encode("utf-8", "replace")
        word = len(head)
    else:
        head = _binary_head(code, opaque, flag, header, remark)
        word = Serializer.ROCKETMQ << 24 | len(head)
    length = 4 + len(head) + body_bytes
    if length > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"a frame of {length} bytes (code {code}); {MAX_FRAME_BYTES} can be sent")
    return _pack_prefix(length, word) + head


def _json_of(header: Header | Mapping[str, str | None]) -> str:
    try:
        return header.json_ext()  # type: ignore[union-attr]
    except AttributeError:  # a mapping; this is quicker than isinstance
        return "{" + ",".join([f"{quote(n)}:{quote(v)}" for n, v in header.items() if v is not None]) + "}"  # type: ignore[union-attr]


def _binary_head(
    code: int, opaque: int, flag: int, header: Header | Mapping[str, str | None] | None, remark: str | None
) -> bytes:
    if not -0x8000 <= code <= 0x7FFF:
        raise LocalProtocolError(f"code {code} does not fit into the 16 bits of a binary header: use JSON")
    pairs = bytearray()
    ext = {} if header is None else to_ext(header) if isinstance(header, Header) else header
    for name, value in ext.items():
        if value is None:
            continue
        name_raw, value_raw = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        try:
            pairs += _SHORT.pack(len(name_raw)) + name_raw + _INT.pack(len(value_raw)) + value_raw
        except struct_error:
            raise LocalProtocolError(f"the name of an ext field is too long: {name[:80]!r}") from None
    note = b"" if remark is None else remark.encode("utf-8", "replace")
    return b"".join(
        (
            _BINARY_HEAD.pack(code, Language.PYTHON, VERSION, opaque, flag),
            _INT.pack(len(note)),
            note,
            _INT.pack(len(pairs)),
            pairs,
        )
    )
