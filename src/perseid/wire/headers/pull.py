"""Pulling: codes 11 and 361 (remoting.md §10)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long, json_ext


class PullMessageRequest(Header):
    """Wants the messages of one queue from `queue_offset` on."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None


class PullMessageResponse(Header):
    """Where to go on; the records are the body."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None

    def json_ext(self) -> str:
        """As `base.json_ext`, but quicker for the usual fields."""
        topic_flag, group_flag = self.topic_sys_flag, self.group_sys_flag
        unusual = self.offset_delta is not None or self.forbidden_type is not None
        if unusual or topic_flag is None or group_flag is None:
            return json_ext(self)
        return (
            f'{{"suggestWhichBrokerId":"{self.suggest_which_broker_id}",'
            f'"nextBeginOffset":"{self.next_begin_offset}",'
            f'"minOffset":"{self.min_offset}","maxOffset":"{self.max_offset}",'
            f'"topicSysFlag":"{topic_flag}","groupSysFlag":"{group_flag}"}}'
        )
