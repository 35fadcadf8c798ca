"""Templates for the load generator: what is changed in a client's frame, and what stays as it was."""

import re
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import frames
from rows import ROWS

from perseid.wire import properties as props
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.command import Command, decode, encode_request
from traffic import CLIENTS

TARGET = frames.Target("other", size=20)


def hole(template: frames.Template, kind: str) -> int:
    (at,) = [at for name, at in template.holes if name == kind]
    return at


def filled(template: frames.Template, opaque: int) -> Command:
    """The command in a template's frame, as a broker reads it."""
    data = bytearray(template.frame)
    for kind, at in template.holes:
        if kind == "opaque32":
            struct.pack_into(">I", data, at, opaque)
        elif kind == "opaque":
            data[at : at + 9] = b"%09d" % opaque
        elif kind == "born":
            data[at : at + 13] = b"1795721763695"
    return decode(bytes(data))


@pytest.mark.parametrize("kind", frames.MADE)
def test_a_kind_keeps_its_properties_but_for_the_key(kind: str) -> None:
    made = frames.template(frames.made(kind), TARGET)
    sent = filled(made, 123_456_789)
    assert sent.opaque == 123_456_789 and len(sent.body) == 20
    fields = sent.ext
    assert (fields["b"], fields["e"], fields["n"]) == ("other", "0", "broker-a")
    assert fields["i"] == frames.MADE[kind]
    assert ("key" in dict(made.holes)) is (props.UNIQ_KEY in frames.MADE[kind])


def test_holes_are_where_the_values_are() -> None:
    many = frames.Target("other", topics=3, shards=2, size=20)
    made = frames.template(frames.made("plain"), many)
    assert made.frame[hole(made, "topic") - 6 :].startswith(b"other-NNNN")
    assert made.frame[hole(made, "shard") - 9 :].startswith(b"broker-a-S")
    assert made.frame[hole(made, "key") :].startswith(frames.KEY[-12:].encode() + b"\\u0002")
    assert made.frame[hole(made, "queue") - 5 :].startswith(b'"e":"0"')
    assert made.frame[hole(made, "born") - 5 :].startswith(b'"g":"0000000000000"')


def test_a_binary_header_keeps_its_encoding_and_its_order() -> None:
    fields = {
        "topic": "T",
        "queueId": "5",
        "bornTimestamp": "1",
        "properties": f"UNIQ_KEY\x01{frames.KEY}",
        "more": "x",
    }
    sent = encode_request(RequestCode.SEND_MESSAGE, 7, fields, b"recorded", serializer=Serializer.ROCKETMQ)
    made = frames.template(sent, frames.Target("a-longer-topic"))
    read = filled(made, 99)
    assert list(read.ext) == list(fields)
    assert (read.opaque, bytes(read.body), read.ext["topic"]) == (99, b"recorded", "a-longer-topic")
    assert (read.ext["queueId"], read.ext["more"]) == ("0", "x")
    assert made.frame[hole(made, "key") :].startswith(frames.KEY[-12:].encode())


def test_what_is_no_send_is_refused() -> None:
    heartbeat = encode_request(RequestCode.HEART_BEAT, 7, body=b"{}")
    with pytest.raises(frames.FrameError, match="no send"):
        frames.template(heartbeat, TARGET)
    with pytest.raises(frames.FrameError, match="no frame made:nonsense"):
        frames.frame_named("made:nonsense")


RECORDED = [name for name in frames.names() if not name.startswith("made:")]


def test_each_client_was_recorded_with_sends() -> None:
    assert {name.partition(":")[0] for name in RECORDED} == {*CLIENTS} and len(RECORDED) > 150
    assert not any(frames.parts_of(frames.frame_named(name))[0].value("Signature") for name in RECORDED)


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_sends_keep_all_but_what_counts(client: str) -> None:
    """Real frames: in each, only what the load generator counts, and the names, are others afterwards."""
    changed = {*frames.LONG_NAMES, *frames.LONG_NAMES.values()}
    for name in (name for name in RECORDED if name.startswith(f"{client}:")):
        data = frames.frame_named(name)
        made = frames.template(data, frames.Target("other"))
        before, after = decode(data), filled(made, 123_456_789)
        kept = {key: value for key, value in before.ext.items() if key not in changed}
        assert kept.items() <= after.ext.items() and list(before.ext) == list(after.ext)
        assert (after.code, after.opaque, after.body) == (before.code, 123_456_789, before.body)
        assert props_of(after) == props_of(before) and (after.ext.get("b") or after.ext["topic"]) == "other"
        keys = re.search(r"UNIQ_KEY\x01[0-9A-Fa-f]{12}", props_of(before)) is not None
        assert len(made.holes) == 3 + keys and ("key" in dict(made.holes)) is keys


def props_of(command: Command) -> str:
    """The properties as they were sent."""
    return command.ext.get("i") or command.ext.get("properties", "")


def test_each_row_names_a_frame_that_is_there() -> None:
    named = {row.frame for row in ROWS if row.frame}
    assert len(named) > 10 and named <= {*frames.names()}
    for name in named:
        assert frames.template(frames.frame_named(name), TARGET).holes
