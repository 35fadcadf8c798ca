"""Retries of messages whose handler failed: they go back to the broker, which delivers them again later.

The usual way is a request (CONSUMER_SEND_MSG_BACK) that names the message by its place in the log. When the
broker can't take that (it is away, or the log has moved on), the message is sent to the group's retry topic
like any other, with the same properties, so that it may go to another broker.
"""

from __future__ import annotations

import logging

from perseid.base.errors import PerseidError
from perseid.client.model import ReceivedMessage
from perseid.client.producer import Packed, Producer
from perseid.client.session import Session
from perseid.wire import properties
from perseid.wire.codes import RequestCode
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.mapping import MOCK_PREFIX
from perseid.wire.names import RETRY_PREFIX

log = logging.getLogger("perseid.client")

SEND_BACK_TIMEOUT_MS = 5000
FIRST_DELAY_LEVEL = 3
"""10 s; each time a message comes back it waits one level longer."""
DEAD_LETTER_LEVEL = -1
_TO_RETRY_BITS = 0x701
"""Compression bits of the sysFlag: the body travels on as it came."""


class Retries:
    """Hands messages of one group back."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._topic = RETRY_PREFIX + group
        self._producer = Producer("", "CLIENT_INNER_PRODUCER", session=session)

    async def start(self) -> None:
        """Get ready."""
        await self._producer.start()

    async def stop(self) -> None:
        """Nothing is handed back any more."""
        await self._producer.stop()

    async def give_back(self, message: ReceivedMessage, delay_level: int, max_times: int) -> bool:
        """Have a message delivered again later, or to the dead letters after `max_times`; False: no broker took it."""
        if message.queue.broker_name.startswith(MOCK_PREFIX):  # its broker need not be the queue's leader
            return await self.send_to_retry_topic(message, max_times)
        request = ConsumerSendMsgBackRequest(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=max_times,
        )
        try:
            address = await self._session.broker(message.queue.broker_name, message.queue.topic)
            await self._session.connections.ask(
                address, RequestCode.CONSUMER_SEND_MSG_BACK, request, timeout_ms=SEND_BACK_TIMEOUT_MS
            )
            return True
        except PerseidError as error:
            log.info("%r could not be given back, so it is sent to %s: %s", message, self._topic, error)
        return await self.send_to_retry_topic(message, max_times)

    async def send_to_retry_topic(self, message: ReceivedMessage, max_times: int) -> bool:
        """The same by an ordinary send; what came back `max_times` already, the broker puts to the dead letters."""
        record = message.record
        values = dict(record.props)
        values.pop(properties.TRAN_MSG, None)
        values.setdefault(properties.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        values[properties.RETRY_TOPIC] = message.topic
        values[properties.DELAY] = str(FIRST_DELAY_LEVEL + message.reconsume_times)
        packed = Packed(
            self._topic,
            record.body,
            str(properties.encode(values), "utf-8"),
            [message.msg_id],
            record.flag,
        )
        packed.sys_flag = record.sys_flag & _TO_RETRY_BITS
        packed.reconsume_times = message.reconsume_times + 1
        packed.header_max_reconsume = max_times
        try:
            await self._producer.send_packed(packed)
        except PerseidError as error:
            log.warning("%r could not be sent to %s either: %s", message, self._topic, error)
            return False
        return True
