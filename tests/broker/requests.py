"""The usual sends and pulls, with what a test wants to be different."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequestV2

SUSPEND = 2
SUBSCRIPTION = 4

_SEND = SendMessageRequestV2(
    producer_group="p", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
    born_timestamp=1_600_000_000_000, flag=0, properties="UNIQ_KEY\x01ID1\x02",
)  # fmt: skip
_PULL = PullMessageRequest(
    consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=SUBSCRIPTION | SUSPEND,
    commit_offset=0, suspend_timeout_millis=15_000, sub_version=0, subscription="*", expression_type="TAG",
)  # fmt: skip


def send_header(**fields: Any) -> SendMessageRequestV2:
    return replace(_SEND, **fields)


def pull_header(**fields: Any) -> PullMessageRequest:
    return replace(_PULL, **fields)


def properties(**pairs: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
