"""A client that takes slaves for what they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.sim.facts import VALUE_BYTES
from perseid.sim.models.broker.client import Client
from perseid.sim.models.broker.slaves import PORT, Slave
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import decode_all

if TYPE_CHECKING:
    pass


class Stray(Client):
    """Sends to slaves, and reads from them whatever they have."""

    def work(self) -> None:
        slaves = self.cluster.slaves
        slave = self.random.choice(slaves.all)
        address = f"{slave.driver.ip}:{PORT}"
        topic = self.random.choice(self.cluster.topics)
        queue_id = self.random.randrange(topic.queues)
        if self.random.random() < 0.5:
            self._send(topic.name, queue_id, address)
        else:
            self._read(topic.name, queue_id, address, slave)
        self.later(1_000, 5_000, self.work)

    def _send(self, topic: str, queue_id: int, address: str) -> None:
        header = SendMessageRequestV2(
            producer_group="PG_stray", topic=topic, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=4,
            queue_id=queue_id, sys_flag=0, born_timestamp=self.cluster.true_ms, flag=0,
            properties="UNIQ_KEY\x01stray\x02",
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                raise Violation("a slave takes no messages", f"{address} has taken one")
            if reply is not None and reply.code == ResponseCode.SYSTEM_BUSY:
                self.cluster.count("slave refused a send")

        self.call(RequestCode.SEND_MESSAGE_V2, header, answered, b"stray", address=address)

    def _read(self, topic: str, queue_id: int, address: str, slave: Slave) -> None:
        end = slave.machine.parts.store.reads.max_offset(topic, queue_id) if slave.machine is not None else 0
        header = PullMessageRequest(
            consumer_group="strays", topic=topic, queue_id=queue_id, queue_offset=max(0, end - 8), max_msg_nums=32,
            sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
            expression_type="TAG",
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS:
                return
            self.cluster.count("read from a slave")
            for record in decode_all(reply.body):
                sent = self.history.sent.get(bytes(record.body[:VALUE_BYTES]))
                if sent is None or sent.body != record.body:
                    raise Violation("exact bytes", f"{address}: {topic}/{queue_id}@{record.queue_offset} was not sent")

        self.call(RequestCode.PULL_MESSAGE, header, answered, address=address)
