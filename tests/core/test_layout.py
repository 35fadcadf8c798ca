"""What the core knows of bytes is what the wire's structures and the store's files say."""

from __future__ import annotations

import ast
from pathlib import Path
from struct import calcsize

import msgspec

from perseid.core import Core, layout
from perseid.security.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY
from perseid.store import consume_queue, index
from perseid.wire import batch, dledger, record
from perseid.wire import properties as props
from perseid.wire.headers.base import to_ext
from perseid.wire.headers.pop import AckMessageRequest, PopMessageRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SEND_FIELDS, SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.host import Host

CORE = Path(layout.__file__).parent
V4 = Host(b"\x0a\x00\x00\x01", 0x1F90)
HEADERS = (SendMessageRequest, SendMessageResponse, PullMessageRequest, PopMessageRequest, AckMessageRequest)
OF_HEADERS = (
    "code", "flag", "language", "opaque", "version", "serializeTypeCurrentRPC", "extFields", "remark", "true", "false",
)  # fmt: skip
"""Names in the header of a frame itself, and what its fields say."""


def test_places_in_a_record_are_those_of_what_the_wire_encodes() -> None:
    message = record.Message(
        topic="T", body=b"b", queue_id=0x01010101, flag=0x02020202, sys_flag=1, born_timestamp=0x03, born_host=V4,
        store_host=V4, reconsume_times=0x05, prepared_transaction_offset=0x06, properties=b"p",
    )  # fmt: skip
    raw = record.encode(message)
    record.patch(raw, 0x07, 0x08, 0x09)
    assert len(raw) == record.MIN_RECORD_BYTES + 3

    def word(at: int, size: int) -> int:
        return int.from_bytes(raw[at : at + size], "big")

    assert word(record.SIZE_AT, 4) == len(raw)
    assert word(record.QUEUE_ID_AT, 4) == 0x01010101 and word(record.FLAG_AT, 4) == 0x02020202
    assert word(record.QUEUE_OFFSET_AT, 8) == 0x07 and word(record.PHYSICAL_OFFSET_AT, 8) == 0x08
    assert word(record.SYS_FLAG_AT, 4) == 1 and word(record.BORN_TIMESTAMP_AT, 8) == 0x03
    assert raw[record.BORN_HOST_AT : record.BORN_HOST_AT + 4] == V4.ip
    assert word(record.STORE_TIMESTAMP_AT, 8) == 0x09 and raw[record.STORE_HOST_AT : record.STORE_HOST_AT + 4] == V4.ip
    assert word(record.RECONSUMED_AT, 4) == 0x05 and word(record.PREPARED_AT, 8) == 0x06
    assert word(record.BODY_SIZE_AT, 4) == 1 and raw[record.FIXED_BYTES : record.FIXED_BYTES + 1] == b"b"
    v6 = msgspec.structs.replace(message, born_host=Host(bytes(16), 1))
    assert len(record.encode(v6)) == len(raw) + record.V6_MORE


def test_sizes_are_those_of_the_structures() -> None:
    assert consume_queue.UNIT.size == layout.UNIT_BYTES
    assert index.ENTRY.size == layout.ENTRY_BYTES and calcsize(">iq") == layout.KEY_BYTES
    assert dledger.ENTRY_HEADER_BYTES == 48 and dledger.INDEX_UNIT_BYTES == 32
    item = batch.encode([(0x01020304, b"body", b"p\x01v\x02")])
    assert len(item) == batch.MIN_ITEM_BYTES + 8
    assert item[batch.FLAG_AT : batch.FLAG_AT + 4] == b"\1\2\3\4" and item[batch.BODY_SIZE_AT + 3] == 4


def test_a_send_has_the_same_fields_by_letters_and_by_names() -> None:
    """What stands under a letter in code 310 is what stands under the long name in code 10."""
    values = {"a": "A", "b": "B", "c": "C", "d": "1", "e": "2", "f": "3", "g": "4", "h": "5", "i": "I", "j": "6"}
    values |= {"k": "true", "l": "7", "m": "true", "n": "N"}
    short = msgspec.convert(values, SendMessageRequestV2, strict=False)
    long = SendMessageRequest(**{name: getattr(short, name) for name in SendMessageRequest.__struct_fields__})
    assert to_ext(long) == {name: values[letter] for letter, name, _ in SEND_FIELDS}
    assert [letter for letter, _, required in SEND_FIELDS if required] == list("abcdefgh")


def test_names_in_the_core_are_the_wires() -> None:
    """Each text of letters that the core compares with is a property, a field of a header, or of its ext fields."""
    fields = {
        field.encode_name
        for header in HEADERS
        for field in msgspec.structs.fields(header)
    }
    known = fields | {ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY}
    known |= {value for name, value in vars(props).items() if name.isupper() and isinstance(value, str)}
    found = {}
    for path in CORE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("_says", "_is"):
                for arg in node.args:
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, bytes):
                        found[arg.value.decode()] = path.name
    strange = {text: name for text, name in found.items() if text not in known and text not in OF_HEADERS}
    assert strange == {"TIMER_": "commits.py"}, strange  # what all names of timers begin with
    assert len(found) > 15


def test_each_module_with_c_types_is_one_of_the_core() -> None:
    assert {path.stem for path in CORE.glob("*.pxd")} == set(Core._fields)
