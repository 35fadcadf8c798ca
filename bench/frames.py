"""Sends as clients framed them, made into templates for the load generator (load_frames.c).

    python bench/frames.py                        # all names
    python bench/frames.py made:chinese --topic t # the template of one

A frame has a name: `CLIENT:KIND`, the first send of that kind in tests/traffic/CLIENT.json, where real clients were
recorded; or `made:KIND`, one of MADE. What a template
changes is as little as possible: the numbers of the request, its topic, queue, time and UNIQ_KEY, its broker's name,
and, if asked for, its body. All other bytes are the client's, also the order of fields and the escapes.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TRAFFIC = Path(__file__).resolve().parent.parent / "tests" / "traffic"
"""What stock clients sent: a file for each, with rows of a kind, a request code and a frame."""
BINARY = 1
"""In the first byte of a header's length: it is not JSON."""
BINARY_OPAQUE_AT, BINARY_REMARK_AT = 5, 17
"""In a binary header; the remark's length stands before it, that of the fields behind it."""
SEND, SEND_SHORT = 10, 310
LONG_NAMES = {"topic": "b", "queueId": "e", "bornTimestamp": "g", "properties": "i", "bname": "n"}
"""The fields of code 10 that are changed, and what codes 310 and 320 call them."""
SIGNATURE = "Signature"
"""The field of a signed request."""
KEY_DIGITS = 12
"""Of a UNIQ_KEY, its last: those differ in each send."""
MANY_TOPICS, MANY_SHARDS = "-NNNN", "-S"
"""Behind the topic's or the broker's name, where there are several."""
UNIQUE_KEY = re.compile(rb"UNIQ_KEY(?:\\u0001|\x01)([0-9A-Fa-f]+)")


class FrameError(Exception):
    """A frame that can't be made into a template; the text says why."""


@dataclass
class Header:
    """A header's bytes, and where in them the values of its fields are."""

    data: bytes
    binary: bool
    fields: dict[str, tuple[int, int]]
    opaque: tuple[int, int]

    def value(self, name: str) -> bytes:
        """A field's bytes as they are on the wire; empty where it is missing."""
        start, stop = self.fields.get(name, (0, 0))
        return self.data[start:stop]


@dataclass
class Template:
    """What the load generator reads: a frame, and its holes by their kinds (load_frames.c)."""

    frame: bytes
    holes: list[tuple[str, int]] = field(default_factory=list)

    def __str__(self) -> str:
        return "".join(f"{kind} {at}\n" for kind, at in self.holes) + f"frame {self.frame.hex()}\n"


def parts_of(frame: bytes) -> tuple[Header, bytes]:
    """The header and the body of a frame."""
    word = struct.unpack_from(">I", frame, 4)[0]
    stop = 8 + (word & 0xFFFFFF)
    data = frame[8:stop]
    return (binary_header(data) if word >> 24 == BINARY else json_header(data)), frame[stop:]


def json_header(data: bytes) -> Header:
    """Values of strings without their quotes."""
    fields: dict[str, tuple[int, int]] = {}
    if start := data.find(b'"extFields"') + 1:
        pair = re.compile(rb'\s*[{,]\s*"((?:[^"\\]|\\.)*)"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}]+))', re.DOTALL)
        at = data.index(b"{", start)
        while found := pair.match(data, at):
            fields[found[1].decode()] = found.span(2 if found[2] is not None else 3)
            at = found.end()
    opaque = re.search(rb'"opaque"\s*:\s*(\d+)', data)
    if opaque is None:
        raise FrameError("a header without an opaque")
    return Header(data, False, fields, opaque.span(1))


def binary_header(data: bytes) -> Header:
    """RocketMQ's own encoding (serializeType ROCKETMQ)."""
    at = _fields_length_at(data) + 4
    fields = {}
    while at < len(data):
        length = struct.unpack_from(">H", data, at)[0]
        name = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        length = struct.unpack_from(">I", data, at)[0]
        fields[name] = at + 4, at + 4 + length
        at += 4 + length
    return Header(data, True, fields, (BINARY_OPAQUE_AT, BINARY_OPAQUE_AT + 4))


def _fields_length_at(data: bytes) -> int:
    return BINARY_REMARK_AT + int(struct.unpack_from(">I", data, BINARY_REMARK_AT - 4)[0])


@dataclass(frozen=True)
class Target:
    """Where a template's sends go."""

    topic: str
    topics: int = 1
    broker: str = "broker-a"
    shards: int = 1
    size: int = 0
    """Of the body, in bytes; 0: as it was recorded. Of batches it is always that."""


def template(frame: bytes, target: Target) -> Template:
    """A frame with the target's names, and holes where the load generator counts."""
    header, body = parts_of(frame)
    names = header.fields.keys()
    named = {short: long if long in names else short for long, short in LONG_NAMES.items()}
    topic = target.topic + (MANY_TOPICS if target.topics > 1 else "")
    broker = target.broker + (MANY_SHARDS if target.shards > 1 else "")
    values = {named["b"]: topic, named["e"]: "0", named["g"]: "0" * 13, named["n"]: broker}
    if missing := {named["b"], named["e"], named["g"]} - names:
        raise FrameError(f"no send: {', '.join(sorted(missing))} is missing; there are {', '.join(names)}")
    edits = {header.fields[name]: (name, value.encode()) for name, value in values.items() if name in names}
    if not header.binary:
        edits[header.opaque] = "opaque", b"0" * 9
    data, moved = _edited(header, edits)
    if "m" not in names or header.value("m") != b"true":
        body = body if not target.size else bytes(97 + i * 7 % 26 for i in range(target.size))
    head = struct.pack(">II", 4 + len(data) + len(body), (BINARY << 24 if header.binary else 0) | len(data))
    made = Template(head + data + body)
    made.holes.append(("opaque32", 8 + BINARY_OPAQUE_AT) if header.binary else ("opaque", 8 + moved["opaque"]))
    made.holes += [("queue", 8 + moved[named["e"]]), ("born", 8 + moved[named["g"]])]
    if target.topics > 1:
        made.holes.append(("topic", 8 + moved[named["b"]] + len(topic) - 4))
    if target.shards > 1 and named["n"] in moved:
        made.holes.append(("shard", 8 + moved[named["n"]] + len(broker) - 1))
    keys = (found.end(1) for found in UNIQUE_KEY.finditer(made.frame) if len(found[1]) >= KEY_DIGITS)
    made.holes += [("key", end - KEY_DIGITS) for end in keys]
    return made


def _edited(header: Header, edits: Mapping[tuple[int, int], tuple[str, bytes]]) -> tuple[bytes, dict[str, int]]:
    """The header with other values, and where each of these begins."""
    made, at, moved = bytearray(), 0, {}
    for (start, stop), (name, value) in sorted(edits.items()):
        made += header.data[at:start]
        if header.binary:
            made[-4:] = struct.pack(">I", len(value))
        moved[name], at = len(made), stop
        made += value
    made += header.data[at:]
    if header.binary:
        at = _fields_length_at(header.data)
        struct.pack_into(">I", made, at, len(made) - at - 4)
    return bytes(made), moved


# ---- frames that are made here: a Java client's, but for what the kind says ----

KEY = "7F000001A13918B4AAC2305E00010000"
PLAIN = f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
MADE = {
    "plain": PLAIN,
    "unseparated": PLAIN.removesuffix("\x02"),
    "chinese": PLAIN + "KEYS\x01订单-二〇二六\x02城市\x01杭州\x02",
    "quoted": PLAIN + 'event\x01{"id":7,"name":"a \\"b\\""}\x02',
    "unkeyed": "WAIT\x01true\x02TAGS\x01TagA\x02",
    "bare": "",
    "delayed": PLAIN + "DELAY\x0118\x02",
    "priority": PLAIN + "_SYS_MSG_PRIORITY_\x013\x02",
}
"""Properties of each kind. `delayed` is of the highest level, two hours: no delivery is measured with the sends."""


def made(kind: str) -> bytes:
    """A send (310) of a Java client with these properties."""
    values = {"a": "bench_producer", "b": "T", "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "0", "h": "0"}
    values |= {"i": MADE[kind], "j": "0", "k": "false", "m": "false", "n": "broker-a"}
    fields = ",".join(f'"{name}":"{_escaped(value)}"' for name, value in values.items())
    text = f'{{"code":{SEND_SHORT},"extFields":{{{fields}}},"flag":0,"language":"JAVA","opaque":1,'
    data = (text + '"serializeTypeCurrentRPC":"JSON","version":475}').encode()
    return struct.pack(">II", 4 + len(data) + 1, len(data)) + data + b"x"


def _escaped(value: str) -> str:
    """As fastjson writes a text: UTF-8, escapes for what JSON demands."""
    return re.sub(r'["\\\x00-\x1f]', lambda m: f"\\{m[0]}" if m[0] in '"\\' else f"\\u{ord(m[0]):04x}", value)


# ---- names ----


@cache
def recorded(client: str) -> dict[str, bytes]:
    """The first send of each kind that a client was recorded with; not those whose signature would no longer fit."""
    found: dict[str, bytes] = {}
    for row in json.loads((TRAFFIC / f"{client}.json").read_text()):
        frame = bytes.fromhex(row["frame"])
        if row["code"] in (SEND, SEND_SHORT) and not parts_of(frame)[0].value(SIGNATURE):
            found.setdefault(row["kind"], frame)
    return found


def names() -> Iterator[str]:
    """All frames that a row may name."""
    yield from (f"made:{kind}" for kind in MADE)
    for client in sorted(path.stem for path in TRAFFIC.glob("*.json")):
        yield from (f"{client}:{kind}" for kind in recorded(client))


def frame_named(name: str) -> bytes:
    """The bytes of a frame by its name; FrameError when there is none."""
    where, _, what = name.partition(":")
    if where == "made" and what in MADE:
        return made(what)
    if (TRAFFIC / f"{where}.json").exists() and what in recorded(where):
        return recorded(where)[what]
    raise FrameError(f"there is no frame {name}; `python bench/frames.py` lists them")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="of a frame; none: all names are listed")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--size", type=int, default=0, help="of the body, in bytes; 0: as it was recorded")
    args = parser.parse_args()
    if args.name is None:
        print("\n".join(names()))
        return 0
    try:
        print(template(frame_named(args.name), Target(args.topic, size=args.size)), end="")
    except FrameError as error:
        print(f"frames: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
