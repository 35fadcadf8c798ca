"""Brokers a, b, … with one name server in virtual time, and what `mqadmin` does to a static topic on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from perseid.base.machine import Millis
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.sim.disk import SimDisk
from perseid.sim.driver import NodeDriver
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.testing.machines import SMALL_STORE
from perseid.testing.virtual import _Client
from perseid.wire.bodies import TopicConfigAndQueueMapping, TopicStatsTable
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import Command
from perseid.wire.headers.offsets import OffsetResponse
from perseid.wire.headers.pull import PullMessageResponse
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.headers.topics import CreateTopicRequest
from perseid.wire.mapping import LogicQueueMappingItem as Item
from perseid.wire.mapping import TopicQueueMappingDetail as Detail
from perseid.wire.record import decode_all

from .requests import pull_header, send_header

TOPIC = "S"
NAMESRV = "10.0.9.9:9876"
BLOCK = 10_000


@dataclass
class Pulled:
    code: int
    bodies: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    next_offset: int = -1
    min_offset: int = -1
    max_offset: int = -1
    remark: str = ""


class Statics:
    """What `mqadmin` does to a static topic, on whatever answers `call`."""

    def names(self) -> list[str]:
        """Of all brokers."""
        raise NotImplementedError

    def call(self, name: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        """The answer of a broker to a request."""
        raise NotImplementedError

    def tell(self, detail: Detail, queues: int, **fields: Any) -> Command:
        header = CreateTopicRequest(
            topic=detail.topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        for name, value in fields.items():
            setattr(header, name, value)
        return self.call(detail.bname, Code.UPDATE_AND_CREATE_STATIC_TOPIC, header, detail.to_json())

    def config(self, name: str) -> TopicConfigAndQueueMapping:
        answer = self.call(name, Code.GET_TOPIC_CONFIG, {"topic": TOPIC, "lo": "true"})
        assert answer.code == 0, (answer.code, answer.remark)
        return TopicConfigAndQueueMapping.from_json(answer.body)

    def create(self, *placed: str, epoch: int = 1_000) -> None:
        """A static topic whose i-th logical queue is on broker `placed[i]`."""
        for name in self.names():
            mine = [i for i, where in enumerate(placed) if where == name]
            queues = {i: [Item(0, n, name, 0, 0)] for n, i in enumerate(mine)}
            detail = Detail(TOPIC, total_queues=len(placed), bname=name, epoch=epoch, hosted_queues=queues)
            answer = self.tell(detail, len(mine))
            assert answer.code == 0, answer.remark

    def begin_remap(self, queue_id: int, old: str, new: str) -> list[Item]:
        """Let a logical queue be moved: up to the point where its new leader does not know where it begins."""
        epoch = self.config(old).mapping_detail.epoch + 1_000  # type: ignore[union-attr]
        items = [*self.config(old).mapping_detail.hosted_queues[queue_id]]  # type: ignore[union-attr]
        there = self.config(new)
        items.append(Item(items[-1].gen + 1, there.write_queue_nums, new, -1, 0))
        self._tell_items(new, queue_id, items, epoch, there.write_queue_nums + 1)
        self._tell_items(old, queue_id, items, epoch, self.config(old).write_queue_nums)
        return items

    def end_remap(self, queue_id: int, items: list[Item]) -> int:
        """Let the new leader know where it begins: that offset."""
        old, new = items[-2], items[-1]
        answer = self.call(old.bname, Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC})
        table = TopicStatsTable.from_json(answer.body).offset_table
        (end,) = [row.max_offset for queue, row in table.items() if queue.queue_id == old.queue_id]
        new.logic_offset = (old.logical(end) // BLOCK + 1) * BLOCK
        detail = self.config(new.bname).mapping_detail
        assert detail is not None
        self._tell_items(new.bname, queue_id, items, detail.epoch, self.config(new.bname).write_queue_nums)
        for name in self.names():
            if name not in (old.bname, new.bname):
                other = self.config(name)
                assert other.mapping_detail is not None
                other.mapping_detail.epoch = detail.epoch
                assert self.tell(other.mapping_detail, other.write_queue_nums).code == 0
        return new.logic_offset

    def remap(self, queue_id: int, old: str, new: str) -> int:
        return self.end_remap(queue_id, self.begin_remap(queue_id, old, new))

    def _tell_items(self, name: str, queue_id: int, items: list[Item], epoch: int, queues: int) -> None:
        detail = self.config(name).mapping_detail
        assert detail is not None
        detail.hosted_queues[queue_id] = items
        detail.epoch = epoch
        answer = self.tell(detail, queues)
        assert answer.code == 0, answer.remark


class Cluster(Statics):
    """`at["a"]` is the address of broker a. Each question waits for its answer."""

    def __init__(self, *names: str, store: Any = SMALL_STORE, **settings: Any) -> None:
        self.scheduler = Scheduler(0)
        self.network = Network(self.scheduler, lambda what: None)
        self.nodes: dict[str, NodeDriver] = {}
        self.at: dict[str, str] = {}
        self._node("namesrv", NAMESRV, lambda disk, random: NameServer(NameServerConfig(), disk))
        base = BrokerConfig(namesrv_addr=NAMESRV, broker_cluster_name="C", **settings)
        for number, name in enumerate(names, 1):
            config = replace(base, broker_name=name, broker_ip1=f"10.0.0.{number}")
            self.at[name] = config.address

            def build(disk: SimDisk, random: Random, config: BrokerConfig = config) -> Broker:
                return Broker(config, store, disk, random)

            self._node(name, config.address, build)
        self._clients = {name: _Client(self.scheduler.run, self.network) for name in (*self.at, "namesrv")}
        self.at["namesrv"] = NAMESRV
        self.advance(1_000)

    def _node(self, name: str, address: str, build: Any) -> None:
        ip, _, port = address.partition(":")
        node = NodeDriver(name, ip, self.scheduler, self.network, build, {"main": int(port)}, lambda what: None)
        self.nodes[name] = node
        node.start()

    def broker(self, name: str) -> Broker:
        machine = self.nodes[name].machine
        assert isinstance(machine, Broker)
        return machine

    def names(self) -> list[str]:
        return [name for name in self.at if name != "namesrv"]

    def advance(self, ms: Millis) -> None:
        self.scheduler.run(self.scheduler.now_us + ms * US_PER_MS)

    def cut_power(self, name: str) -> None:
        """The broker's machine goes off, and is started again."""
        self.nodes[name].cut_power()
        self._clients[name].hang_up()
        self.nodes[name].start()

    # ---- requests ----

    def call(self, name: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        deadline = self.scheduler.now_us + 60_000 * US_PER_MS
        answer = self._clients[name].call(self.at[name], code, header, body, deadline)
        assert answer is not None, f"{name} does not answer {code}"
        return answer

    def send(self, name: str, queue_id: int, body: bytes, **fields: Any) -> SendMessageResponse:
        answer = self.call(name, Code.SEND_MESSAGE_V2, send_header(topic=TOPIC, queue_id=queue_id, **fields), body)
        assert answer.code == 0, (answer.code, answer.remark)
        return answer.header(SendMessageResponse)

    def pull(self, name: str, queue_id: int, offset: int, **fields: Any) -> Pulled:
        header = pull_header(topic=TOPIC, queue_id=queue_id, queue_offset=offset, **{"sys_flag": 4, **fields})
        answer = self.call(name, Code.PULL_MESSAGE, header)
        if not answer.ext:
            return Pulled(answer.code, remark=answer.remark or "")
        said = answer.header(PullMessageResponse)
        records = decode_all(answer.body) if answer.code == 0 else []
        offsets = [one.queue_offset + (said.offset_delta or 0) for one in records]
        return Pulled(
            answer.code, [bytes(one.body) for one in records], offsets,
            said.next_begin_offset, said.min_offset, said.max_offset, answer.remark or "",
        )  # fmt: skip

    def offset(self, name: str, code: int, queue_id: int, **more: Any) -> int:
        ext = {"topic": TOPIC, "queueId": str(queue_id), **{key: str(value) for key, value in more.items()}}
        answer = self.call(name, code, ext)
        assert answer.code == 0, (answer.code, answer.remark)
        return answer.header(OffsetResponse).offset

    def commit(self, name: str, queue_id: int, offset: int, group: str = "g") -> int:
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
        return self.call(name, Code.UPDATE_CONSUMER_OFFSET, ext).code

    def committed(self, name: str, queue_id: int, group: str = "g") -> int | None:
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id)}
        answer = self.call(name, Code.QUERY_CONSUMER_OFFSET, ext)
        assert answer.code in (0, 22), (answer.code, answer.remark)
        return answer.header(OffsetResponse).offset if answer.code == 0 else None
