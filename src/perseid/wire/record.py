"""The record of the commit log, which is also what a pull answer carries.

    offset 0  total size        4        40  born timestamp          8
           4  magic             4        48  born host          8 | 20
           8  body CRC32        4         .  store timestamp         8
          12  queue id          4         .  store host         8 | 20
          16  flag              4         .  reconsume times         4
          20  queue offset      8         .  prepared offset         8
          28  physical offset   8         .  body                4 + n
          36  sysFlag           4         .  topic               1 + n   (v2: 2 + n)
                                          .  properties          2 + n

A host is ip (4 or 16 bytes, told by the sysFlag) and port (4). All integers are big endian. Source:
store.md §3.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, calcsize
from struct import error as struct_error

import msgspec

from perseid.base.errors import StoreError
from perseid.base.machine import Buffer
from perseid.wire import ids
from perseid.wire import properties as props
from perseid.wire.hashing import crc32
from perseid.wire.host import NOWHERE, Host, host_from

__all__ = [
    "Host",
    "Message",
    "Record",
    "RecordError",
    "blank",
    "decode",
    "decode_all",
    "encode",
    "host_from",
    "patch",
    "size_and_magic",
]

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
BLANK_MAGIC = -875286124
"""Stands in the last bytes of a file that no record fits in."""
BLANK_BYTES = 8

_BEFORE_HOSTS = ">iiiiiqqiq"
"""The fields up to the born host, which have their places whatever the hosts are."""
(
    SIZE_AT, MAGIC_AT, BODY_CRC_AT, QUEUE_ID_AT, FLAG_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT,
    BORN_TIMESTAMP_AT, BORN_HOST_AT,
) = [calcsize(_BEFORE_HOSTS[: fields + 1]) for fields in range(len(_BEFORE_HOSTS))]  # fmt: skip
STORE_TIMESTAMP_AT, STORE_HOST_AT, RECONSUMED_AT, PREPARED_AT, BODY_SIZE_AT, FIXED_BYTES = (
    BORN_HOST_AT + calcsize(">" + rest) for rest in ("8s", "8sq", "8sq8s", "8sq8si", "8sq8siq", "8sq8siqi")
)
"""Between hosts with IPv4 addresses; and all that comes before the body."""
V6_MORE = 12
"""Bytes that an IPv6 address has more than an IPv4 one."""

MIN_RECORD_BYTES = FIXED_BYTES + 1 + 2
MAX_TOPIC_BYTES = 127
MAX_RETRY_TOPIC_BYTES = 255
MAX_V2_TOPIC_BYTES = 32767
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = MAX_BODY_BYTES + 65536
MAX_PROPERTIES_BYTES = props.MAX_BYTES

SYS_COMPRESSED = 0x1
SYS_MULTI_TAGS = 0x2
SYS_TRANSACTION_MASK = 0xC
SYS_TRANSACTION_PREPARED = 0x4
SYS_TRANSACTION_COMMIT = 0x8
SYS_TRANSACTION_ROLLBACK = 0xC
SYS_BORN_HOST_V6 = 0x10
SYS_STORE_HOST_V6 = 0x20
SYS_NEED_UNWRAP = 0x40
SYS_INNER_BATCH = 0x80
SYS_COMPRESSION_MASK = 0x700

_V6_BITS = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6

_SIZE_AND_MAGIC = Struct(">ii")
_LAYOUTS = {
    born | store: Struct(f"{_BEFORE_HOSTS}{16 if born else 4}siq{16 if store else 4}siiqi")
    for born in (0, SYS_BORN_HOST_V6)
    for store in (0, SYS_STORE_HOST_V6)
}
"""All that comes before the body, by the bits of the sysFlag that tell the lengths of the hosts."""
_BYTE = Struct(">B")
_LENGTH = Struct(">h")
_PLACE = Struct(">qq")
_TIME = Struct(">q")
_BODY_LENGTH = Struct(">i")
_host = lru_cache(maxsize=4096)(Host)


class RecordError(StoreError):
    """Bytes that are no record, or a message that does not fit into one; the text says why."""


class Message(msgspec.Struct, kw_only=True):
    """A message that is to be stored. `properties` is the encoded form (`perseid.wire.properties`)."""

    topic: str
    body: Buffer
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = NOWHERE
    store_host: Host = NOWHERE
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: bytes = b""


class Record(msgspec.Struct):
    """A stored message, all of it; owns its bytes."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes
    _props: dict[str, str] | None = None

    @property
    def props(self) -> dict[str, str]:
        """The properties by name, decoded once."""
        if self._props is None:
            self._props = props.decode(self.properties)
        return self._props

    @property
    def tag(self) -> str | None:
        return props.get(self.properties, props.TAGS)

    @property
    def keys(self) -> list[str]:
        """The index keys that the sender gave."""
        return (props.get(self.properties, props.KEYS) or "").split()

    @property
    def unique_key(self) -> str | None:
        """The id that the client gave."""
        return props.get(self.properties, props.UNIQ_KEY)

    @property
    def msg_id(self) -> str:
        """The offset message id: store host and physical offset."""
        return ids.offset_message_id(self.store_host, self.physical_offset)


def encode(message: Message) -> bytearray:
    """The record of a message, with queue offset, physical offset and store timestamp still zero.

    RecordError when a part is longer than the layout can tell; configured limits are the caller's.
    """
    topic = message.topic.encode("utf-8", "replace")
    body, properties = message.body, message.properties
    born_ip, born_port = message.born_host
    store_ip, store_port = message.store_host
    v6_bits = (SYS_BORN_HOST_V6 if len(born_ip) == 16 else 0) | (SYS_STORE_HOST_V6 if len(store_ip) == 16 else 0)
    layout = _LAYOUTS[v6_bits]
    body_bytes, topic_bytes, properties_bytes = len(body), len(topic), len(properties)
    if topic_bytes <= MAX_TOPIC_BYTES:
        magic, topic_length = MAGIC_V1, _BYTE
    else:
        magic, topic_length = MAGIC_V2, _LENGTH
    size = layout.size + body_bytes + topic_length.size + topic_bytes + 2 + properties_bytes
    try:
        return bytearray().join(
            (
                layout.pack(
                    size, magic, crc32(body), message.queue_id, message.flag, 0, 0,
                    message.sys_flag & ~_V6_BITS | v6_bits, message.born_timestamp, born_ip, born_port,
                    0, store_ip, store_port, message.reconsume_times, message.prepared_transaction_offset, body_bytes,
                ),
                body,
                topic_length.pack(topic_bytes),
                topic,
                _LENGTH.pack(properties_bytes),
                properties,
            )
        )  # fmt: skip
    except struct_error as error:
        parts = f"body {body_bytes}, topic {topic_bytes}, properties {properties_bytes} bytes"
        raise RecordError(f"a message that does not fit into a record: {parts}: {error}") from None


def patch(record: bytearray, queue_offset: int, physical_offset: int, store_timestamp: int) -> None:
    """Fill in what is known only when the record gets its place."""
    _PLACE.pack_into(record, QUEUE_OFFSET_AT, queue_offset, physical_offset)
    born_host_bytes = 20 if record[SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6 else 8
    _TIME.pack_into(record, BORN_HOST_AT + born_host_bytes, store_timestamp)


def size_and_magic(buffer: Buffer, at: int = 0) -> tuple[int, int]:
    """The first two words of a record or a blank; RecordError when fewer than 8 bytes are there."""
    if at < 0 or len(buffer) - at < BLANK_BYTES:
        raise RecordError(f"{max(0, len(buffer) - at)} bytes are too few for a record")
    size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, at)
    return size, magic


def decode(buffer: Buffer, at: int = 0, *, check_crc: bool = True, errors: str = "strict") -> Record:
    """The record that begins at `at`; RecordError says why there is none. `errors`: of a topic's name that is no UTF-8,
    as `str` takes it."""
    size, magic = size_and_magic(buffer, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(f"magic {magic & 0xFFFFFFFF:08x} is not that of a record")
    if size < MIN_RECORD_BYTES or size > len(buffer) - at:
        raise RecordError(f"a size of {size} bytes, with {len(buffer) - at} there")
    layout = _LAYOUTS[buffer[at + SYS_FLAG_AT + 3] & _V6_BITS]
    if size < layout.size + 3:
        raise RecordError(f"a size of {size} bytes, too few for hosts with IPv6 addresses")
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
        born_timestamp, born_ip, born_port, store_timestamp, store_ip, store_port,
        reconsume_times, prepared, body_bytes,
    ) = layout.unpack_from(buffer, at)  # fmt: skip
    body, topic, properties = _tail(buffer, at, size, at + layout.size, body_bytes, magic, errors)
    if check_crc and body_bytes and crc32(body) != crc:
        raise RecordError("the body does not match its checksum")
    return Record(
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
        _host(born_ip, born_port), store_timestamp, _host(store_ip, store_port), reconsume_times, prepared,
        body, topic, properties,
    )  # fmt: skip


def _tail(
    buffer: Buffer, at: int, size: int, body_at: int, body_bytes: int, magic: int, errors: str
) -> tuple[bytes, str, bytes]:
    """Body, topic and properties; their lengths have to add up to the record's size exactly."""
    end = at + size
    topic_length_bytes = 1 if magic == MAGIC_V1 else 2
    topic_at = body_at + body_bytes + topic_length_bytes
    if body_bytes < 0 or topic_at + 2 > end:
        raise RecordError(f"a body of {body_bytes} bytes in a record of {size}")
    if topic_length_bytes == 1:
        topic_bytes = buffer[topic_at - 1]
    else:
        topic_bytes = _LENGTH.unpack_from(buffer, topic_at - 2)[0]
    properties_at = topic_at + topic_bytes + 2
    if not 0 <= topic_bytes <= end - topic_at - 2:
        raise RecordError(f"a topic of {topic_bytes} bytes in a record of {size}")
    properties_bytes = _LENGTH.unpack_from(buffer, properties_at - 2)[0]
    if properties_at + properties_bytes != end or properties_bytes < 0:
        raise RecordError(f"properties of {properties_bytes} bytes don't end where the record of {size} ends")
    try:
        topic = str(buffer[topic_at : properties_at - 2], "utf-8", errors)
    except UnicodeDecodeError:
        raise RecordError("the topic's name is not UTF-8") from None
    return bytes(buffer[body_at : body_at + body_bytes]), topic, bytes(buffer[properties_at:end])


def properties_of(record: memoryview) -> bytes:
    """The encoded properties of a record that is known to be one, as cheaply as can be."""
    layout = _LAYOUTS[record[SYS_FLAG_AT + 3] & _V6_BITS]
    at = layout.size + _BODY_LENGTH.unpack_from(record, layout.size - 4)[0]
    if _SIZE_AND_MAGIC.unpack_from(record)[1] == MAGIC_V1:
        at += 1 + record[at]
    else:
        at += 2 + _LENGTH.unpack_from(record, at)[0]
    return bytes(record[at + 2 :])


def decode_all(body: Buffer, *, check_crc: bool = True) -> list[Record]:
    """The records of a pull answer, one after the other and nothing else; RecordError otherwise."""
    view = memoryview(body)
    records: list[Record] = []
    at, total = 0, len(view)
    while at < total:
        record = decode(view, at, check_crc=check_crc)
        records.append(record)
        at += record.size
    return records


def blank(remaining: int) -> bytes:
    """What stands at the end of a file in which the next record has no room."""
    return _SIZE_AND_MAGIC.pack(remaining, BLANK_MAGIC)
