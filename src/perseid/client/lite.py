"""Receive messages of lite topics: any number of small topics below one parent topic, each read in order.

    async with Producer("host:9876") as producer:
        await producer.send(Message("chats", b"hello", lite_topic="room-17"))

    async with LiteConsumer("host:9876", "server-3", "chats", ["room-17"]) as consumer:
        for message in await consumer.receive():
            print(message.lite_topic, message.body)
            await consumer.ack(message)

A lite topic need not be created. Its parent has `message.type=LITE`, the group `lite.bind.topic=<parent>`. A client
tells each broker which lite topics it reads: at the start, every SYNC_INTERVAL_MS, and when a broker may have
forgotten. The group gets one batch of a lite topic at a time, until all of it is acknowledged or `invisible_ms` is
over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from perseid.base.errors import PerseidError
from perseid.client.answers import header_of
from perseid.client.connection import Connection
from perseid.client.errors import ClientError, ServerRefused, UsageError
from perseid.client.keywords import PopKeywords
from perseid.client.options import POP_DEFAULTS, PopOptions
from perseid.client.pop import INVISIBLE_MS, PopConsumer, PoppedMessage
from perseid.client.session import Handler, Session
from perseid.client.surroundings import now_ms
from perseid.wire import lite
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.lite import NotifyUnsubscribeLiteRequest, PopLiteMessageRequest, PopLiteMessageResponse
from perseid.wire.lite import LiteSubscriptionChange, LiteSubscriptionCtlBody, OffsetOption
from perseid.wire.pop import Handle
from perseid.wire.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, LITE_TOPIC
from perseid.wire.record import Record

log = logging.getLogger("perseid.client")

SYNC_INTERVAL_MS = 30_000
LIGHT_QUEUE = 0
"""The one queue that a lite topic has."""
NO_RETRY = "0"
"""In a handle: a message of the topic itself."""


class Begin:
    """Where a group begins in lite topics to which it subscribes."""

    @staticmethod
    def first() -> OffsetOption:
        """With the first message that the broker has."""
        return OffsetOption(lite.POLICY, lite.POLICY_MIN)

    @staticmethod
    def next() -> OffsetOption:
        """With the next message that is sent."""
        return OffsetOption(lite.POLICY, lite.POLICY_MAX)

    @staticmethod
    def back(count: int) -> OffsetOption:
        """This number of messages before the group's offset. A group that is new in a lite topic begins as by
        default."""
        return OffsetOption(lite.TAIL_N, count)

    @staticmethod
    def offset(offset: int) -> OffsetOption:
        """At this offset of each lite topic."""
        return OffsetOption(lite.OFFSET, offset)


class LiteConsumer(PopConsumer):
    """Receives messages of one parent's lite topics for one group. `receive`, `ack` and so on are those of
    `PopConsumer`.

    `lite_topics`: the names to read from the start. None: all lite topics of the parent, which needs a group with
    `lite.sub.wildcard=true`. Each message has the name of its lite topic in `lite_topic`.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "PERSEID_LITE",
        parent: str = "",
        lite_topics: Iterable[str] | None = (),
        *,
        invisible_ms: int = INVISIBLE_MS,
        options: PopOptions = POP_DEFAULTS,
        session: Session | None = None,
        **keywords: Unpack[PopKeywords],
    ) -> None:
        if isinstance(lite_topics, str):
            raise UsageError(f"lite_topics={lite_topics!r}: give a list of names")
        super().__init__(
            namesrv, group, parent, invisible_ms=invisible_ms, options=options, session=session, **keywords
        )
        self.client_id = f"{self.session.client_id}@{group}"
        self._reads_all = lite_topics is None
        self._names = dict.fromkeys(lite_topics or ())
        self._told: dict[str, Connection] = {}
        """Brokers that know what we read, as far as we know, and by which connection: behind another one is perhaps
        another broker, or one that has started anew."""
        self._sync: asyncio.Task[None] | None = None

    @property
    def lite_topics(self) -> list[str] | None:
        """The names of the lite topics that it reads. None: all of the parent."""
        return None if self._reads_all else list(self._names)

    # ---- lifecycle ----

    async def start(self) -> None:
        """Subscribe at the brokers. `NoRoute` if there is no such parent, `ServerRefused` if the group may not."""
        if self._started:
            return
        await super().start()
        try:
            self.session.readers[self.client_id] = self
            self.session.handlers[RequestCode.NOTIFY_UNSUBSCRIBE_LITE] = _bind(self.session.readers)
            await self._tell_all()
        except BaseException:
            await self.stop()
            raise
        self._sync = self.session.spawn(self.session.every(SYNC_INTERVAL_MS, self._tell_all), "lite topics")

    async def stop(self) -> None:
        """Unsubscribe at the brokers, and close the connections."""
        if not self._started:
            return
        self.session.readers.pop(self.client_id, None)
        if self._sync is not None:
            self._sync.cancel()
        for broker in self._told:
            try:
                await self._change(broker, lite.COMPLETE_REMOVE, ())
            except PerseidError as error:
                log.info("could not say good-bye to %s: %s", broker, error)
        self._told.clear()
        await super().stop()

    # ---- what is read ----

    async def subscribe(self, *names: str, begin: OffsetOption | None = None) -> None:
        """Also read these lite topics. `begin`: where the group begins in them (`Begin`). None: at its offset; a group
        without one begins with the first message, or with the last if the broker has more than it keeps in memory.

        `ServerRefused` if the brokers allow no more lite topics (2018), or the group may not (604). Another
        `ClientError` if a broker can't be reached to set `begin`.
        """
        await self._partially(lite.PARTIAL_ADD, names, begin)
        self._names |= dict.fromkeys(names)

    async def unsubscribe(self, *names: str) -> None:
        """Stop reading these lite topics."""
        await self._partially(lite.PARTIAL_REMOVE, names, None)
        for name in names:
            self._names.pop(name, None)

    async def _partially(self, action: str, names: Sequence[str], begin: OffsetOption | None) -> None:
        self.session.check_running("LiteConsumer")
        if self._reads_all:
            raise UsageError(f"this LiteConsumer reads all lite topics of {self.topic}")
        if not all(names) or not names:
            raise UsageError(f"lite topics {names!r}: give at least one name, and none that is empty")
        for broker in await self._brokers():
            try:
                await self._change(broker, action, names, begin)
            except ClientError as error:
                if begin is not None:
                    raise  # said once only
                self._tell_later(broker, error)

    async def _tell_all(self) -> None:
        """All that we read, to all brokers."""
        for broker in await self._brokers():
            try:
                await self._tell(broker)
            except ClientError as error:
                self._tell_later(broker, error)

    def _tell_later(self, broker: str, error: ClientError) -> None:
        """A broker that is not there is told all when it is asked next; what one refuses is an error."""
        if isinstance(error, ServerRefused):
            raise error
        self._told.pop(broker, None)
        log.warning("lite topics of %s: %s; told again later", self.topic, error)

    async def _tell(self, broker: str) -> None:
        connection = await self._connection(broker)
        reads = self._names or self._reads_all
        await self._change(broker, lite.COMPLETE_ADD if reads else lite.COMPLETE_REMOVE, self._names)
        self._told[broker] = connection

    async def _connection(self, broker: str) -> Connection:
        return await self.session.connections.get(await self.session.broker(broker, self.topic))

    async def _change(
        self, broker: str, action: str, names: Iterable[str], begin: OffsetOption | None = None
    ) -> None:
        change = LiteSubscriptionChange(
            action=action, client_id=self.client_id, group=self.group, topic=self.topic, lite_topic_set=list(names),
            offset_option=begin, version=now_ms(),
        )  # fmt: skip
        address = await self.session.broker(broker, self.topic)
        body = LiteSubscriptionCtlBody([change]).to_json()
        await self.session.connections.ask(address, RequestCode.LITE_SUBSCRIPTION_CTL, None, body)

    def taken_away(self, name: str) -> None:
        """A broker says that we read a lite topic no longer: another client of an exclusive group does."""
        log.info("%s: another client of %s reads the lite topic %s now", self.topic, self.group, name)
        self._names.pop(name, None)

    # ---- receiving ----

    def _request(self, max_messages: int, wait_ms: int) -> tuple[RequestCode, Header]:
        return RequestCode.POP_LITE_MESSAGE, PopLiteMessageRequest(
            client_id=self.client_id, consumer_group=self.group, topic=self.topic, max_msg_num=max_messages,
            invisible_time=self.invisible_ms, poll_time=wait_ms, born_time=now_ms(),
        )  # fmt: skip

    async def _pop(self, broker: str, max_messages: int, wait_ms: int) -> list[PoppedMessage]:
        if self._told.get(broker) is not await self._connection(broker):
            await self._tell(broker)
        return await super()._pop(broker, max_messages, wait_ms)

    def _messages(self, answer: Command, records: list[Record], broker: str) -> list[PoppedMessage]:
        header = header_of(answer, PopLiteMessageResponse)
        counts = (header.order_count_info or "").split(";")
        if len(counts) != len(records) or not all(map(str.isdecimal, counts)):
            counts = ["0"] * len(records)  # Java's does not always say of whom it speaks (docs/divergence.md)
        return [self._one(*pair, header, broker) for pair in zip(records, counts, strict=True)]

    def _one(self, one: Record, popped_before: str, header: PopLiteMessageResponse, broker: str) -> PoppedMessage:
        name = one.props[LITE_TOPIC]
        queues, offsets = (one.props[key].split(",") for key in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
        offset = int(offsets[queues.index(lite.queue_name(self.topic, name))])
        handle = Handle(
            offset, header.pop_time, header.invisible_time, header.revive_qid, NO_RETRY, broker, LIGHT_QUEUE, offset
        )
        return PoppedMessage(replace(one, reconsume_times=int(popped_before)), broker, handle, name)

    async def ack_all(self, messages: Iterable[PoppedMessage]) -> None:
        """Acknowledge messages, with one request for each."""
        for message in messages:
            await self.ack(message)


def _bind(readers: dict[str, Any]) -> Handler:
    def unsubscribed(connection: Connection, command: Command) -> None:
        header = command.header(NotifyUnsubscribeLiteRequest)
        reader = readers.get(header.client_id)
        if isinstance(reader, LiteConsumer) and reader.group == header.consumer_group:
            reader.taken_away(header.lite_topic)

    return unsubscribed
