"""Write tests/traffic/cpp-2.2.0-like.json: `python tests/interop/recording/cpp_like.py`.

The C++ client (apache/rocketmq-client-cpp, 7c8b7f8) can't be installed by a package manager. Its frames are written
here as its source has them: jsoncpp's FastWriter sorts the members, leaves no spaces and ends with a line feed; numbers
of the header are numbers or texts, one by one; an unsigned request has its three fields of signatures, all empty; the
text in UTF-8 stands raw (jsoncpp 0.10) or as \\u escapes (1.9).
"""

from __future__ import annotations

import json
from pathlib import Path

TRAFFIC = Path(__file__).resolve().parents[2] / "traffic"
VERSION = 317
"""V4_6_0"""
UNSIGNED = {"AccessKey": "", "OnsChannel": "", "Signature": ""}
BORN = 1_795_721_130_000
BODY = b"recorded body"
SEND, PULL = 310, 11


def frame(code: int, fields: dict[str, str | int], body: bytes, *, escaped: bool = False) -> bytes:
    """One request as the client writes it."""
    root = {
        "code": code, "extFields": {**fields, **UNSIGNED}, "flag": 0, "language": "CPP", "opaque": 7, "remark": "",
        "version": VERSION,
    }  # fmt: skip
    text = json.dumps(root, sort_keys=True, separators=(",", ":"), ensure_ascii=escaped).replace("\x7f", "\\u007F")
    head = f"{text}\n".encode()
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


def send(properties: dict[str, str], *, escaped: bool = False, sys_flag: int = 0, number: int = 0) -> bytes:
    """A message: its properties in the order of their names, each with a separator behind it."""
    unique = f"7F0000010000{number:020X}"
    named = sorted({**properties, "UNIQ_KEY": unique}.items())
    fields: dict[str, str | int] = {
        "a": "recorded_producer", "b": "recorded", "c": "TBW102", "d": 4, "e": 1, "f": sys_flag, "g": str(BORN), "h": 0,
        "i": "".join(f"{name}\x01{value}\x02" for name, value in named), "j": "0", "k": "false", "l": 16, "m": "false",
    }  # fmt: skip
    return frame(SEND, fields, BODY, escaped=escaped)


def pull(subscription: str, offset: int) -> bytes:
    """A pull of the push consumer, which is held by the broker when there is nothing."""
    fields: dict[str, str | int] = {
        "consumerGroup": "recorded_push", "topic": "recorded", "queueId": 1, "queueOffset": str(offset),
        "maxMsgNums": 32, "sysFlag": 6, "commitOffset": "0", "subVersion": str(BORN), "suspendTimeoutMillis": "20000",
        "subscription": subscription,
    }  # fmt: skip
    return frame(PULL, fields, b"")


def rows() -> list[tuple[str, int, bytes]]:
    """Kind, code and frame."""
    chinese = {"TAGS": "标签", "KEYS": "订单-42 键"}
    sends = {
        "plain": send({}, number=1),
        "tag": send({"TAGS": "TagA"}, number=2),
        "tag-and-keys": send({"TAGS": "TagA", "KEYS": "order-1 order-2"}, number=3),
        "chinese-key": send(chinese, number=4),
        "chinese-key-escaped": send(chinese, escaped=True, number=5),
        "json-property": send({"trace": '{"id": "a\\b", "hops": [1, 2]}'}, number=6),
        "delay-level": send({"DELAY": "3"}, number=7),
        "compressed": send({}, sys_flag=1, number=8),
    }
    pulls = [("push", pull("*", offset)) for offset in (0, 1)] + [("push-tags", pull("TagA || TagB", 0))]
    return [(kind, SEND, data) for kind, data in sends.items()] + [(kind, PULL, data) for kind, data in pulls]


def main() -> None:
    lines = [json.dumps({"kind": kind, "code": code, "frame": data.hex()}) for kind, code, data in rows()]
    (TRAFFIC / "cpp-2.2.0-like.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
