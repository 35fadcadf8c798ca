"""A producer of transactions, and what it expects of them.

- a half is read in no topic of clients before its producer said "commit", and never where it says "roll back";
- a half that was acknowledged and is to be committed is delivered in the end, unless it was set aside: after as many
  questions as are configured, or by a clock that jumped past its time; never if its commit was acknowledged by a
  broker that flushes first;
- a question names a half as it was sent, and asks no more than so many times;
- whatever its producer has an answer for comes to an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perseid.broker.kernel import messages
from perseid.sim.facts import VALUE_BYTES, Sent
from perseid.sim.models.broker.checkers import SEND_OK
from perseid.sim.models.broker.workload import Producer
from perseid.sim.promises import Violation
from perseid.store.store import MessageStore
from perseid.wire import properties as props
from perseid.wire.bodies import HeartbeatData, ProducerData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import CheckTransactionStateRequest, EndTransactionRequest, SendMessageResponse
from perseid.wire.ids import parse_offset_message_id
from perseid.wire.names import CHECK_MAX_TIME_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK, Record, decode

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

COMMITS = 0.65
"""So many of the halves are to be committed."""
NEVER, WHEN_ASKED = 0.08, 0.4
"""Below the first nobody ever says what becomes of a half, below the second only who is asked."""
BEAT_MS = (6_000, 10_000)
LAST_BEAT_MS = (1_500, 3_000)
"""When everything is to come to its end."""


class TransactionProducer(Producer):
    """Sends halves, and says sooner or later, or never, what is to become of them."""

    kind = "transactions"

    def __init__(self, cluster: Cluster, name: str, pause_ms: float) -> None:
        super().__init__(cluster, name, pause_ms)
        self.ending = False
        self.silent: set[bytes] = set()
        """Values of which nobody will say anything."""
        self._slow: set[bytes] = set()
        """Values of which nothing is said unless asked."""

    def work(self) -> None:
        self._beat()
        super().work()

    def wind_down(self) -> None:
        """Send nothing more, but answer questions."""
        self.ending = True
        if self.broker_address is not None:
            self._beat()

    def _beat(self) -> None:
        data = HeartbeatData(client_id=f"{self.name}@1", producer_data_set=[ProducerData(group_name=self._group)])
        self.call(RequestCode.HEART_BEAT, None, lambda reply: None, data.to_json())
        self.later(*(LAST_BEAT_MS if self.ending else BEAT_MS), self._beat)

    @property
    def _group(self) -> str:
        return f"PG_{self.kind}"

    def send_one(self) -> None:
        if self.ending:
            return
        topic, queue_id = self._queue()
        sent = self.message(topic, queue_id)
        if not self.cluster.uniform:
            self.history.transaction(sent, commit=self.random.random() < COMMITS)
            draw = self.random.random()
            if draw < NEVER:
                self.silent.add(sent.value)
            elif draw < WHEN_ASKED:
                self._slow.add(sent.value)
        self.transmit([sent], retries=self.random.choice((0, 1, 2)))

    def properties_of(self, sent: Sent, *, wait: bool = True) -> dict[str, str]:  # type: ignore[override]
        properties = super().properties_of(sent, wait=wait)
        if sent.commit is not None:
            properties |= {props.TRAN_MSG: "true", props.PGROUP: self._group}
        return properties

    # ---- decisions ----

    def acknowledged(self, sents: list[Sent], reply: Command, *, wait: bool, life: int, since_us: int) -> None:
        super().acknowledged(sents, reply, wait=wait, life=life, since_us=since_us)
        sent = sents[0]
        if sent.commit is None:
            return
        self.cluster.count("half stored")
        if sent.value not in self.silent | self._slow:
            header = reply.header(SendMessageResponse)
            place = header.queue_offset, parse_offset_message_id(header.msg_id)[1]
            self.later(0, 2_500, lambda: self._decide(sent, *place, asked=False))

    def _decide(self, sent: Sent, offset: int, physical: int, *, asked: bool) -> None:
        """END_TRANSACTION."""
        sent.decision_sent = True
        header = EndTransactionRequest(
            producer_group=self._group,
            tran_state_table_offset=offset,
            commit_log_offset=physical,
            commit_or_rollback=SYS_TRANSACTION_COMMIT if sent.commit else SYS_TRANSACTION_ROLLBACK,
            msg_id=sent.value.decode() * 4,
            transaction_id=sent.value.decode() * 4,
            topic=sent.topic,
            from_transaction_check=asked,
        )
        if asked and self.random.random() < 0.5:
            self.send_oneway(RequestCode.END_TRANSACTION, header)
            return
        what = ("committed" if sent.commit else "rolled back") + (" when asked" if asked else " unasked")

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code in SEND_OK:
                self.cluster.count(what)
                if reply.code == ResponseCode.SUCCESS and sent.commit:
                    self.history.committed_values.add(sent.value)
            elif reply is not None and "decided already" in (reply.remark or ""):
                self.cluster.count("transaction was decided already")

        self.call(RequestCode.END_TRANSACTION, header, answered)

    # ---- questions ----

    def asked(self, command: Command) -> None:
        super().asked(command)
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        header = command.header(CheckTransactionStateRequest)
        record = decode(command.body)
        sent = self.history.sent.get(bytes(record.body[:VALUE_BYTES]))
        if sent is None or sent.commit is None or (record.topic, record.body) != (sent.topic, sent.body):
            raise Violation("a question names a half", f"{record.topic}, {record.body[:20]!r}")
        times, most = times_asked(record), self.cluster.check_max
        if not 1 <= times <= most:
            raise Violation("asked no more than so often", f"{sent}: the {times}th of {most} questions")
        self.cluster.count("asked about a half")
        if sent.value not in self.silent:
            place = header.tran_state_table_offset, header.commit_log_offset
            self.later(0, 1_000, lambda: self._decide(sent, *place, asked=True))

    # ---- the end ----

    def unfinished(self) -> str:
        """What the broker has still to ask about, though there is an answer; "": nothing."""
        machine: Any = self.cluster.broker.machine
        if machine is None:
            return "the broker is down"
        if machine.parts.transactions.loading:
            return "the broker takes up its halves"
        for place in machine.parts.transactions.places():
            half = messages.stored_at(machine.parts.store.reads, place)
            value = bytes(half.body[:VALUE_BYTES]) if half is not None else b"?"
            if value not in self.silent:
                return f"{value!r} at {place} is open"
        return ""

    def check(self, seen: set[bytes]) -> None:
        """`seen`: the values of all that can be read."""
        machine: Any = self.cluster.broker.machine
        aside: dict[bytes, int] = {}
        store: MessageStore = machine.parts.store
        reads = store.reads
        for offset in range(reads.min_offset(CHECK_MAX_TIME_TOPIC, 0), reads.max_offset(CHECK_MAX_TIME_TOPIC, 0)):
            unit = store.reads.unit(CHECK_MAX_TIME_TOPIC, 0, offset)
            half = messages.stored_at(reads, unit.physical_offset) if unit is not None else None
            assert half is not None, "an old log file went during the last look"
            value = bytes(half.body[:VALUE_BYTES])
            aside[value] = max(aside.get(value, 0), times_asked(half))
            self.cluster.count("half set aside")
            if times_asked(half) < self.cluster.check_max and not self.cluster.checkers.retention.may_delete:
                raise Violation("asked as often as configured", f"{value!r} is set aside after {times_asked(half)}")
        for value, stored in self.history.halves.items():
            if value in seen or value in self.silent:
                continue
            certain = self.cluster.sync_flush and value in self.history.committed_values
            if certain or value not in aside:
                raise Violation("once committed always delivered", f"{stored.sent}, half at {stored.physical}")


def times_asked(half: Record) -> int:
    """How often its producer was asked, as a half says."""
    return int(half.props.get(props.TRANSACTION_CHECK_TIMES, "0"))
