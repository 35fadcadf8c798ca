"""SEND_REPLY_MESSAGE (324, 325): an answer to a message, for the client that sent it. Source: remoting.md §10, 14.

Who asked is a producer whose heartbeats this broker knows, by the client id in REPLY_TO_CLIENT. The reply is pushed to
it (326), and the sender hears how that went. With `storeReplyMessageEnable` it is stored as well, for whoever looks
later; nothing depends on that, so its answer waits for no disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.kernel import asks
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.results import AppendRefused
from perseid.store.store import MessageStore
from perseid.wire import ids
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import (
    PushReplyMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from perseid.wire.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK, Message
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.clients.members import ProducerTable
    from perseid.broker.clients.relays import Relays
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.admission import Admission
    from perseid.broker.produce.appender import Appender, Transformer

NOT_STORED = "0"
"""The message id of a reply that is not stored."""


@dataclass(slots=True, kw_only=True)
class ReplyRequests:
    """Replies to requests of producers."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    appender: Appender
    transformer: Transformer
    producers: ProducerTable
    answers: Answers
    durability: Durability
    admission: Admission
    relays: Relays

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.SEND_REPLY_MESSAGE,
                SendMessageRequest,
                self.send_reply,
                on_slave=OnSlave.HANDED_ON,
                asks=asks.nothing,
            ),
            Route(
                Code.SEND_REPLY_MESSAGE_V2,
                SendMessageRequestV2,
                self.send_reply,
                on_slave=OnSlave.HANDED_ON,
                asks=asks.nothing,
            ),
        )

    def send_reply(self, request: Request) -> Reply | None:
        """Hand a reply on; answered when its receiver has it, or can't be reached (1)."""
        try:
            return self._send_reply(request, request.header)
        except RequestRefused as refused:
            return Reply(refused.code, self.answers.refused_send, remark=refused.remark)

    def _send_reply(self, request: Request, header: SendMessageRequest) -> Reply | None:
        body = bytes(request.body)
        if not body:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the message body is empty")
        if len(body) > self.store.config.max_message_size:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a reply of {len(body)} bytes; at most {self.store.config.max_message_size} are allowed",
            )
        self.admission.check_service(header)
        topic = self.topics.get(header.topic) or self.admission.create_topic(header)
        queue_id = self.admission.queue_id_of(header, topic)
        properties = props.decode(header.properties)
        answer = self._store(request, header, body, queue_id, properties)
        client_id = properties.get(props.REPLY_TO_CLIENT)
        if client_id is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"reply message properties[{props.REPLY_TO_CLIENT}] is null"
            )
        client = self.producers.find(client_id)
        if client is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{client_id}> not found."
            )

        def ended(pushed: Command | Failure) -> None:
            if isinstance(pushed, Command) and pushed.code == ResponseCode.SUCCESS:
                self.turn.reply(request, Reply(header=answer))
                return
            why = pushed.reason if isinstance(pushed, Failure) else f"it answered {pushed.code}: {pushed.remark or ''}"
            remark = f"push reply message to {client_id} fail: {why}"
            self.turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, self.answers.refused_send, remark=remark))

        request.command.body = b""  # it is on its way: the answer needs it no more
        request.command.keep()
        pushed = self._pushed(request, header, properties)
        self.relays.ask(client.conn, Code.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body, ended)
        return None

    def _store(
        self,
        request: Request,
        header: SendMessageRequest,
        body: bytes,
        queue_id: int,
        properties: dict[str, str],
    ) -> SendMessageResponse:
        """Store a reply where that is wanted and possible; the header of its answer."""
        not_stored = self.answers.sent(NOT_STORED, queue_id, 0, None)
        if not self.settings.current.store_reply_message_enable or self.durability.too_few:
            return not_stored
        message = Message(
            topic=header.topic,
            body=body,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_MASK),
            born_timestamp=header.born_timestamp,
            born_host=request.conn.born_host,
            store_host=self.settings.store_host,
            reconsume_times=header.reconsume_times,
        )
        self.transformer.transform(message, dict(properties))
        try:
            stored = self.appender.store(message)
        except AppendRefused:  # counted as a failed put; the reply itself does not depend on it
            return not_stored
        msg_id = ids.offset_message_id(self.settings.store_host, stored.physical_offset)
        return self.answers.sent(msg_id, queue_id, stored.queue_offset, None)

    def _pushed(
        self, request: Request, header: SendMessageRequest, properties: dict[str, str]
    ) -> PushReplyMessageRequest:
        """The header of the push: that of the reply, where it was born and stored, and since when it is on its way."""
        properties[props.PUSH_REPLY_TIME] = str(self.turn.now)
        return PushReplyMessageRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=str(request.conn.born_host),
            store_host=str(self.settings.store_host),
            store_timestamp=self.turn.now,
            properties=props.encode(properties).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
