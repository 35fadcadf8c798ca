"""A broker in virtual time: your test decides when time passes, when the process dies, when the power fails.

    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"one", queue_id=0)
        broker.send("orders", b"two", queue_id=0, delay_level=3)     # ten seconds later
        assert [m.body for m in broker.pull("orders", 0)] == [b"one"]
        broker.advance(11_000)
        assert [m.body for m in broker.pull("orders", 0)] == [b"one", b"two"]
        broker.cut_power()
        broker.start()

Nothing sleeps and no port is opened: ten seconds take a millisecond. The broker is the real one. Its simulated disk
loses at a power cut what was not synced (`perseid.sim.disk`); `seed` decides how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from perseid.base.errors import PerseidError, RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.config import BrokerConfig
from perseid.sim.driver import NodeDriver
from perseid.sim.net import End, Network
from perseid.store.config import StoreConfig
from perseid.testing.cluster import VirtualCluster
from perseid.testing.machines import BROKER, CLIENT_IP, SMALL_STORE
from perseid.testing.transport import CLIENT
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.headers.base import Header
from perseid.wire.headers.offsets import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from perseid.wire.headers.topics import CreateTopicRequest
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import Record
from perseid.wire.record import decode_all as decode_records

TIMEOUT_MS = 30_000
SUSPEND, SUBSCRIPTION = 2, 4
PULL_ANSWERS = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
STOP_S = 30


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message was stored."""

    msg_id: str
    """The id of the message."""
    queue_id: int
    """The queue in which it is stored."""
    queue_offset: int
    """Its offset in this queue."""
    code: int
    """0, or 10: stored, but not flushed in time."""


class Pulled(list[Record]):
    """The messages of one pull, with the broker's data about their queue."""

    def __init__(self, records: Sequence[Record], code: int, header: PullMessageResponse) -> None:
        super().__init__(records)
        self.code = code
        self.next_offset = header.next_begin_offset
        self.min_offset = header.min_offset
        self.max_offset = header.max_offset


class VirtualBroker(VirtualCluster):
    """A broker and its name server in virtual time; they run as soon as it is made.

    Use it with the asyncio clients (`run`), or with its own small client in plain tests: `send`, `pull`, `commit`.
    """

    def __init__(self, *, broker: BrokerConfig = BROKER, store: StoreConfig = SMALL_STORE, seed: int = 0) -> None:
        super().__init__(seed=seed, broker=broker, store=store)
        self._client = _Client(self.loop.play, self.network)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.running:
            self.stop()
        super().__exit__(kind, error, trace)

    # ---- life ----

    @property
    def broker(self) -> NodeDriver:
        """The broker's state machine, to inspect it."""
        return self.machines.brokers[0]

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        return self.broker.machine is not None

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self.shut_down("broker-1")
        self.until(lambda: not self.running, within_s=STOP_S)

    def crash(self) -> None:
        """Kill the broker's process: its memory is lost, its disk is not."""
        self.kill("broker-1")

    # ---- requests ----

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic, or change its number of queues."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        self._succeed(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int = -1,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        delay_ms: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> Sent:
        """Send a message and wait for its acknowledgement. `RequestRefused` has the broker's code and remark."""
        all_properties = dict(properties or {})
        if tag is not None:
            all_properties[props.TAGS] = tag
        if keys:
            all_properties[props.KEYS] = " ".join(keys)
        if delay_level:
            all_properties[props.DELAY] = str(delay_level)
        if delay_ms:
            all_properties[props.TIMER_DELAY_MS] = str(delay_ms)
        header = SendMessageRequestV2(
            producer_group="virtual",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self.now,
            flag=0,
            properties=str(props.encode(all_properties), "utf-8"),
        )
        reply = self._succeed(RequestCode.SEND_MESSAGE_V2, header, body, (0, ResponseCode.FLUSH_DISK_TIMEOUT))
        answer = reply.header(SendMessageResponse)
        return Sent(answer.msg_id, answer.queue_id, answer.queue_offset, reply.code)

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
        group: str = "virtual",
        expression: str = "*",
    ) -> Pulled:
        """The messages of a queue from an offset on. The pull may wait up to `wait_ms` for the next one."""
        header = PullMessageRequest(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=SUBSCRIPTION | (SUSPEND if wait_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            sub_version=0,
            subscription=expression,
            expression_type="TAG",
        )
        reply = self._succeed(RequestCode.PULL_MESSAGE, header, b"", PULL_ANSWERS, wait_ms)
        records = decode_records(reply.body) if reply.code == ResponseCode.SUCCESS else []
        return Pulled(records, reply.code, reply.header(PullMessageResponse))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit `offset` for a consumer group."""
        header = UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
        self._succeed(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a group has committed, or None."""
        header = QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue_id)
        reply = self._succeed(RequestCode.QUERY_CONSUMER_OFFSET, header, b"", (0, ResponseCode.QUERY_NOT_FOUND))
        return reply.header(OffsetResponse).offset if reply.code == ResponseCode.SUCCESS else None

    def call(
        self,
        code: int,
        header: Header | Mapping[str, str] | None = None,
        body: Buffer = b"",
        timeout_ms: int = TIMEOUT_MS,
    ) -> Command:
        """Send any request, and return its answer. `PerseidError` if none comes within `timeout_ms` of virtual time."""
        address = f"{self.broker.ip}:{self.broker.listeners['main']}"
        reply = self._client.call(address, code, header, body, self._in(timeout_ms))
        if reply is None:
            raise PerseidError(f"no answer to request {code} within {timeout_ms} ms of virtual time")
        return reply

    # ---- inside ----

    def _down(self, name: str, do: Callable[[Any], object]) -> str:
        try:
            return super()._down(name, do)
        finally:
            self._client.hang_up()

    def _succeed(
        self,
        code: int,
        header: Header,
        body: Buffer = b"",
        allowed: Sequence[int] = (ResponseCode.SUCCESS,),
        wait_ms: int = 0,
    ) -> Command:
        reply = self.call(code, header, body, TIMEOUT_MS + wait_ms)
        if reply.code not in allowed:
            raise RequestRefused(reply.code, reply.remark or "")
        return reply


class _Client:
    """One call at a time, over a connection that is dialled when it is needed."""

    name = CLIENT

    def __init__(self, play: Callable[[int, Callable[[], bool]], bool], network: Network) -> None:
        """`play(until_us, over)` lets time pass."""
        self._play = play
        self._network = network
        network.machines[CLIENT_IP] = self.name
        self._end: End | None = None
        self._frame = b""
        self._opaque = 0
        self._reply: Command | None = None
        self._lost = False

    def call(
        self, address: str, code: int, header: Header | Mapping[str, str] | None, body: Buffer, deadline_us: int
    ) -> Command | None:
        self._opaque += 1
        self._reply, self._lost = None, False
        self._frame = encode_request(code, self._opaque, header, body)
        if self._end is None:
            self._network.dial(self, CLIENT_IP, address)
        else:
            self._network.write(self._end, self._frame)
        self._play(deadline_us, lambda: self._reply is not None or self._lost)
        return self._reply

    def opened(self, end: End, listener: str, dialled: str) -> None:
        self._end = end
        self._network.write(end, self._frame)

    def connect_failed(self, address: str, reason: str) -> None:
        self._lost = True

    def received(self, end: End, frames: bytearray) -> None:
        for command in decode_all(bytes(frames)):
            if command.is_response and command.opaque == self._opaque:
                self._reply = command

    def closed(self, end: End, reason: str) -> None:
        if end is self._end:
            self._end = None
            self._lost = True

    def hang_up(self) -> None:
        """The next call dials anew."""
        if self._end is not None:
            self._network.close(self._end, "hung up")
            self._end = None
