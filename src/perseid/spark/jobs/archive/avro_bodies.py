"""Avro bodies: the bare binary form, or Avro's single-object form with the schema's fingerprint.

Logical types: timestamp-millis, timestamp-micros, date and decimal become such columns; any other stays what it is
underneath. Of unions those of null and one type can be a column.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, fingerprint, to_parsing_canonical_form

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.bodies import fix_of

MAX_DEPTH = 32
SINGLE_OBJECT = b"\xc3\x01"
"""What a body in the single-object form begins with; then come 8 bytes of fingerprint."""
_PLAIN = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_TIME = pa.timestamp("us", tz="UTC")
_LOGICAL = {("long", "timestamp-millis"): _TIME, ("long", "timestamp-micros"): _TIME, ("int", "date"): pa.date32()}


class AvroDecoder:
    """Bodies that are one record each."""

    def __init__(self, text: str) -> None:
        try:
            given = _stripped(json.loads(text))
            self._schema = fastavro.parse_schema(given)
            mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(given), "CRC-64-AVRO"))
        except (ValueError, KeyError, TypeError, SchemaParseException) as error:
            raise ConfigError(f"no Avro schema: {type(error).__name__}: {error}") from None
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise ConfigError("a body's schema is a record")
        self._head = SINGLE_OBJECT + mark
        self.kind = _arrow(self._schema, {}, ())
        self._fix = fix_of(self.kind)

    def decode(self, body: bytes) -> dict[str, Any]:
        """The record's fields."""
        data = io.BytesIO(body)
        if body.startswith(self._head):
            data.seek(len(self._head))
        found: Any = fastavro.schemaless_reader(data, self._schema, None)
        left = len(body) - data.tell()
        if left:
            raise ValueError(f"{left} bytes are left behind the record: another schema?")
        record: dict[str, Any] = found if self._fix is None else self._fix(found)
        return record


def _stripped(schema: Any) -> Any:
    """The schema without logical types that have no column of their own."""
    if isinstance(schema, list):
        return [_stripped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _stripped(each) if name in ("type", "items", "values", "fields") else each
        for name, each in schema.items()
    }
    logical = found.get("logicalType")
    if logical is not None and logical != "decimal" and (found.get("type"), logical) not in _LOGICAL:
        del found["logicalType"]
    return found


def _arrow(schema: Any, named: dict[str, Any], above: tuple[str, ...]) -> Any:
    """The Arrow type of a parsed schema; `named` are the named types so far, `above` those that hold this one."""
    if len(above) > MAX_DEPTH:
        raise ConfigError(f"{'/'.join(above)}: too deep")
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ConfigError(f"{'/'.join(above)}: of unions those of null and one type can be a column")
        return _arrow(others[0], named, above)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in named:
            raise ConfigError(f"{'/'.join(above)}: {schema} holds itself, or is null: that can't be a column")
        return named[schema]
    kind = schema["type"]
    if kind == "record":
        fields = [
            pa.field(each["name"], _arrow(each["type"], named, (*above, each["name"]))) for each in schema["fields"]
        ]
        if not fields:
            raise ConfigError(f"{'/'.join(above)}: a record without fields")
        named[schema["name"]] = pa.struct(fields)
        return named[schema["name"]]
    if kind == "array":
        return pa.list_(_arrow(schema["items"], named, (*above, "items")))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], named, (*above, "values")))
    if schema.get("logicalType") == "decimal":
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif kind == "enum":
        found = pa.string()
    elif kind == "fixed":
        found = pa.binary()
    elif "logicalType" in schema:
        found = _LOGICAL[kind, schema["logicalType"]]
    else:
        found = _arrow(kind, named, above)
    if "name" in schema:
        named[schema["name"]] = found
    return found
