"""Clients of the brokers of a Raft group: they send, pull, and end transactions."""

from __future__ import annotations

from typing import Any

from perseid.sim.driver import EPOCH_MS
from perseid.sim.models.dledger.group import BROKER_PORT, BrokerGroup
from perseid.sim.models.dledger.history import QUEUES, TOPIC, GroupHistory
from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.sim.promises.timers import delay_of
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import EndTransactionRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK
from perseid.wire.record import decode_all as decode_records

TIMEOUT_MS = 4_000
PAUSES_MS = (10, 200, 1_000)
"""Of a client between two operations: on average one of them."""
DELAYED = 0.1
"""So many of the sends ask for a delay."""
TRANSACTIONS, COMMITS = 0.15, 0.6
"""So many of the operations are transactions, where there are any; so many of those are to be committed."""




class Client:
    """Sends numbered messages one after the other, and pulls, from whoever is master."""

    def __init__(self, group: BrokerGroup, name: str, history: GroupHistory) -> None:
        self.group, self.name, self.history = group, name, history
        self.scheduler, self.random = group.scheduler, group.scheduler.stream(name)
        self.ip = f"10.0.4.{name[-1]}"
        self.running = True
        self._member = self.random.choice(group.members)
        self._end: End | None = None
        self._number = 0
        self._call: tuple[bytes, int, Any, Any] | None = None
        """Frame, opaque, who wants the answer, timer."""
        group.network.machines[self.ip] = name

    def begin(self) -> None:
        """Go on after a while."""
        pause = self.scheduler.slowed(self.random.choice(PAUSES_MS))
        self.scheduler.after(self.random.randint(1, max(1, int(2 * pause))) * US_PER_MS, self._work)

    def _work(self) -> None:
        has = self.scheduler.chosen.has
        if self.running and self.group.transactions and self.random.random() < TRANSACTIONS and has("transactions"):
            self._begin_transaction()
        elif self.running:
            (self._pull if self.random.random() < 0.2 and has("pulls") else self._send)()

    def _send(self) -> None:
        self._number += 1
        body = f"{self.name}.{self._number}.".encode().ljust(self.random.choice((12, 40, 300)), b"x")
        delayed = self.random.random() < DELAYED and self.scheduler.chosen.has("delays")
        header = SendMessageRequestV2(
            producer_group="p", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=self.random.randrange(QUEUES), sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{self.name}{self._number}\x02" + (delay_of(self._number) if delayed else ""),
        )  # fmt: skip

        called_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                done = reply.header(SendMessageResponse)
                physical = int(done.msg_id[-16:], 16)
                self.history.acked(done.queue_id, done.queue_offset, physical, body, delayed, called_us)
            else:
                self._elsewhere()
            self.begin()

        self._ask(RequestCode.SEND_MESSAGE_V2, header, body, answered)

    def _begin_transaction(self) -> None:
        self._number += 1
        body = f"{self.name}.{self._number}.half".encode()
        header = SendMessageRequestV2(
            producer_group="p", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=self.random.randrange(QUEUES), sys_flag=4, flag=0,
            born_timestamp=EPOCH_MS + self.scheduler.now_us // US_PER_MS,
            properties=f"UNIQ_KEY\x01{self.name}{self._number}\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02",
        )  # fmt: skip
        self.history.decisions.opens(body)

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                done = reply.header(SendMessageResponse)
                physical = int(done.msg_id[-16:], 16)
                if self.group.records.get(physical) != body:
                    raise Violation("acknowledged is committed", f"half {body[:20]!r} at {physical}")
                self.group.count("acknowledged: half")
                self._end_transaction(body, done.queue_offset, physical)
            else:
                self._elsewhere()
                self.begin()

        self._ask(RequestCode.SEND_MESSAGE_V2, header, body, answered)

    def _end_transaction(self, body: bytes, offset: int, physical: int) -> None:
        commit = self.random.random() < COMMITS
        self.history.decisions.decides(body, commit=commit)
        header = EndTransactionRequest(
            producer_group="p", tran_state_table_offset=offset, commit_log_offset=physical, msg_id="id",
            commit_or_rollback=SYS_TRANSACTION_COMMIT if commit else SYS_TRANSACTION_ROLLBACK,
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.group.count("committed unasked" if commit else "rolled back unasked")
                if commit:
                    self.history.delayed.add(body)
            else:
                self._elsewhere()
            self.begin()

        self._ask(RequestCode.END_TRANSACTION, header, b"", answered)

    def _pull(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        most = max((offset for queue, offset in self.history.seen if queue == queue_id), default=0)
        header = PullMessageRequest(
            consumer_group="c", topic=TOPIC, queue_id=queue_id,
            queue_offset=self.random.randint(max(0, most - 20), most),
            max_msg_nums=8, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
            expression_type="TAG",
        )  # fmt: skip

        called_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is None:
                self._elsewhere()
            elif reply.code == ResponseCode.SUCCESS:
                end = reply.header(PullMessageResponse).max_offset
                self.history.queues.ends(TOPIC, queue_id, end, called_us, self.scheduler.now_us)
                for record in decode_records(reply.body):
                    if self.group.records.get(record.physical_offset) != record.body:
                        raise Violation("what is read is committed", f"{record.body[:20]!r}")
                    self.history.met(queue_id, record.queue_offset, record.body)
                    self.group.count("message read")
            self.begin()

        self._ask(RequestCode.PULL_MESSAGE, header, b"", answered)

    # ---- one call at a time ----

    def _ask(self, code: int, header: Any, body: bytes, answered: Any) -> None:
        self.group.operations += 1
        self._number += 1
        timer = self.scheduler.after(TIMEOUT_MS * US_PER_MS, self._late)
        signs = self.group.signs
        signed = header if signs is None else signs.sign(header, body)
        self._call = encode_request(code, self._number, signed, body), self._number, answered, timer
        if self._end is None:
            self.group.network.dial(self, self.ip, f"{self._member.driver.ip}:{BROKER_PORT}")
        elif not self._end.dialling:
            self.group.network.write(self._end, self._call[0])

    def _answer(self, reply: Command | None) -> None:
        if self._call is not None:
            _, _, answered, timer = self._call
            self._call = None
            Scheduler.cancel(timer)
            if reply is not None:
                self.group.count(f"answer {ResponseCode(reply.code).name}")
            answered(reply)

    def _late(self) -> None:
        self._elsewhere()
        self._answer(None)

    def _elsewhere(self) -> None:
        self._member = self.random.choice(self.group.members)
        if self._end is not None:
            end, self._end = self._end, None
            self.group.network.close(end, "client goes")

    def opened(self, end: End, listener: str, dialled: str) -> None:
        """The network's side, as the next three."""
        if dialled != f"{self._member.driver.ip}:{BROKER_PORT}" or self._end is not None:
            self.group.network.close(end, "not wanted")
            return
        self._end = end
        if self._call is not None:
            self.group.network.write(end, self._call[0])

    def connect_failed(self, address: str, reason: str) -> None:
        if self._end is None:
            self._elsewhere()
            self._answer(None)

    def received(self, end: End, frames: bytearray) -> None:
        for command in decode_all(bytes(frames)):
            if command.is_response and self._call is not None and command.opaque == self._call[1]:
                self._answer(command.keep())

    def closed(self, end: End, reason: str) -> None:
        if end is self._end:
            self._end = None
            self._answer(None)
