"""Messages: what is refused before it is sent, and how properties travel."""

from typing import Any

import pytest

from perseid.client.errors import InvalidMessage
from perseid.client.model import Message, ReceivedMessage, key_hash
from perseid.wire import compression, properties, record


def test_properties_travel_in_the_form_of_the_wire() -> None:
    text = Message("t", b"x", tag="a", keys=["k1", "k2"], properties={"p": "v"}, delay_level=3).encode_properties("ID")
    assert properties.decode(text) == {
        "UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "p": "v",
    }  # fmt: skip
    assert properties.decode(Message("t", b"x", priority=0).encode_properties("ID"))["_SYS_MSG_PRIORITY_"] == "0"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message("t", b"x", properties={"TAGS": "a"}), "tag="),
        (Message("t", b"x", properties={"p": ""}), "not empty"),
        (Message("t", b"x", properties={"p": "a\x02b"}), "separate properties"),
        (Message("t", b"x", tag="a\x01"), "separate properties"),
    ],
)
def test_properties_that_could_not_be_read_back_are_refused(message: Message, says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        message.encode_properties("ID")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message("", b"x"), "1 to 127 characters"),
        (Message("a b", b"x"), "letters, digits"),
        (Message("t" * 128, b"x"), "1 to 127"),
        (Message("%RETRY%" + "t" * 249, b"x"), "1 to 255"),
        (Message("t", b""), "the body is empty"),
        (Message("t", b"x" * (4 * 1024 * 1024 + 1)), "the limit is 4194304"),
        (Message("t", b"x", priority=-1), "priority=-1: give 0 to 2147483647"),
        (Message("t", b"x", priority=2**31), "give 0 to 2147483647"),
        (Message("t", b"x", delay_level=19), r"delay_level=19: levels are 1 .* to 18 .*; any other time: delay_ms"),
        (Message("t", b"x", delay_level=-1), "delay_level=-1: levels are 1"),
        (Message("t", b"x", delay_ms=-1), "delay_ms=-1, deliver_at_ms=0: below 0"),
        (Message("t", b"x", delay_ms=1.5), "delay_ms=1.5: give a whole number"),
        (Message("t", b"x", delay_level=True), "delay_level=True: give a whole number"),
        (Message("t", b"x", delay_level=3, delay_ms=5), "delay_level=3, delay_ms=5, deliver_at_ms=0: give one of them"),
        (Message("t", b"x", priority=1, delay_level=1), "a message for a time can't have one"),
        (Message("t", b"x", priority=1, delay_ms=5), "a message for a time can't have one"),
    ],
)
def test_what_every_broker_refuses_is_not_sent(message: Message, says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        message.check()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"body": "hello"}, "message for t: the body is of type str; give bytes: 'hello'.encode()"),
        ({"body": "h" * 21}, "message for t: the body is of type str; give bytes: .encode() it"),
        (
            {"body": {"a": 1}},
            "message for t: the body is of type dict; give bytes: json.dumps(…).encode(), or what a serializer makes of"
            " it (perseid.client.serializers)",
        ),
        ({"body": None}, "message for t: the body is None; give bytes: json.dumps(…).encode(), or what a"),
        ({"topic": b"t"}, "message for b't': the topic is of type bytes; give a str"),
        ({"tag": ["a"]}, "message for t: the tag is of type list; give one str, or None"),
        ({"keys": 4711}, "message for t: keys are of type int; give a str, or several"),
        ({"keys": b"k"}, "message for t: keys are of type bytes; give a str, or several"),
        ({"keys": [4711]}, "message for t: the key 4711 is of type int; give str(4711)"),
        (
            {"keys": ["a b"]},
            "message for t: the key 'a b' has a space, which separates keys: replace it, or give several:"
            " keys=['a', 'b']",
        ),
        ({"properties": [("a", "b")]}, "message for t: properties are of type list; give a dict"),
        ({"properties": {"a": 1}}, "property 'a'=1: names and values are texts that are not empty"),
        ({"properties": {1: "a"}}, "property 1='a': names and values are texts that are not empty"),
    ],
)
def test_an_argument_of_another_type_is_refused_where_it_is_given(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidMessage) as told:
        Message(**{"topic": "t", "body": b"x", **arguments})
    assert str(told.value).startswith(says)


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_whatever_holds_bytes_is_a_body(body: Any) -> None:
    Message("t", body, keys=("a", "b")).check()


def test_a_key_has_the_number_that_java_gives_it() -> None:
    assert [key_hash(key) for key in ("TagA", "polygenelubricants", "消息")] == [2598919, 2147483648, 893927]


def received(message: record.Message) -> ReceivedMessage:
    return ReceivedMessage(record.decode(bytes(record.encode(message))), "broker-a")


def test_a_compressed_body_is_inflated_when_asked_for() -> None:
    packed = compression.compress(b"z" * 9000)
    message = received(record.Message(topic="t", body=packed, sys_flag=compression.flag_of(compression.ZLIB)))
    assert message.body == b"z" * 9000


def test_a_retried_message_has_the_topic_it_was_sent_to() -> None:
    raw = properties.encode({"RETRY_TOPIC": "t", "UNIQ_KEY": "U", "TAGS": "a", "KEYS": "k1 k2"})
    message = received(record.Message(topic="%RETRY%g", body=b"x", queue_id=2, properties=raw, reconsume_times=3))
    assert (message.topic, message.msg_id, message.tag, message.keys) == ("t", "U", "a", ["k1", "k2"])
    assert (str(message.queue), message.reconsume_times) == ("%RETRY%g/broker-a/2", 3)
