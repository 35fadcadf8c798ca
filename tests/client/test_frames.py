"""Frames by a template are those of `encode_request`."""

from __future__ import annotations

from random import Random

import pytest

from perseid.base.errors import LocalProtocolError
from perseid.client.frames import SendTemplate
from perseid.client.model import Message, MessageQueue
from perseid.client.producer import Packed
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.frame import MAX_FRAME_BYTES
from perseid.wire.headers.send import SendMessageRequestV2

TEXTS = ("", "plain", "消息", 'a "quoted" \\ text', "\x00\n\x7f", "8" * 19, '"2147483647"', "\ud800")


def header(topic: str, group: str, born_timestamp: int, properties: str) -> SendMessageRequestV2:
    made = Packed(topic, b"x", properties, ["ID"]).header(group, MessageQueue(topic, "broker-a", 3), 4)
    made.born_timestamp = born_timestamp
    return made


@pytest.mark.parametrize("group", ["PERSEID_PRODUCER", "Gruppe „ä“", "2147483647"])
def test_a_template_writes_what_encode_request_writes(group: str) -> None:
    random = Random(group)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        template = SendTemplate(code, header("t", group, 0, ""))
        for text in TEXTS:
            opaque, born = random.randrange(1, 2**31), random.randrange(2**41)
            message = Message("t", b"body", tag=text.strip() or None)
            properties = message.encode_properties("ID")
            expected = encode_request(code, opaque, header("t", group, born, properties), message.body)
            assert template.frame(opaque, born, properties, b"body") == expected


def test_a_frame_that_is_too_long_is_refused() -> None:
    template = SendTemplate(RequestCode.SEND_MESSAGE_V2, header("t", "g", 0, ""))
    with pytest.raises(LocalProtocolError, match=f"{MAX_FRAME_BYTES} can be sent"):
        template.frame(1, 1, "", bytes(MAX_FRAME_BYTES))
