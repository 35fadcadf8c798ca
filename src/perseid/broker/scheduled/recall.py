"""RECALL_MESSAGE (370): take a timer message back before its time. Source: broker.md §7.

What is stored for it is a timer message of the same time that names the other one; when both are due, neither is
delivered. So an answer of success says that the wish is stored, not that there was a message to take back.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.asks import PUB, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.results import AppendRefused
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import RecallMessageRequest, RecallMessageResponse
from perseid.wire.record import Message
from perseid.wire.topic_flags import PERM_WRITE

if TYPE_CHECKING:
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.appender import Appender, Transformer

_SEPARATORS = frozenset("\x01\x02")
_URL_SAFE = bytes.maketrans(b"-_+/", b"+/**")
RECALL_TAG = "_RECALL_TAG_"
UNAVAILABLE = "recall failed, broker service not available"


@dataclass(slots=True, kw_only=True)
class RecallRequests:
    """Requests to recall messages for a time."""

    turn: Turn
    settings: Settings
    topics: TopicTable
    appender: Appender
    transformer: Transformer
    answers: Answers
    roles: Roles

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (Route(Code.RECALL_MESSAGE, RecallMessageRequest, self.recall_message, asks=of_topic(PUB, exact=True)),)

    def recall_message(self, request: Request) -> Reply | None:
        """Store the wish; a refusal too says the region, as in the original."""
        try:
            return self._recall(request, request.header)
        except RequestRefused as refused:
            region = {props.MSG_REGION: self.answers.refused_send[props.MSG_REGION]}
            return Reply(refused.code, region, remark=refused.remark)

    def _recall(self, request: Request, header: RecallMessageRequest) -> Reply | None:
        self._check_service(header)
        topic, broker_name, time, unique_key = _read(header.recall_handle)
        if _SEPARATORS.intersection(unique_key):
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if topic != header.topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if broker_name != self.settings.current.broker_name:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, UNAVAILABLE)
        left = int(time) - self.turn.now if time.isascii() and time.isdecimal() and len(time) <= 18 else 0
        if not 0 < left < self.settings.current.timer_max_delay_sec * 1000:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        message = Message(
            topic=topic, body=b"0", born_timestamp=self.turn.now, born_host=request.conn.born_host,
            store_host=self.settings.store_host,
        )  # fmt: skip
        properties = {
            props.TIMER_DEL_UNIQKEY: unique_key,
            props.UNIQ_KEY: unique_key,
            props.TIMER_DELIVER_MS: time,
            props.BORN_TIMESTAMP: str(self.turn.now),
            props.TAGS: RECALL_TAG,
        }
        if header.producer_group and not _SEPARATORS.intersection(header.producer_group):
            properties[props.PGROUP] = header.producer_group
        try:
            self.transformer.transform(message, properties)
            stored = self.appender.store(message)
        except (AppendRefused, RequestRefused) as refused:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {refused}") from None
        reply = Reply(header=RecallMessageResponse(msg_id=unique_key, msg_region=self.settings.current.region_id))
        return self.appender.acknowledge(request, reply, stored.physical_offset + stored.size, wait=True)

    def _check_service(self, header: RecallMessageRequest) -> None:
        config = self.settings.current
        if not config.recall_message_enable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self.roles.is_slave:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE)
        may_write = config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable
        if self.turn.now < config.start_accept_send_request_time_stamp or not may_write:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        self.appender.check_load()
        if self.topics.get(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")


# ---- handles ----


def _read(handle: str) -> tuple[str, str, str, str]:
    """Topic, broker, time and unique key of a handle. RequestRefused(604) when it is none."""
    try:
        padded = handle + "=" * (-len(handle) % 4)
        text = base64.b64decode(padded.encode().translate(_URL_SAFE), validate=True).decode()
    except (ValueError, UnicodeError):
        text = ""
    words = text.split(" ")
    if len(words) < 5 or words[0] != "v1" or not all(words[1:5]):
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return words[1], words[2], words[3], words[4]
