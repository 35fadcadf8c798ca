"""Request and reply: a message that is answered by its consumer.

    requester: send with CORRELATION_ID, REPLY_TO_CLIENT, TTL → waits → answered | time is up | not sent
    replier:   a message of type `reply` to <cluster>_REPLY_TOPIC of the broker that the request came from; the broker
               hands it to the requester's connection (326)

A broker knows the requester by its heartbeat, so `request` first sees to it that all brokers of the cluster which
could take the reply have one. A reply that nobody waits for (any more) is dropped, and acknowledged, as the Java
client does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.base.errors import PerseidError
from perseid.client.connection import Connection
from perseid.client.errors import BufferFull, ClientError, InvalidMessage, NoReply, NoRoute
from perseid.client.model import Message, MessageQueue, ReceivedMessage, SendResult
from perseid.client.session import Session
from perseid.client.surroundings import now_ms
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import PushReplyMessageRequest
from perseid.wire.host import host_from
from perseid.wire.names import reply_topic
from perseid.wire.record import Record

if TYPE_CHECKING:
    from perseid.client.producer import Packed, Producer

log = logging.getLogger("perseid.client")

REPLY_TYPE = "reply"
MAX_WAITING = 65_535
"""Requests of one session without a reply."""
REQUEST_TIMEOUT_MS = 3_000
"""For the reply, all in all."""
REPLY_TIMEOUT_MS = 11_000
"""A broker waits up to 10 s until the requester says that it has the reply."""
SERVED = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


class Replies:
    """The requests of one session that wait for their replies."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._introduced: dict[str, Connection | None] = {}
        """Address → the connection on which that broker had a heartbeat of ours (None: it could not be reached)."""
        self._introducing = asyncio.Lock()
        session.handlers[SERVED] = self._arrived

    def wait(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """The reply to come. The caller says in the end that it waits no longer (`forget`)."""
        if len(self._waiting) >= MAX_WAITING:
            raise BufferFull(f"{MAX_WAITING} requests wait for replies already: await some of them first")
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Wait no longer."""
        self._waiting.pop(correlation_id, None)

    async def introduce(self, clusters: set[str]) -> None:
        """Let each broker that may be given a reply know us: by a heartbeat, once a connection."""
        session = self._session
        async with self._introducing:
            for cluster in clusters:
                try:
                    await session.routes.get(reply_topic(cluster))
                except NoRoute as error:
                    log.info("no broker of cluster %s takes replies: %s", cluster, error)
            addresses = [address for _, _, address in session.routes.addresses()]
            known, ready = self._introduced, session.connections.ready
            if any(address not in known or ready(address) is not known[address] for address in addresses):
                await session.heartbeat()
                self._introduced = {address: ready(address) for address in addresses}

    def _arrived(self, connection: Connection, command: Command) -> None:
        try:
            reply = received(command)
        except PerseidError as error:
            connection.reply(command, ResponseCode.SYSTEM_ERROR, remark=f"the reply can't be read: {error}")
            return
        future = self._waiting.pop(reply.properties.get(props.CORRELATION_ID, ""), None)
        if future is None:
            log.warning("%s handed on a reply that nobody waits for", connection.address)
        elif not future.done():
            future.set_result(reply)
        connection.reply(command)


def replies_of(session: Session) -> Replies:
    """The replies that a session waits for."""
    if session.replies is None:
        session.replies = Replies(session)
    assert isinstance(session.replies, Replies)
    return session.replies


def received(command: Command) -> ReceivedMessage:
    """The message that a push carries."""
    header = command.header(PushReplyMessageRequest)
    return ReceivedMessage(
        Record(
            size=0,
            magic=0,
            body_crc=0,
            queue_id=header.queue_id,
            flag=header.flag,
            queue_offset=0,
            physical_offset=0,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=host_from(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=host_from(header.store_host),
            reconsume_times=header.reconsume_times or 0,
            prepared_transaction_offset=0,
            body=bytes(command.body),
            topic=header.topic,
            properties=header.properties.encode(),
        ),
        "",
    )


async def request(producer: Producer, message: Message, timeout_ms: int) -> ReceivedMessage:
    """Send a message and wait for the reply. NoReply when it does not come in time."""
    session, loop = producer.session, asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    replies = replies_of(session)
    correlation_id = session.unique_ids.next(now_ms())
    own = {
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: session.client_id,
        props.TTL: str(timeout_ms),
    }
    future = replies.wait(correlation_id)
    try:
        async with asyncio.timeout_at(deadline):
            await replies.introduce(await producer.clusters(message.topic))
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            sent = await producer.send(
                replace(message, properties={**message.properties, **own}), timeout_ms=left_ms
            )
            log.debug("request %s is sent as %s", correlation_id, sent.msg_id)
            return await future
    except TimeoutError:
        raise NoReply(message.topic, timeout_ms) from None
    finally:
        replies.forget(correlation_id)


async def reply(
    producer: Producer,
    request: ReceivedMessage,
    body: bytes,
    timeout_ms: int,
    *,
    tag: str | None = None,
    keys: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> SendResult:
    """Answer a message that was sent with `request`: by the broker that it came from, or by others when that one can't
    reach the requester. InvalidMessage for one that no client waits for a reply to."""
    asked = request.properties
    cluster, client = asked.get(props.CLUSTER), asked.get(props.REPLY_TO_CLIENT)
    correlation_id = asked.get(props.CORRELATION_ID)
    if not cluster or not client or not correlation_id:
        raise InvalidMessage(
            f"{request!r} wants no reply: it lacks {props.CORRELATION_ID}, {props.REPLY_TO_CLIENT} or {props.CLUSTER}"
        )
    own = {
        props.MSG_TYPE: REPLY_TYPE,
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: client,
    }
    if asked.get(props.TTL):
        own[props.TTL] = asked[props.TTL]
    message = Message(reply_topic(cluster), body, tag, keys, {**(properties or {}), **own})
    packed = producer.pack(message)
    packed.code = RequestCode.SEND_REPLY_MESSAGE_V2
    try:
        results = await _send_reply(producer, packed, request.queue.broker_name, timeout_ms)
    except BaseException as error:
        producer.end_calls(packed, error=error)
        raise
    producer.end_calls(packed, results)
    return results[0]


async def _send_reply(producer: Producer, packed: Packed, first: str, timeout_ms: int) -> list[SendResult]:
    """Send a reply by way of the broker `first`, or of another one that can."""
    last: ClientError | None = None
    for queue in _one_a_broker(await producer.queues(packed.topic), first):
        try:
            return await producer.attempt(packed, queue, timeout_ms)
        except ClientError as error:
            log.info("no reply by way of %s: %s", queue.broker_name, error)
            last = last or error
    raise last or ClientError(f"no broker takes replies for {packed.topic}")


def _one_a_broker(queues: Sequence[MessageQueue], first: str) -> list[MessageQueue]:
    found = {queue.broker_name: queue for queue in queues}
    return sorted(found.values(), key=lambda queue: (queue.broker_name != first, queue.broker_name))
