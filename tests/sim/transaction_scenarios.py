"""A producer's word about a half that a power cut took, and another half that stands at its place by then.

One broker in virtual time, with nothing drawn but what the simulator's wires and clocks draw. Each scenario raises a
Violation when the word is done to the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from perseid.broker.transactions.requests import NOT_THIS_ONE
from perseid.sim.features.stage import topic_request
from perseid.sim.models.broker.cluster import Cluster
from perseid.sim.process import Process
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.store.config import ASYNC_FLUSH
from perseid.wire import properties as props
from perseid.wire.bodies import HeartbeatData, ProducerData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.send import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from perseid.wire.ids import parse_offset_message_id
from perseid.wire.names import HALF_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, decode

TOPIC, GROUP = "orders", "PG_scenario"
LIMIT_US = 60 * US_PER_S
FLUSHED_US = 2 * US_PER_S
"""More than what is stored waits for the flush by the clock."""
T = TypeVar("T")


class Drops(Random):
    """The draws of a power cut that leaves nothing of what was not synced."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return next((one for one in seq if one == "drop"), seq[0])


@dataclass(frozen=True)
class Half:
    """A half as its producer knows it."""

    key: str
    offset: int
    physical: int


class Teller(Process):
    """A producer: what it sends, what it is asked, and what it is answered."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "teller")
        self.cluster = cluster
        self.questions: list[Half] = []

    def asked(self, command: Command) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            header = command.header(CheckTransactionStateRequest)
            key = decode(command.body).props[props.UNIQ_KEY]
            self.questions.append(Half(key, header.tran_state_table_offset, header.commit_log_offset))

    def answer(self, code: RequestCode, header: Any, body: bytes = b"") -> Command:
        """Ask the broker, until it answers."""
        answers: list[Command | None] = []
        for _ in range(20):
            answers.clear()
            self.ask(self.cluster.broker_address, code, header, answers.append, body)
            self.cluster.scheduler.run(self.cluster.scheduler.now_us + LIMIT_US, lambda: bool(answers))
            if answers and answers[0] is not None:
                return answers[0]
            self.cluster.scheduler.run(self.cluster.scheduler.now_us + US_PER_S)
        raise Violation("the broker answers", f"{code.name}")

    def beat(self) -> None:
        """Be known as a producer of the group."""
        data = HeartbeatData(client_id="teller@1", producer_data_set=[ProducerData(group_name=GROUP)])
        assert self.answer(RequestCode.HEART_BEAT, None, data.to_json()).code == ResponseCode.SUCCESS

    def half(self, key: str, immunity_s: int | None = None) -> Half:
        """Send one."""
        properties = {props.UNIQ_KEY: key, props.TRAN_MSG: "true", props.PGROUP: GROUP}
        if immunity_s is not None:
            properties[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(immunity_s)
        header = SendMessageRequestV2(
            producer_group=GROUP, topic=TOPIC, default_topic="NONE", default_topic_queue_nums=1, queue_id=0,
            sys_flag=4, flag=0, born_timestamp=self.cluster.true_ms, properties=props.encode(properties).decode(),
        )  # fmt: skip
        reply = self.answer(RequestCode.SEND_MESSAGE_V2, header, key.encode())
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        said = reply.header(SendMessageResponse)
        return Half(key, said.queue_offset, parse_offset_message_id(said.msg_id)[1])

    def word(self, half: Half, *, asked: bool = False) -> EndTransactionRequest:
        """A commit."""
        return EndTransactionRequest(
            producer_group=GROUP, tran_state_table_offset=half.offset, commit_log_offset=half.physical, topic=TOPIC,
            commit_or_rollback=SYS_TRANSACTION_COMMIT, msg_id=half.key, transaction_id=half.key,
            from_transaction_check=asked,
        )  # fmt: skip

    def commit(self, half: Half) -> None:
        """Commit a half that stands where it was."""
        reply = self.answer(RequestCode.END_TRANSACTION, self.word(half))
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    def says(self, half: Half, *, oneway: bool, asked: bool = False) -> None:
        """Commit a half that is gone: the answer is that another one stands there, if there is an answer."""
        header = self.word(half, asked=asked)
        if oneway:
            self.tell(header)
        else:
            reply = self.answer(RequestCode.END_TRANSACTION, header)
            if reply.remark != NOT_THIS_ONE:
                raise Violation("a word is refused whose half is gone", f"{half}: {reply.code}, {reply.remark}")

    def tell(self, header: EndTransactionRequest) -> None:
        """Send a word one-way, and wait until it must have come."""
        self._transmit(self.cluster.broker_address, encode_request(RequestCode.END_TRANSACTION, 1, header, oneway=True))
        self.cluster.scheduler.run(self.cluster.scheduler.now_us + US_PER_S)

    def hang_up(self) -> None:
        """Connect anew with the next request."""
        for end in self.ends.values():
            self.cluster.network.close(end, "the producer hangs up")
        self.ends.clear()


class Scene:
    """A broker that flushes by the clock, and its producer."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(1, 0, True, timed=False)
        cluster.store_config = replace(
            cluster.store_config, flush_disk_type=ASYNC_FLUSH, flush_commit_log_thorough_interval=1_000,
            flush_commit_log_least_pages=16,
        )  # fmt: skip
        cluster.sync_flush, cluster.check_max = False, 15
        cluster.start()
        self.teller = Teller(cluster)
        code, header, body = topic_request(TOPIC, 1)
        assert self.teller.answer(code, header, body).code == ResponseCode.SUCCESS
        self.teller.beat()

    @property
    def broker(self) -> Any:
        return self.cluster.broker.machine

    @property
    def delivered(self) -> int:
        """Messages in the topic of the transactions."""
        return int(self.broker.parts.store.reads.max_offset(TOPIC, 0))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        if not self.cluster.scheduler.run(self.cluster.scheduler.now_us + LIMIT_US, condition):
            raise Violation("the scenario comes so far", what)

    def flush(self) -> None:
        """All is durable."""
        self.until(lambda: self.broker.parts.store.log.flushed == self.broker.parts.store.log.end, "all is flushed")

    def lose(self, physical: int) -> None:
        """The power fails, and takes what stands from there on."""
        assert self.broker.parts.store.log.flushed == physical, "it is the first that is not durable"
        cluster = self.cluster
        cluster.broker.disk.random = Drops(1)
        cluster.cut_power(cluster.broker)
        cluster.scheduler.run(cluster.scheduler.now_us + 500 * US_PER_MS)
        self.teller.hang_up()
        cluster.restart(cluster.broker)
        assert self.broker.parts.store.log.end == physical, "the half is gone"


def sent_anew(oneway: bool) -> None:
    """A half that was acknowledged goes with the power; the next one that is sent gets its place."""
    scene = Scene()
    teller = scene.teller
    first = teller.half("00000001", immunity_s=60)
    scene.flush()
    lost = teller.half("00000002")
    scene.lose(lost.physical)
    other = teller.half("00000003")
    assert (other.offset, other.physical) == (lost.offset, lost.physical), "the same place"
    teller.commit(first)  # from now on plain words are done by the compiled core
    teller.says(lost, oneway=oneway)
    _only_one(scene, "00000003")


def asked_anew(oneway: bool) -> None:
    """A half that was written anew to be asked about goes with the power; the start asks about an older one first,
    which gets its place."""
    scene = Scene()
    teller = scene.teller
    teller.commit(teller.half("00000001"))
    teller.half("00000002", immunity_s=20)
    teller.half("00000003", immunity_s=5)
    scene.flush()
    scene.until(lambda: bool(teller.questions), "the younger one is asked about")
    lost = teller.questions.pop()
    assert lost.key == "00000003"
    scene.cluster.broker.clock_ms = 30_000  # both are due when it starts
    scene.lose(lost.physical)
    scene.until(lambda: _key_at(scene, lost.physical) is not None, "the start asks about what is due")
    assert _key_at(scene, lost.physical) == "00000002", "the same place"
    teller.says(lost, oneway=oneway, asked=True)
    _only_one(scene, "00000002")


def _key_at(scene: Scene, physical: int) -> str | None:
    record = scene.broker.parts.store.reads.record_at(physical)
    found = decode(record) if record is not None else None
    return found.props.get(props.UNIQ_KEY) if found is not None and found.topic == HALF_TOPIC else None


def _only_one(scene: Scene, key: str) -> None:
    """The half that nobody has decided is not delivered."""
    if scene.delivered != 1:
        raise Violation("only what is committed is read", f"{key} is open, and in {TOPIC}")


SCENARIOS = [sent_anew, asked_anew]
