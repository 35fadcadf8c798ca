"""What every send has to pass, in the order of broker.md §4.1: is it taken now, has its topic room for it, which
queue."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.system_topics import NOT_SENDABLE
from perseid.broker.metadata.topics import FAQ, topic_name_fault
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.topic_flags import PERM_WRITE, UNIT, UNIT_SUB

if TYPE_CHECKING:
    from perseid.broker.metadata.topics import TopicTable

MAX_RANDOM_QUEUE = 99_999_999


@dataclass(slots=True, kw_only=True)
class Admission:
    """The checks that sends share."""

    turn: Turn
    settings: Settings
    topics: TopicTable
    random: Random

    # ---- checks, in the order of broker.md §4.1 ----

    def check_service(self, header: SendMessageRequest) -> None:
        """RequestRefused when no send is taken now, or none to this topic."""
        start = self.settings.current.start_accept_send_request_time_stamp
        if self.turn.now < start:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start}")
        if not self.settings.current.broker_permission & PERM_WRITE and self.topics.is_order(header.topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.current.broker_ip1}] sending message is forbidden",
            )
        if header.topic in NOT_SENDABLE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")

    def create_topic(self, header: SendMessageRequest) -> TopicConfig:
        """The topic of a first send, made after the template that the send names; refused with 29 or 17."""
        fault = topic_name_fault(header.topic)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        retry = header.topic.startswith(RETRY_PREFIX)
        sys_flag = (UNIT_SUB if retry else UNIT) if header.unit_mode else 0
        topic = self.topics.create_on_send(
            header.topic,
            default_topic=header.default_topic,
            queue_nums=header.default_topic_queue_nums,
            config=self.settings.current,
            now=self.turn.now,
            sys_flag=sys_flag,
        )
        if topic is None and retry:
            topic = self.topics.ensure(header.topic, 1, self.turn.now, sys_flag=sys_flag)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            )
        return topic

    def queue_id_of(self, header: SendMessageRequest, topic: TopicConfig) -> int:
        """The queue that was asked for, or one at random where none was."""
        queue_id = header.queue_id
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {topic.topic_name} has {topic.write_queue_nums} write queues",
            )
        if queue_id >= 0:
            return queue_id
        if topic.write_queue_nums <= 0:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic {topic.topic_name} has no queue to write to")
        return self.random.randrange(MAX_RANDOM_QUEUE) % topic.write_queue_nums
