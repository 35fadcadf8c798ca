"""Protobuf bodies: by a FileDescriptorSet (`protoc --include_imports -o FILE.desc …`) and a message's name.

uint64 and fixed64 become decimal(20, 0), uint32 and fixed32 bigint, enums their names (a number without a name its
digits), google.protobuf.Timestamp a timestamp. A field that knows whether it was set is null when it was not.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from perseid.base.errors import ConfigError

Read = Callable[[Any], Any]
"""Makes of a field's value what Arrow takes."""

TIMESTAMP = "google.protobuf.Timestamp"
_DECIMAL = pa.decimal128(20, 0)


class ProtobufDecoder:
    """Bodies that are one message each."""

    def __init__(self, descriptors: bytes, name: str) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
            for file in files.file:
                pool.Add(file)
        except (DecodeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"no descriptor set, or not with all imports (protoc --include_imports): {error}"
            ) from None
        try:
            descriptor = pool.FindMessageTypeByName(name)
        except KeyError:
            names = sorted(f"{f.package}.{m.name}".lstrip(".") for f in files.file for m in f.message_type)
            raise ConfigError(f"no message {name!r}; there are {', '.join(names[:60]) or 'none'}") from None
        self._new = message_factory.GetMessageClass(descriptor)
        self.kind, self._read = _message(descriptor, ())

    def decode(self, body: bytes) -> dict[str, Any]:
        """The message's fields."""
        message = self._new()
        message.ParseFromString(body)
        if not message.IsInitialized():
            raise DecodeError("a required field is missing")
        found: dict[str, Any] = self._read(message)
        return found


def _message(descriptor: Any, above: tuple[str, ...]) -> tuple[Any, Read]:
    """The Arrow type of a message, and its reader."""
    if descriptor.full_name in above:
        raise ConfigError(f"message {descriptor.full_name} holds itself: that can't be a column")
    if not descriptor.fields:
        raise ConfigError(f"message {descriptor.full_name} has no fields: that can't be a column")
    kinds, readers = [], []
    for field in descriptor.fields:
        kind, read = _field(field, (*above, descriptor.full_name))
        kinds.append(pa.field(field.name, kind))
        readers.append((field.name, field.has_presence and not _is_repeated(field), read))

    def read_all(message: Any) -> dict[str, Any]:
        return {
            name: None if optional and not message.HasField(name) else read(getattr(message, name))
            for name, optional, read in readers
        }

    return pa.struct(kinds), read_all


def _field(field: Any, above: tuple[str, ...]) -> tuple[Any, Read]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, read_key = _single(message.fields_by_name["key"], above)
        value, read = _single(message.fields_by_name["value"], above)
        return pa.map_(key, value), lambda pairs: [(read_key(each), read(pairs[each])) for each in pairs]
    kind, read = _single(field, above)
    if _is_repeated(field):
        return pa.list_(kind), lambda values: [read(value) for value in values]
    return kind, read


def _single(field: Any, above: tuple[str, ...]) -> tuple[Any, Read]:
    """The Arrow type of one value of a field, and its reader."""
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return pa.timestamp("us", tz="UTC"), _microseconds
        return _message(field.message_type, above)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number, str(number))
    return _SCALARS[field.type]


def _microseconds(time: Any) -> int:
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1000


def _same(value: Any) -> Any:
    return value


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


_T = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[int, tuple[Any, Read]] = {
    **dict.fromkeys((_T.TYPE_INT32, _T.TYPE_SINT32, _T.TYPE_SFIXED32), (pa.int32(), _same)),
    **dict.fromkeys((_T.TYPE_INT64, _T.TYPE_SINT64, _T.TYPE_SFIXED64), (pa.int64(), _same)),
    **dict.fromkeys((_T.TYPE_UINT32, _T.TYPE_FIXED32), (pa.int64(), _same)),
    **dict.fromkeys((_T.TYPE_UINT64, _T.TYPE_FIXED64), (_DECIMAL, decimal.Decimal)),
    _T.TYPE_FLOAT: (pa.float32(), _same),
    _T.TYPE_DOUBLE: (pa.float64(), _same),
    _T.TYPE_BOOL: (pa.bool_(), _same),
    _T.TYPE_STRING: (pa.string(), _same),
    _T.TYPE_BYTES: (pa.binary(), _same),
}
