"""A message within the store's limits, as a record whose places are still empty."""

from __future__ import annotations

from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.properties import PROPERTY_END
from perseid.wire.record import (
    MAX_PROPERTIES_BYTES,
    MAX_RETRY_TOPIC_BYTES,
    MAX_TOPIC_BYTES,
    Message,
    RecordError,
    encode,
)


def encoded(message: Message, config: StoreConfig, log: CommitLog) -> bytearray:
    """The record of a message; AppendRefused when something of it is too large."""
    if len(message.topic) > MAX_TOPIC_BYTES and (
        len(message.topic) > MAX_RETRY_TOPIC_BYTES or not message.topic.startswith(RETRY_PREFIX)
    ):
        raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, f"a topic of {len(message.topic)} characters")
    if message.properties and not message.properties.endswith(PROPERTY_END):
        message.properties += PROPERTY_END  # by it, recovery knows the record's last byte
    if len(message.properties) > MAX_PROPERTIES_BYTES:
        why = f"{len(message.properties)} bytes of properties; at most {MAX_PROPERTIES_BYTES} are allowed"
        raise AppendRefused(PutStatus.PROPERTIES_SIZE_EXCEEDED, why)
    if len(message.body) > config.max_message_size:
        why = f"a body of {len(message.body)} bytes; at most {config.max_message_size} are allowed"
        raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, why)
    try:
        record = encode(message)
        log.admit(len(record))
        return record
    except RecordError as error:
        raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, str(error)) from None
