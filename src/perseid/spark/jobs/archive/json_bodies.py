"""JSON bodies: by a JSON Schema, or by Spark's struct.

Both become an Arrow struct, with `nullable` saying what may be null or missing, and that becomes a type for msgspec,
which checks and converts while it parses: its errors name the place in the body. Fields that the schema does not have
are left out. Of a JSON Schema the types are used (object, array, string, integer, number, boolean, null beside one of
them; `format` date-time and date; `required`; `additionalProperties` of an object without properties, a map);
`minimum`, `pattern` and their like are not checked; `$ref`, `oneOf`, `anyOf`, `allOf` are refused.
"""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any, Required, TypedDict

import msgspec
import pyarrow as pa

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.bodies import fix_of

MAX_DEPTH = 32
_REFUSED = ("$ref", "oneOf", "anyOf", "allOf", "not", "if")
_SCALARS = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}


class JsonDecoder:
    """Bodies that are one JSON object."""

    def __init__(self, kind: Any) -> None:
        self.kind = _all_nullable(kind)
        self._fix = fix_of(kind)
        self._decode = msgspec.json.Decoder(_python(kind, "body")).decode

    def decode(self, body: bytes) -> dict[str, Any]:
        """The object's fields."""
        found: dict[str, Any] = self._decode(body)
        return found if self._fix is None else self._fix(found)


def of_json_schema(text: str) -> JsonDecoder:
    """The decoder for a JSON Schema of an object. ConfigError names what can't be."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"no JSON: {error}") from None
    kind, _ = _arrow(schema, "#", 0)
    if not pa.types.is_struct(kind):
        raise ConfigError("a body's schema is an object with properties")
    return JsonDecoder(kind)


def of_spark(text: str) -> JsonDecoder:
    """The decoder for Spark's struct, given as Spark's JSON."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    return JsonDecoder(to_arrow_type(StructType.fromJson(json.loads(text)), timezone="UTC"))


def _arrow(schema: Any, where: str, depth: int) -> tuple[Any, bool]:
    """The Arrow type of a JSON Schema, and whether null is one of its values."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        raise ConfigError(f"{where}: {'too deep' if depth > MAX_DEPTH else 'no schema'}")
    refused = [word for word in _REFUSED if word in schema]
    if refused:
        raise ConfigError(f"{where}: {refused[0]} is not supported: say one type")
    named = schema.get("type", "object" if "properties" in schema else "string" if "enum" in schema else None)
    names = named if isinstance(named, list) else [named]
    others = [name for name in names if name != "null"]
    if len(others) != 1:
        raise ConfigError(f"{where}: type {named!r}: one type, with or without null, can be a column")
    nullable = len(others) < len(names)
    if others[0] == "array":
        item, _ = _arrow(schema.get("items"), f"{where}/items", depth + 1)
        return pa.list_(item), nullable
    if others[0] == "object":
        return _object(schema, where, depth), nullable
    if others[0] not in _SCALARS:
        raise ConfigError(f"{where}: type {others[0]!r} is unknown: there are object, array, {', '.join(_SCALARS)}")
    kind = _SCALARS[others[0]]
    return (_FORMATS.get(str(schema.get("format")), kind) if others[0] == "string" else kind), nullable


def _object(schema: dict[str, Any], where: str, depth: int) -> Any:
    properties = schema.get("properties")
    if not properties:
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: an object without properties needs additionalProperties: a map of one type")
        return pa.map_(pa.string(), _arrow(values, f"{where}/additionalProperties", depth + 1)[0])
    required = schema.get("required", [])
    fields = []
    for name, each in properties.items():
        kind, nullable = _arrow(each, f"{where}/{name}", depth + 1)
        fields.append(pa.field(name, kind, nullable=nullable or name not in required))
    return pa.struct(fields)


def _python(kind: Any, name: str) -> Any:
    """The type that msgspec decodes to, for an Arrow type."""
    types = pa.types
    if types.is_struct(kind):
        fields = {}
        for field in kind:
            inner = _python(field.type, f"{name}_{field.name}")
            fields[field.name] = inner | None if field.nullable else Required[inner]
        return TypedDict(name, fields, total=False)  # type: ignore[operator]
    if types.is_list(kind):
        return list[_python(kind.value_type, f"{name}_item") | None]  # type: ignore[misc]
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise ConfigError(f"{name}: the keys of a JSON object are strings, not {kind.key_type}")
        return dict[str, _python(kind.item_type, f"{name}_value") | None]  # type: ignore[misc]
    for matches, found in (
        (types.is_string, str), (types.is_boolean, bool), (types.is_integer, int), (types.is_floating, float),
        (types.is_decimal, decimal.Decimal), (types.is_timestamp, datetime.datetime), (types.is_date, datetime.date),
        (types.is_binary, bytes),
    ):  # fmt: skip
        if matches(kind):
            return found
    raise ConfigError(f"{name}: JSON has no {kind}")


def _all_nullable(kind: Any) -> Any:
    """The same type with all fields nullable: a body that does not decode has none."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _all_nullable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_all_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _all_nullable(kind.item_type))
    return kind
