"""Bodies as columns: by a JSON Schema, Spark's DDL, an Avro schema, or a Protobuf message.

A schema is parsed once where the job starts (`load`), kept in the table as text, and made into a decoder in each task.
A decoder gives a dict for a body or raises; `decoded` makes an Arrow array of them, and a reason for each body that
did not decode. Nothing is ever passed over: what is no row of the schema is null with a reason.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from perseid.base import extras
from perseid.base.errors import ConfigError

JSON, DDL, AVRO, PROTOBUF = "json", "ddl", "avro", "protobuf"
SUFFIXES = {".json": JSON, ".ddl": DDL, ".sql": DDL, ".avsc": AVRO, ".desc": PROTOBUF, ".pb": PROTOBUF}
MAX_SCHEMA_BYTES = 4 << 20
MAX_REASON_CHARS = 500


class Decoder(Protocol):
    """Makes dicts of bodies. `kind` is the Arrow type of them, a struct."""

    kind: Any

    def decode(self, body: bytes) -> dict[str, Any]:
        """A body's fields; any exception says why it has none."""
        ...


@dataclass(frozen=True, slots=True)
class BodySchema:
    """A schema as text: of JSON Schema, Spark's struct as JSON, Avro, or the base64 of a FileDescriptorSet."""

    kind: str
    text: str
    message: str = ""

    def decoder(self) -> Decoder:
        """Its decoder. ConfigError when it can't be read, MissingExtra when its library is missing."""
        return _DECODERS[self.kind](self)


def needs_session(given: str) -> bool:
    """Whether a schema is Spark's DDL, which Spark alone can read: `load` needs a session for it."""
    return SUFFIXES.get(Path(given).suffix.lower(), DDL) == DDL


def load(given: str, message: str | None = None) -> BodySchema:
    """The schema that a file holds (.json, .avsc, .desc, .ddl), or that is given as Spark's DDL. `message`: the
    Protobuf message's full name. ConfigError when there is none to be had."""
    path = Path(given)
    kind = SUFFIXES.get(path.suffix.lower(), DDL)
    is_file = path.is_file()
    if not is_file and (path.suffix.lower() in SUFFIXES or " " not in given.strip()):
        raise ConfigError(f"schema {given!r} is neither a file nor a DDL such as 'id bigint, name string'")
    if (kind == PROTOBUF) != (message is not None):
        raise ConfigError("a message's name goes with a Protobuf descriptor set (.desc), and with nothing else")
    data = path.read_bytes() if is_file else given.encode()
    if len(data) > MAX_SCHEMA_BYTES:
        raise ConfigError(f"schema {given}: {len(data)} bytes; {MAX_SCHEMA_BYTES} is the most")
    if kind == PROTOBUF:
        text = base64.b64encode(data).decode()
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"schema {given}: {error}") from None
        text = _ddl(text) if kind == DDL else text
    schema = BodySchema(kind, text, message or "")
    try:
        schema.decoder()
    except ConfigError as error:
        raise ConfigError(f"schema {given if is_file else ''}: {error}") from None
    return schema


def decoded(decoder: Decoder, bodies: Sequence[bytes | None]) -> tuple[Any, list[str | None]]:
    """The payloads of bodies as an array, null where a body did not decode, and the reason for each of those."""
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for body in bodies:
        try:
            rows.append(decoder.decode(body or b""))
            reasons.append(None)
        except Exception as error:  # a decoder of foreign bytes may raise anything: all of it is the row's reason
            rows.append(None)
            reasons.append(_reason(error))
    try:
        return pa.array(rows, type=decoder.kind), reasons
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return _one_by_one(decoder.kind, rows, reasons)


def _one_by_one(
    kind: Any, rows: list[dict[str, Any] | None], reasons: list[str | None]
) -> tuple[Any, list[str | None]]:
    """The same where some row does not fit its type."""
    for at, row in enumerate(rows):
        try:
            pa.array([row], type=kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            rows[at], reasons[at] = None, _reason(error)
    return pa.array(rows, type=kind), reasons


def _reason(error: Exception) -> str:
    text = str(error) or "it ends too early"
    return f"{type(error).__name__}: {text}"[:MAX_REASON_CHARS]


def _ddl(text: str) -> str:
    """Spark's DDL as Spark's JSON, which needs no session to be read."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        return str(StructType.fromDDL(text).json())
    except PySparkException as error:
        raise ConfigError(f"schema {text!r} is no DDL such as 'id bigint, name string': {error}") from None


# ---- what arrays want and decoders don't give ----

Fix = Callable[[Any], Any]


def fix_of(kind: Any) -> Fix | None:
    """Makes a decoded value of an Arrow type into what Arrow takes: maps into pairs. None: nothing to do."""
    if pa.types.is_map(kind):
        inner = fix_of(kind.item_type)
        return lambda value: (
            None if value is None else [(k, v if inner is None else inner(v)) for k, v in value.items()]
        )
    if pa.types.is_list(kind):
        inner = fix_of(kind.value_type)
        return None if inner is None else lambda value: None if value is None else [inner(v) for v in value]
    if pa.types.is_struct(kind):
        inners = {field.name: found for field in kind if (found := fix_of(field.type)) is not None}
        if not inners:
            return None
        return lambda value: None if value is None else _fixed(value, inners)
    return None


def _fixed(value: dict[str, Any], inners: dict[str, Fix]) -> dict[str, Any]:
    return {name: inners[name](each) if name in inners else each for name, each in value.items()}


# ---- one function for each kind ----


def _json(schema: BodySchema) -> Decoder:
    from perseid.spark.jobs.archive import json_bodies

    return json_bodies.of_json_schema(schema.text)


def _struct(schema: BodySchema) -> Decoder:
    from perseid.spark.jobs.archive import json_bodies

    return json_bodies.of_spark(schema.text)


def _avro(schema: BodySchema) -> Decoder:
    try:
        from perseid.spark.jobs.archive import avro_bodies
    except ImportError as error:
        raise extras.missing("a schema in Avro", error) from None
    return avro_bodies.AvroDecoder(schema.text)


def _protobuf(schema: BodySchema) -> Decoder:
    try:
        from perseid.spark.jobs.archive import protobuf_bodies
    except ImportError as error:
        raise extras.missing("a schema in Protobuf", error) from None
    return protobuf_bodies.ProtobufDecoder(base64.b64decode(schema.text), schema.message)


_DECODERS: dict[str, Callable[[BodySchema], Decoder]] = {JSON: _json, DDL: _struct, AVRO: _avro, PROTOBUF: _protobuf}
