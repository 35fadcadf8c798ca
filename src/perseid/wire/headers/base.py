"""What a header class is, and how its fields travel: as a map of names to strings.

A class declares its fields once, in snake_case; the wire name is the camelCase form unless `field(name=…)`
says otherwise. Types: `str`, `Int` (32 bits), `Long` (64 bits), `bool`. A field without a default is
required; `… | None = None` is left out when it is None.

Reading follows the Java server where that is sane: a boolean is true for "true" in any case and false for
anything else; JSON may hold numbers and booleans in place of strings. A required field that is missing, or a
number that is none or out of its range, is refused with code 1 and its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as _quote
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from perseid.base.errors import RequestRefused

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)]

SYSTEM_ERROR = 1
MAX_NUMBER_CHARS = 40
"""A longer text is not looked at as a number."""

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Header(msgspec.Struct, rename="camel", gc=False):
    """The base of all header classes."""

    def json_ext(self) -> str:
        """The fields as a compact JSON object of strings."""
        return json_ext(self)


H = TypeVar("H", bound=Header)

TRUE, FALSE = '"true"', '"false"'

quote: Callable[[str], str] = _quote
"""A JSON string literal of a text, non-ASCII characters as they are."""


class _Field(NamedTuple):
    attr: str
    name: str
    kind: str  # "str", "int" or "bool"
    low: int
    high: int
    default: Any  # msgspec.NODEFAULT: required
    json_key: str


class _Plan(NamedTuple):
    fields: tuple[_Field, ...]
    decode: Callable[[Any], Any]
    bools: Callable[[Any], tuple[Any, ...]]
    true_texts: tuple[bytes, ...]


def _plan_of(header_type: type[Header]) -> _Plan:
    """Work out once how a header class is read and written."""
    info = msgspec.inspect.type_info(header_type)
    assert isinstance(info, msgspec.inspect.StructType)
    fields: list[_Field] = []
    for item in info.fields:
        kinds = item.type.types if isinstance(item.type, msgspec.inspect.UnionType) else (item.type,)
        kind, low, high = "", LONG_MIN, LONG_MAX
        for one in kinds:
            if isinstance(one, msgspec.inspect.StrType):
                kind = "str"
            elif isinstance(one, msgspec.inspect.BoolType):
                kind = "bool"
            elif isinstance(one, msgspec.inspect.IntType):
                assert one.ge is not None and one.le is not None, f"{item.name}: use Int or Long"
                kind, low, high = "int", one.ge, one.le
        assert kind, f"{item.name}: a header holds str, Int, Long and bool"
        default = msgspec.NODEFAULT if item.required else item.default
        key = f"{quote(item.encode_name)}:"
        fields.append(_Field(item.name, item.encode_name, kind, low, high, default, key))
    bools = [f.attr for f in fields if f.kind == "bool"]
    return _Plan(
        tuple(fields),
        msgspec.json.Decoder(header_type, strict=False).decode,
        attrgetter(*bools, bools[0]) if bools else _no_bools,  # at least two names: a tuple comes back
        _true_texts(fields),
    )


def _true_texts(fields: Sequence[_Field]) -> tuple[bytes, ...]:
    texts = [f'{f.json_key}"true"'.encode() for f in fields if f.kind == "bool"]
    return (*texts, texts[0]) if texts else ()


def _no_bools(_: Any) -> tuple[Any, ...]:
    return ()


_PLANS: dict[type[Header], _Plan] = {}


def _plan(header_type: type[Header]) -> _Plan:
    plan = _PLANS.get(header_type)
    if plan is None:
        plan = _PLANS[header_type] = _plan_of(header_type)
    return plan


def from_json(header_type: type[H], raw: Any) -> H | None:
    """The header out of a JSON object, the quick way; None when that needs a closer look (`from_ext`)."""
    plan = _PLANS.get(header_type) or _plan(header_type)
    try:
        header: H = plan.decode(raw)
    except (ValueError, RecursionError):
        return None
    bools = plan.bools(header)
    if True in bools and not say_true(bytes(raw), bools, plan.true_texts):
        return None
    return header


def say_true(text: bytes, bools: tuple[Any, ...], true_texts: tuple[bytes, ...]) -> bool:
    """Does the JSON spell out each boolean that was taken for true, and name it once? msgspec takes "1" for true as
    well, Java does not."""
    for true, value in zip(true_texts, bools, strict=True):
        if value and (true not in text or text.count(true[: -len(TRUE)]) != 1):
            return False
    return True


def bools_of(header_type: type[Header]) -> Callable[[Any], tuple[Any, ...]]:
    """A getter of the booleans of a header. Where msgspec made one of them true, `from_ext` has to look at it."""
    return _plan(header_type).bools


def true_texts_of(header_type: type[Header]) -> tuple[bytes, ...]:
    """What stands in a JSON header that says true, as Java reads it, for each of `bools_of`."""
    return _plan(header_type).true_texts


def from_ext(header_type: type[H], ext: Mapping[str, str]) -> H:
    """The header out of names and strings; RequestRefused(1) names the field that can't be read."""
    plan = _PLANS.get(header_type) or _plan(header_type)
    try:
        header = msgspec.convert(ext, header_type, strict=False)
        if True not in plan.bools(header):
            return header
    except (ValueError, RecursionError):
        pass
    return _from_ext_with_care(header_type, plan, ext)


def _from_ext_with_care(header_type: type[H], plan: _Plan, ext: Mapping[str, str]) -> H:
    values: dict[str, Any] = {}
    for field in plan.fields:
        text = ext.get(field.name)
        if text is None:
            pass
        elif field.kind == "str":
            values[field.attr] = text
            continue
        elif field.kind == "bool":
            values[field.attr] = text.lower() == "true"
            continue
        elif text and text != "null":
            values[field.attr] = _number(field, text)
            continue
        if field.default is msgspec.NODEFAULT:
            raise RequestRefused(SYSTEM_ERROR, f"{header_type.__name__}: the field {field.name} is missing")
    return header_type(**values)


def _number(field: _Field, text: str) -> int:
    if len(text) <= MAX_NUMBER_CHARS and _NUMBER.fullmatch(text):
        value = int(text)
        if field.low <= value <= field.high:
            return value
        raise RequestRefused(SYSTEM_ERROR, f"the field {field.name} is out of range: {text}")
    raise RequestRefused(SYSTEM_ERROR, f"the field {field.name} is not a number: {text[:80]!r}")


def to_ext(header: Header) -> dict[str, str]:
    """Names and strings of a header; fields that are None are left out."""
    ext: dict[str, str] = {}
    for field in _plan(type(header)).fields:
        value = getattr(header, field.attr)
        if value is None:
            continue
        if field.kind == "bool":
            ext[field.name] = "true" if value else "false"
        else:
            ext[field.name] = str(value)
    return ext


def json_ext(header: Header) -> str:
    """The fields of a header as a compact JSON object of strings."""
    parts: list[str] = []
    for field in (_PLANS.get(type(header)) or _plan(type(header))).fields:
        value = getattr(header, field.attr)
        if value is None:
            continue
        if field.kind == "str":
            parts.append(field.json_key + quote(value))
        elif field.kind == "bool":
            parts.append(field.json_key + (TRUE if value else FALSE))
        else:
            parts.append(f'{field.json_key}"{value}"')
    return "{" + ",".join(parts) + "}"
