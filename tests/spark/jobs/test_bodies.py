"""Bodies as columns, without Spark: each kind of schema, and bytes that are none of it."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive import bodies
from perseid.spark.jobs.archive.bodies import BodySchema, decoded, load

AT = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def rows(schema: BodySchema, given: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    found, reasons = decoded(schema.decoder(), given)
    assert len(found) == len(reasons) == len(given)
    assert all((row is None) == (reason is not None) for row, reason in zip(found.to_pylist(), reasons, strict=True))
    return found.to_pylist(), reasons


def json_schema(properties: dict[str, Any], **more: Any) -> BodySchema:
    return BodySchema(bodies.JSON, json.dumps({"type": "object", "properties": properties, **more}))


def test_json_by_a_json_schema() -> None:
    schema = json_schema(
        {
            "id": {"type": "integer"}, "price": {"type": "number"}, "ok": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
            "kind": {"enum": ["a", "b"]}, "items": {"type": "array", "items": {"type": ["string", "null"]}},
            "inner": {"properties": {"x": {"type": "integer"}}},
            "more": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
        },
        required=["id"],
    )  # fmt: skip
    whole = {
        "id": 1, "price": 2, "ok": True, "at": "2026-11-20T14:30:00+02:00", "day": "2026-11-20", "kind": "a",
        "items": ["x", None], "inner": {"x": 5, "y": 6}, "more": {"k": [1, 2]}, "unknown": 1,
    }  # fmt: skip
    given = [
        json.dumps(each).encode() for each in (whole, {"id": 2}, {"id": None}, {}, {"id": "1"}, {"id": 1 << 70}, [1], 5)
    ]
    found, reasons = rows(schema, [*given, b"", b"{", b'{"id":1}{"id":2}', b"\xff\xfe", None, b'{"id": 3}\n'])
    assert found[0] == {
        "id": 1, "price": 2.0, "ok": True, "at": AT, "day": date(2026, 11, 20), "kind": "a", "items": ["x", None],
        "inner": {"x": 5}, "more": [("k", [1, 2])],
    }  # fmt: skip
    assert found[1]["id"] == 2 and found[1]["more"] is None and found[-1]["id"] == 3
    assert found[2:-1] == [None] * (len(found) - 3)
    assert "$.id" in (reasons[2] or "") and "`id`" in (reasons[3] or "") and "$.id" in (reasons[4] or "")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "no JSON"),
        ("[]", "no schema"),
        ('{"type": "string"}', "an object with properties"),
        ('{"type": "object"}', "additionalProperties"),
        ('{"properties": {"a": {"$ref": "#/b"}}}', r"#/a: \$ref is not supported"),
        ('{"properties": {"a": {"type": ["string", "integer"]}}}', "one type"),
        ('{"properties": {"a": {"type": "text"}}}', "'text' is unknown"),
        ('{"properties": {"a": {"type": "array"}}}', "#/a/items: no schema"),
    ],
)
def test_a_json_schema_that_is_no_table_is_refused_by_place(tmp_path: Path, schema: str, said: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(schema)
    with pytest.raises(ConfigError, match=said):
        load(str(path))


def test_json_by_sparks_own_types() -> None:
    from pyspark.sql import types as t

    struct = t.StructType([
        t.StructField("id", t.IntegerType(), nullable=False), t.StructField("cost", t.DecimalType(10, 2)),
        t.StructField("data", t.BinaryType()), t.StructField("m", t.MapType(t.StringType(), t.LongType())),
    ])  # fmt: skip
    schema = BodySchema(bodies.DDL, struct.json())
    given = [b'{"id": 1, "cost": "1.25", "data": "AAE=", "m": {"a": 1}}', b'{"id": 99999999999}', b'{"cost": 1}']
    found, reasons = rows(schema, given)
    assert found[0] == {"id": 1, "cost": Decimal("1.25"), "data": b"\0\1", "m": [("a", 1)]}
    assert found[1:] == [None, None] and "id" in (reasons[2] or "")


AVRO: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "a.b", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "Kind"},
        {"name": "parts", "type": {"type": "map", "values": {
            "type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
    ],
}  # fmt: skip


def test_avro_bare_and_with_its_fingerprint() -> None:
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    value = {
        "id": 1, "name": None, "at": AT, "cost": Decimal("1.25"), "uuid": "u", "kind": "A", "other": "B",
        "parts": {"x": {"n": 4}}, "mark": b"ab",
    }  # fmt: skip
    plain: Any = json.loads(json.dumps(AVRO))
    plain["fields"][4]["type"] = "string"
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), value)
    bare = out.getvalue()
    mark = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(plain), "CRC-64-AVRO"))
    schema = BodySchema(bodies.AVRO, json.dumps(AVRO))
    found, reasons = rows(schema, [bare, mark + bare, bare + b"x", bare[:-1], b"", b"\xff" * 40])
    assert found[0] == found[1] == {**value, "parts": [("x", {"n": 4})]}
    assert found[2:] == [None] * 4 and "1 bytes are left" in (reasons[2] or "")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "no Avro schema"),
        ('"long"', "is a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}', "a: of unions"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}', "holds itself"),
        ('{"type": "record", "name": "R", "fields": []}', "without fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nope"}]}', "no Avro schema"),
    ],
)
def test_an_avro_schema_that_is_no_table_is_refused(tmp_path: Path, schema: str, said: str) -> None:
    path = tmp_path / "s.avsc"
    path.write_text(schema)
    with pytest.raises(ConfigError, match=said):
        load(str(path))


def descriptors() -> bytes:
    """Of a file as protoc makes it, with the file that it imports."""
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(
        name="o.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "BIG")):
        kind.value.add(name=name, number=number)
    part = file.message_type.add(name="Part")
    part.field.add(name="n", number=1, type=13, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="big", number=2, type=4, label=1)
    order.field.add(name="kind", number=3, type=14, label=1, type_name=".shop.Kind")
    order.field.add(name="at", number=4, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="parts", number=5, type=11, label=3, type_name=".shop.Part")
    entry = order.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".shop.Part")
    order.field.add(name="m", number=6, type=11, label=3, type_name=".shop.Order.MEntry")
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="again", number=1, type=11, label=1, type_name=".shop.Loop")
    return found.SerializeToString()


def test_protobuf_by_a_descriptor_set(tmp_path: Path) -> None:
    path = tmp_path / "o.desc"
    path.write_bytes(descriptors())
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    order = made(id=5, big=(1 << 64) - 1, kind=1)
    order.at.FromDatetime(AT.replace(tzinfo=None))
    order.parts.add(n=7)
    order.m["x"].n = 8
    odd = made(id=6, kind=9)
    schema = load(str(path), "shop.Order")
    found, reasons = rows(schema, [order.SerializeToString(), odd.SerializeToString(), b"", b"\x08", b"\xff\xff"])
    assert found[0] == {
        "id": 5, "big": Decimal((1 << 64) - 1), "kind": "BIG", "at": AT, "parts": [{"n": 7}], "m": [("x", {"n": 8})],
    }  # fmt: skip
    assert (found[1]["kind"], found[1]["at"], found[2]["id"]) == ("9", None, 0)
    assert found[3:] == [None, None] and all(reasons[3:])
    for message, said in (("shop.Ordr", "there are .*shop.Order"), ("shop.Loop", "holds itself")):
        with pytest.raises(ConfigError, match=said):
            load(str(path), message)
    with pytest.raises(ConfigError, match="a message's name goes with"):
        load(str(path))
    path.write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="no descriptor set"):
        load(str(path), "shop.Order")


def test_an_array_holds_what_fits_and_names_what_does_not() -> None:
    class Odd:
        kind = pa.struct([("a", pa.int8())])

        def decode(self, body: bytes) -> dict[str, Any]:
            return {"a": int(body)}

    found, reasons = decoded(Odd(), [b"1", b"300", b"x", b"-5"])
    assert found.to_pylist() == [{"a": 1}, None, None, {"a": -5}]
    assert [reason is None for reason in reasons] == [True, False, False, True]
