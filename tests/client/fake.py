"""A small name server and broker in one, on loopback: enough of the protocol for the client, and scriptable.

    async with FakeServer({"t": 4}) as server:
        server.script[RequestCode.SEND_MESSAGE_V2].append(refuse(ResponseCode.SYSTEM_BUSY))
        async with Producer(server.address) as producer: …

Each entry of `script[code]` answers one request of that code; what is not scripted is served from memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perseid.client.blocking import LoopThread
from perseid.wire import batch, bodies, frame, properties, record
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request, encode_response
from perseid.wire.headers import clients, namesrv, offsets, pull, query, send, topics
from perseid.wire.headers.base import Header
from perseid.wire.host import host_from

DEADLINE_S = 20
BROKER = "fake-a"
T = TypeVar("T")


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine, with a deadline."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await test

    return asyncio.run(bounded())


@dataclass
class Answer:
    """What a request is answered with; `silent`: nothing at all; `hang_up`: the connection ends."""

    code: int = 0
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None
    silent: bool = False
    hang_up: bool = False


Script = Callable[[Command], "Answer | Awaitable[Answer] | None"]


def refuse(code: int, remark: str = "scripted") -> Script:
    return lambda command: Answer(code, remark=remark)


def silence(command: Command) -> Answer:
    return Answer(silent=True)


def hang_up(command: Command) -> Answer:
    return Answer(hang_up=True)


def serve_late(gate: asyncio.Event) -> Script:
    """Serve as usual, but only once `gate` is open."""

    async def wait(command: Command) -> Answer:
        await gate.wait()
        return Answer(-1)

    return wait


@dataclass
class Queue:
    """The stored messages of one queue."""

    records: list[record.Message] = field(default_factory=list)
    first: int = 0


class _Peer(asyncio.Protocol):
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.client_id = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.server.peers.append(self)
        self.server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.peers.remove(self)
        for members in self.server.members.values():
            members.discard(self.client_id)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = frame.complete(self.buffer)
        whole, self.buffer = bytes(self.buffer[:end]), self.buffer[end:]
        for command in decode_all(whole):
            self.server.received(self, command)


class FakeServer:
    """Topics with their number of queues; other state starts empty."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.queues_of: dict[str, int] = dict(topics or {})
        self.queues: dict[tuple[str, int], Queue] = defaultdict(Queue)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, set[str]] = defaultdict(set)
        self.locks: dict[tuple[str, int], str] = {}
        self.sent_back: list[clients.ConsumerSendMsgBackRequest] = []
        self.heartbeats: list[bodies.HeartbeatData] = []
        self.script: dict[int, deque[Script]] = defaultdict(deque)
        self.seen: list[Command] = []
        self.headers: list[send.SendMessageRequestV2] = []
        self.peers: list[_Peer] = []
        self.connections = 0
        self.broker_id = 0
        self.address = ""
        self.answers: list[Command] = []
        self.young = True
        self._changed = asyncio.Event()
        self._physical = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- life ----

    async def __aenter__(self) -> FakeServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", port, reuse_address=True)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """As a crash of the process: connections end, state stays for the next `start()`."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        self.hang_up_all()
        await self._server.wait_closed()

    def hang_up_all(self) -> None:
        for peer in list(self.peers):
            if peer.transport is not None:
                peer.transport.abort()

    # ---- for tests ----

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; looked at after each request and answer."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def changed(self) -> None:
        self._changed.set()

    def count(self, code: int) -> int:
        return sum(1 for command in self.seen if command.code == code)

    def bodies(self, topic: str, queue_id: int | None = None) -> list[bytes]:
        """The stored bodies, by queue and offset."""
        keys = sorted(key for key in self.queues if key[0] == topic and queue_id in (None, key[1]))
        return [bytes(message.body) for key in keys for message in self.queues[key].records]

    def store(self, topic: str, queue_id: int, body: bytes, values: dict[str, str] | None = None) -> int:
        queue = self.queues[topic, queue_id]
        raw = properties.encode(values or {"UNIQ_KEY": f"U{len(queue.records)}"})
        queue.records.append(record.Message(topic=topic, body=body, queue_id=queue_id, properties=raw))
        self.changed()
        return queue.first + len(queue.records) - 1

    def ask_clients(self, code: int, header: Header, body: bytes = b"", *, oneway: bool = True) -> None:
        """A request of the server's own, to every connection."""
        for peer in self.peers:
            assert peer.transport is not None
            peer.transport.write(encode_request(code, 77, header, body, oneway=oneway))

    # ---- serving ----

    def received(self, peer: _Peer, command: Command) -> None:
        if command.is_response:
            self.answers.append(command.keep())
        else:
            self.seen.append(command)
            task = asyncio.get_running_loop().create_task(self._serve(peer, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.changed()

    async def _serve(self, peer: _Peer, command: Command) -> None:
        scripted = self.script[command.code]
        answer = scripted.popleft()(command) if scripted else None
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None or answer.code == -1:
            handler = getattr(self, f"_on_{RequestCode(command.code).name.lower()}", None)
            if handler is None:
                answer = Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="the fake has no such thing")
            else:
                answer = handler(peer, command)
                if isinstance(answer, Awaitable):
                    answer = await answer
        assert peer.transport is not None
        if answer.hang_up:
            peer.transport.abort()
        elif not answer.silent and not command.is_oneway:
            peer.transport.write(
                encode_response(command.opaque, answer.code, answer.header, answer.body, remark=answer.remark)
            )
        self.changed()

    def _on_get_routeinfo_by_topic(self, peer: _Peer, command: Command) -> Answer:
        topic = command.header(namesrv.GetRouteInfoByTopicRequest).topic
        if topic not in self.queues_of:
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        count = self.queues_of[topic]
        route = bodies.TopicRouteData(
            queue_datas=[bodies.QueueData(BROKER, count, count, 6)],
            broker_datas=[bodies.BrokerData("fake", BROKER, {self.broker_id: self.address})],
        )
        return Answer(body=route.to_json(standard=True))

    def _on_get_broker_cluster_info(self, peer: _Peer, command: Command) -> Answer:
        data = bodies.BrokerData("fake", BROKER, {self.broker_id: self.address})
        return Answer(body=bodies.ClusterInfo({BROKER: data}, {"fake": [BROKER]}).to_json())

    def _on_get_all_topic_list_from_nameserver(self, peer: _Peer, command: Command) -> Answer:
        return Answer(body=bodies.TopicList(list(self.queues_of)).to_json())

    def _on_update_and_create_topic(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(topics.CreateTopicRequest)
        self.queues_of[header.topic] = header.write_queue_nums
        return Answer()

    def _on_delete_topic_in_broker(self, peer: _Peer, command: Command) -> Answer:
        return Answer()

    def _on_delete_topic_in_namesrv(self, peer: _Peer, command: Command) -> Answer:
        self.queues_of.pop(command.header(namesrv.DeleteTopicInNamesrvRequest).topic, None)
        return Answer()

    def _on_get_topic_stats_info(self, peer: _Peer, command: Command) -> Answer:
        topic = command.header(topics.GetTopicStatsInfoRequest).topic
        rows = {}
        for number in range(self.queues_of[topic]):
            queue = self.queues[topic, number]
            rows[bodies.MessageQueue(topic, BROKER, number)] = bodies.TopicOffset(
                queue.first, queue.first + len(queue.records), 0
            )
        return Answer(body=bodies.TopicStatsTable(rows).to_json())

    def _on_get_broker_runtime_info(self, peer: _Peer, command: Command) -> Answer:
        return Answer(body=bodies.KVTable({"brokerVersion": "513"}).to_json())

    # -- messages --

    def _on_send_message_v2(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(send.SendMessageRequestV2)
        self.headers.append(header)
        self.queues_of.setdefault(header.topic, header.default_topic_queue_nums)
        queue = self.queues[header.topic, header.queue_id]
        first = queue.first + len(queue.records)
        if header.batch:
            items = [(item.flag, bytes(item.body), item.properties) for item in batch.decode(command.body)]
        else:
            items = [(header.flag, bytes(command.body), header.properties.encode())]
        for flag, body, raw in items:
            queue.records.append(
                record.Message(
                    topic=header.topic,
                    body=body,
                    queue_id=header.queue_id,
                    flag=flag,
                    sys_flag=header.sys_flag,
                    reconsume_times=header.reconsume_times,
                    properties=raw,
                    store_host=host_from(self.address),
                )
            )
        ids = ",".join(f"{first + i:032X}" for i in range(len(items)))
        return Answer(header=send.SendMessageResponse(msg_id=ids, queue_id=header.queue_id, queue_offset=first))

    _on_send_batch_message = _on_send_message_v2

    async def _on_pull_message(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(pull.PullMessageRequest)
        queue = self.queues[header.topic, header.queue_id]
        if header.sys_flag & 1:
            self.committed[header.consumer_group, header.topic, header.queue_id] = header.commit_offset

        def end() -> int:
            return queue.first + len(queue.records)

        def moved(to: int, code: int) -> Answer:
            return Answer(
                code,
                pull.PullMessageResponse(
                    suggest_which_broker_id=0, next_begin_offset=to, min_offset=queue.first, max_offset=end()
                ),
            )

        if not queue.first <= header.queue_offset <= end():
            return moved(queue.first if header.queue_offset < queue.first else end(), ResponseCode.PULL_OFFSET_MOVED)
        if header.queue_offset == end() and header.sys_flag & 2:
            try:
                async with asyncio.timeout(header.suspend_timeout_millis / 1000):
                    await self.until(lambda: end() > header.queue_offset)
            except TimeoutError:
                pass
        if header.queue_offset == end():
            return moved(end(), ResponseCode.PULL_NOT_FOUND)
        start = header.queue_offset - queue.first
        found = queue.records[start : start + header.max_msg_nums]
        body = b""
        for number, message in enumerate(found):
            raw = record.encode(message)
            self._physical += 1000
            record.patch(raw, header.queue_offset + number, self._physical, 1_700_000_000_000 + number)
            body += raw
        answer = moved(header.queue_offset + len(found), 0)
        answer.body = body
        return answer

    def _on_consumer_send_msg_back(self, peer: _Peer, command: Command) -> Answer:
        self.sent_back.append(command.header(clients.ConsumerSendMsgBackRequest))
        return Answer()

    def _on_query_message(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(query.QueryMessageRequest)
        found = [m for (topic, _), q in self.queues.items() if topic == header.topic for m in q.records]
        raw = b"".join(record.encode(m) for m in found)
        times = query.QueryMessageResponse(index_last_update_timestamp=0, index_last_update_phyoffset=0)
        return Answer(0 if raw else ResponseCode.QUERY_NOT_FOUND, times, raw)

    # -- offsets --

    def _on_get_max_offset(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(offsets.GetMaxOffsetRequest)
        queue = self.queues[header.topic, header.queue_id]
        return Answer(header=offsets.OffsetResponse(offset=queue.first + len(queue.records)))

    def _on_get_min_offset(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(offsets.GetMinOffsetRequest)
        return Answer(header=offsets.OffsetResponse(offset=self.queues[header.topic, header.queue_id].first))

    def _on_search_offset_by_timestamp(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(offsets.SearchOffsetByTimestampRequest)
        return Answer(header=offsets.OffsetResponse(offset=header.timestamp - 1_700_000_000_000))

    def _on_query_consumer_offset(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(offsets.QueryConsumerOffsetRequest)
        offset = self.committed.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None and self.young and header.set_zero_if_not_found is not False:
            offset = 0
        if offset is None:
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark="not found")
        return Answer(header=offsets.OffsetResponse(offset=offset))

    def _on_update_consumer_offset(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(offsets.UpdateConsumerOffsetRequest)
        self.committed[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return Answer()

    # -- groups --

    def _on_heart_beat(self, peer: _Peer, command: Command) -> Answer:
        data = bodies.HeartbeatData.from_json(command.body)
        self.heartbeats.append(data)
        peer.client_id = data.client_id
        for consumer in data.consumer_data_set:
            self.queues_of.setdefault(f"%RETRY%{consumer.group_name}", 1)
            self.members[consumer.group_name].add(data.client_id)
        return Answer(header=clients.HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=False))

    def _on_unregister_client(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(clients.UnregisterClientRequest)
        if header.consumer_group:
            self.members[header.consumer_group].discard(header.client_id)
        return Answer()

    def _on_get_consumer_list_by_group(self, peer: _Peer, command: Command) -> Answer:
        group = command.header(clients.GetConsumerListByGroupRequest).consumer_group
        return Answer(body=bodies.GetConsumerListByGroupResponseBody(sorted(self.members[group])).to_json())

    def _on_lock_batch_mq(self, peer: _Peer, command: Command) -> Answer:
        body = bodies.LockBatchRequestBody.from_json(command.body)
        me = body.client_id
        mine = [q for q in body.mq_set if self.locks.setdefault((q.topic, q.queue_id), me) == me]
        return Answer(body=bodies.LockBatchResponseBody(mine).to_json())

    def _on_unlock_batch_mq(self, peer: _Peer, command: Command) -> Answer:
        body = bodies.UnlockBatchRequestBody.from_json(command.body)
        for queue in body.mq_set:
            if self.locks.get((queue.topic, queue.queue_id)) == body.client_id:
                del self.locks[queue.topic, queue.queue_id]
        return Answer()


@contextmanager
def in_a_thread(fake: FakeServer) -> Iterator[FakeServer]:
    """For programs that block: the server has a loop of its own, which leaves no thread behind."""
    before = threading.active_count()
    thread = LoopThread("fake server")
    thread.run(fake.start())
    yield fake
    thread.run(fake.stop())
    thread.stop()
    assert threading.active_count() < before + 20
