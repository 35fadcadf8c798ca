"""JSON as Java's fastjson writes and reads it.

fastjson writes the keys of a map as the values that they are: `{0:"a"}` for numbers, and for objects
`{{"brokerName":"b","queueId":0,"topic":"t"}:{…}}`. Members of objects are sorted by name, those that are null
are left out. Here:

- `loads` reads that and plain JSON. All keys come as `str`: a number as its digits, an object as its compact
  text with sorted members, which can be read again.
- `dumps` writes str, int, float, bool, None, mappings, sequences, sets and msgspec structs (also as keys).
  Bytes and `msgspec.Raw` count as JSON that is written already.
- `pretty` is the form of the configuration files: tabs, no space after a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import msgspec

from perseid.base.errors import LocalProtocolError, RemoteProtocolError
from perseid.base.machine import Buffer

MAX_DEPTH = 100
"""Objects and arrays within one another."""


class JsonError(RemoteProtocolError, ValueError):
    """Text that is no JSON, even with fastjson's liberties; says where."""


# ---- reading ----

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_.+$-]+", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
MAX_NUMBER_CHARS = 400

_decode = msgspec.json.Decoder().decode


def loads(text: Buffer | str) -> Any:
    """The value that a text holds, in builtins; JsonError when it can't be read."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        reader = _Reader(text if isinstance(text, str) else str(text, "utf-8"))
    except UnicodeDecodeError as error:
        raise JsonError(f"JSON that is not UTF-8: {error.reason} at byte {error.start}") from None
    return reader.document()


class _Reader:
    """A reader for what the strict decoder refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        value = self._value(0, False)
        self._skip()
        if self._at < len(self._text):
            raise self._error("something follows the value")
        return value

    def _error(self, why: str) -> JsonError:
        return JsonError(f"JSON that can't be read: {why} at character {self._at}")

    def _skip(self) -> str:
        """The next character after spaces, `""` at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int, in_key: bool) -> Any:
        if depth > MAX_DEPTH:
            raise self._error("too deeply nested")
        first = self._skip()
        if first == "{":
            return self._object(depth + 1, in_key)
        if first == "[":
            return self._array(depth + 1, in_key)
        if first == '"':
            return self._string()
        word = self._word()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return int(word) if _INTEGER.fullmatch(word) else float(word)
        except ValueError:
            raise self._error(f"{word[:20]!r} is no value") from None

    def _object(self, depth: int, in_key: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        if self._skip() == "}":
            self._at += 1
            return found
        while True:
            first = self._skip()
            if first == '"':
                key = self._string()
            elif first == "{":
                if in_key:  # or each level would escape the text of the one below anew
                    raise self._error("an object as a key within a key")
                key = canonical(self._object(depth + 1, True))
            else:
                key = self._word()
            if self._skip() != ":":
                raise self._error("a colon is missing")
            self._at += 1
            found[key] = self._value(depth, in_key)
            if self._end_of_item("}"):
                return found

    def _array(self, depth: int, in_key: bool) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        if self._skip() == "]":
            self._at += 1
            return found
        while True:
            found.append(self._value(depth, in_key))
            if self._end_of_item("]"):
                return found

    def _end_of_item(self, end: str) -> bool:
        mark = self._skip()
        if mark != "," and mark != end:
            raise self._error(f"a comma or {end} is missing")
        self._at += 1
        return mark == end

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("a string without an end")
        value = match[1]
        if "\\" in value:
            try:
                value = json.loads(match[0], strict=False)
            except ValueError:
                raise self._error("a bad escape in a string") from None
            value = str(value.encode("utf-8", "replace"), "utf-8")  # a lone surrogate is no text
        self._at = match.end()
        return value

    def _word(self) -> str:
        match = _WORD.match(self._text, self._at)
        if match is None or match.end() - self._at > MAX_NUMBER_CHARS:
            raise self._error("no value")
        self._at = match.end()
        return match[0]


def canonical(value: Any) -> str:
    """The text by which an object stands as a key: compact, members sorted."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


# ---- writing ----


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Compact text. With `standard` it is JSON for everyone: all keys are strings, all characters ASCII."""
    return _Writer(standard, False).text(value, 0).encode("utf-8", "replace")


def pretty(value: Any) -> bytes:
    """The form of the configuration files: a member a line, tabs, no space after the colon."""
    return _Writer(False, True).text(value, 0).encode("utf-8", "replace")


_MEMBERS: dict[type[msgspec.Struct], list[tuple[str, str]]] = {}


def _members_of(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """(wire name in quotes and its colon, attribute) of a struct, sorted as fastjson does."""
    members = _MEMBERS.get(kind)
    if members is None:
        names = sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        members = _MEMBERS[kind] = [(f"{encode_basestring_ascii(name)}:", attr) for name, attr in names]
    return members


class _Writer:
    def __init__(self, standard: bool, spread: bool) -> None:
        self._standard = standard
        self._spread = spread
        self._quote: Callable[[str], str] = encode_basestring_ascii if standard else encode_basestring

    def text(self, value: Any, depth: int) -> str:
        kind = type(value)
        if kind is str:
            return self._quote(value)
        if kind is int:
            return str(value)
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if kind is dict:
            return self._mapping(value, depth)
        if isinstance(value, msgspec.Struct):
            return self._struct(value, depth)
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | Set):
            return self._enclosed("[", [self.text(item, depth + 1) for item in value], "]", depth)
        return self._rare(value, depth)

    def _struct(self, value: msgspec.Struct, depth: int) -> str:
        quote, text, depth_inside = self._quote, self.text, depth + 1
        members: list[str] = []
        for name, attr in _members_of(type(value)):
            member = getattr(value, attr)
            kind = type(member)
            if kind is str:
                members.append(name + quote(member))
            elif kind is int:
                members.append(f"{name}{member}")
            elif member is not None:
                members.append(name + text(member, depth_inside))
        return self._enclosed("{", members, "}", depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> str:
        quote, text, depth_inside = self._quote, self.text, depth + 1
        pairs: list[str] = []
        for key, member in value.items():
            if member is not None:
                name = quote(key) if type(key) is str else self._key(key)
                pairs.append(f"{name}:{quote(member) if type(member) is str else text(member, depth_inside)}")
        return self._enclosed("{", pairs, "}", depth)

    def _rare(self, value: Any, depth: int) -> str:
        if isinstance(value, float):
            return repr(value) if value - value == 0 else "null"
        if isinstance(value, str):
            return self._quote(str(value))
        if isinstance(value, bytes | bytearray | memoryview | msgspec.Raw):
            raw = bytes(value)
            anew = self._spread or self._standard
            return self.text(loads(raw), depth) if anew else str(raw, "utf-8", "replace")
        raise LocalProtocolError(f"{type(value).__name__} can't be written as JSON")

    def _enclosed(self, start: str, items: list[str], end: str, depth: int) -> str:
        if not self._spread or not items:
            return start + ",".join(items) + end
        tabs = "\t" * (depth + 1)
        return f"{start}\n{tabs}" + f",\n{tabs}".join(items) + "\n" + tabs[1:] + end

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return self._quote(key)
        if isinstance(key, int):
            return f'"{int(key)}"' if self._standard else str(int(key))
        text = _Writer(self._standard, False).text(key, 0)
        return self._quote(text) if self._standard else text
