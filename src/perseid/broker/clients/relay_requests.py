"""What operators ask of consumers through the broker: 307, 309, 223, and 222 where clients reset their offsets
themselves. Source: remoting.md §12, 14, 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.broker.clients import relays
from perseid.broker.clients.members import Client
from perseid.broker.kernel import messages
from perseid.broker.kernel.asks import GET, SUB, each, of_group, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.reads import Reads
from perseid.wire import ids
from perseid.wire.bodies import GetConsumerStatusBody, MessageQueue, QueueOffset, ResetOffsetBody, ResetOffsetBodyForC
from perseid.wire.codes import Language, ResponseCode, Version
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import Command
from perseid.wire.headers import admin as admin_headers
from perseid.wire.headers.clients import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from perseid.wire.headers.offsets import GetConsumerStatusRequest, ResetOffsetRequest
from perseid.wire.rpc import NO_ANSWER, Failure

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.clients.relays import Relays
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable

STATUS_TIMEOUT_MS = 5_000


class Offsets(Protocol):
    """How far groups are."""

    def query(self, topic: str, group: str, queue_id: int) -> int | None:
        """In a queue; None: nobody knows."""


@dataclass(slots=True, kw_only=True)
class RelayRequests:
    """Requests of operators that consumers answer."""

    turn: Turn
    settings: Settings
    reads: Reads
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: Offsets
    consumers: ConsumerTable
    relays: Relays

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequest,
                self.get_consumer_running_info,
                asks=of_group(GET),
            ),
            Route(
                Code.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyRequest,
                self.consume_message_directly,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
            Route(
                Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                admin_headers.GetConsumerStatusRequest,
                self.get_consumer_status,
                asks=each(of_topic(GET), of_group(GET, of="group")),
            ),
        )

    # ---- one consumer ----

    def get_consumer_running_info(self, request: Request) -> Reply | None:
        """What a consumer says of itself: its settings, its queues, its rates, if asked for its stacks."""
        header: GetConsumerRunningInfoRequest = request.header
        return self._relay(request, header.consumer_group, header.client_id, request.command.ext, b"")

    def consume_message_directly(self, request: Request) -> Reply | None:
        """Give a consumer one stored message, named by its place in the log; what it made of it."""
        header: ConsumeMessageDirectlyRequest = request.header
        ext = dict(request.command.ext)
        ext["brokerName"] = self.settings.current.broker_name
        topic = self.topics.get(header.topic) if header.topic else None
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self.groups.get(header.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        body = self._message(header.msg_id)
        return self._relay(request, header.consumer_group, header.client_id or "", ext, body)

    def _message(self, msg_id: str | None) -> bytes:
        """The record that an id names."""
        try:
            _, offset = ids.parse_offset_message_id(msg_id or "")
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return bytes(messages.found_at(self.reads, offset))

    def _relay(
        self, request: Request, group: str, client_id: str, ext: Mapping[str, str | None], body: bytes
    ) -> Reply | None:
        client = self.consumers.client(group, client_id)
        if client is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        _check_version(client, Version.V3_1_8_SNAPSHOT)

        def ended(answer: Command | Failure) -> None:
            if isinstance(answer, Command):
                self.turn.reply(request, Reply(answer.code, answer.ext, bytes(answer.body), answer.remark))
            elif answer.reason == NO_ANSWER:
                why = f"consumer <{group}> <{client_id}> Timeout: {relays.TIMEOUT_MS} ms"
                self.turn.reply(request, Reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=why))
            else:
                why = f"invoke consumer <{group}> <{client_id}> Exception: {answer.reason}"
                self.turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark=why))

        code = request.command.code
        request.command.keep()
        self.relays.ask(client.conn, code, ext, body, ended)
        return None

    # ---- all consumers of a group ----

    def get_consumer_status(self, request: Request) -> Reply | None:
        """The offsets in a topic that a group's members hold, by client id, or those of one member. Who does not answer
        in time is left out."""
        header: GetConsumerStatusRequest = request.header
        group = self.consumers.group(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        wanted = (header.client_addr or "").strip()
        members = [client for client in group.clients.values() if not wanted or client.client_id == wanted]
        for client in members:
            _check_version(client, Version.V3_0_7_SNAPSHOT)
        gathering = _Gathering(len(members))

        def ended(client_id: str, answer: Command | Failure) -> None:
            if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
                try:
                    body = GetConsumerStatusBody.from_json(answer.body)
                    gathering.tables[client_id] = body.message_queue_table
                except RequestRefused as error:
                    self.turn.note("warning", f"consumer {client_id} told no offsets that can be read: {error}")
            gathering.missing -= 1
            if gathering.missing == 0:
                self.turn.reply(request, _status(gathering))

        if not members:
            return _status(gathering)
        request.command.keep()
        question = GetConsumerStatusRequest(topic=header.topic, group=header.group)
        for client in members:
            told = partial(ended, client.client_id)
            code = Code.GET_CONSUMER_STATUS_FROM_CLIENT
            self.relays.ask(client.conn, code, question, b"", told, STATUS_TIMEOUT_MS)
        return None

    def reset_by_clients(self, request: Request) -> Reply:
        """Let a group's living members go on at a time in all queues of a topic (negative: at the end), each by itself
        (`useServerSideResetOffset=false`).

        Without `isForce` a queue never goes on further ahead than it is. RequestRefused: 17, 1 for a group that has
        committed nothing there, 206 when nobody of it is alive.
        """
        header: ResetOffsetRequest = request.header
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        table: dict[MessageQueue, int] = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self.offsets.query(header.topic, header.group, queue_id)
            if committed is None:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            if header.timestamp == -1:
                offset = self.reads.max_offset(header.topic, queue_id)
            else:
                offset = max(0, self.reads.offset_by_time(header.topic, queue_id, header.timestamp))
            queue = MessageQueue(header.topic, self.settings.current.broker_name, queue_id)
            table[queue] = offset if header.is_force else min(offset, committed)
        group = self.consumers.group(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        for client in group.clients.values():
            _check_version(client, Version.V3_0_7_SNAPSHOT)
        notice = ResetOffsetRequest(group=header.group, topic=header.topic, timestamp=header.timestamp)
        for client in group.clients.values():
            body = _for_c(table) if request.command.language == Language.CPP else ResetOffsetBody(offset_table=table)
            self.relays.tell(client.conn, Code.RESET_CONSUMER_CLIENT_OFFSET, notice, body.to_json())
        return Reply(body=ResetOffsetBody(offset_table=table).to_json())


def _check_version(client: Client, least: Version) -> None:
    if client.version < least:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, please upgrade it",
        )


@dataclass(slots=True)
class _Gathering:
    """Answers that come one by one."""

    missing: int
    tables: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


def _status(gathering: _Gathering) -> Reply:
    return Reply(body=GetConsumerStatusBody(consumer_table=gathering.tables).to_json())


def _for_c(table: Mapping[MessageQueue, int]) -> ResetOffsetBodyForC:
    rows = [QueueOffset(queue.broker_name, offset, queue.queue_id, queue.topic) for queue, offset in table.items()]
    return ResetOffsetBodyForC(offset_table=rows)
