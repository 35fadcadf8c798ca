"""Templates for the load generator: what is changed in a client's frame, and what stays as it was."""

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


def test_each_row_names_a_frame_that_is_there() -> None:
    named = {row.frame for row in ROWS if row.frame}
    assert len(named) > 5 and named <= {*frames.names()}
    for name in named:
        assert frames.template(frames.frame_named(name), TARGET).holes
