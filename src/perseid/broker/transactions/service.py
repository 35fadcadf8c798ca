"""Transactions: halves that wait for their producer's decision, and the questions to producers that send none.

    send with TRAN_MSG=true → a *half* in RMQ_SYS_TRANS_HALF_TOPIC, which is no message yet: *open*
    open   -- END_TRANSACTION, commit   --> the message in its real topic, and an op message: decided
    open   -- END_TRANSACTION, rollback --> an op message: decided
    open   -- no decision for its immunity, and then each transactionCheckInterval --> written anew with one check more,
              an op message for the old half, CHECK_TRANSACTION_STATE to a member of the producer's group: open
    open   -- checked transactionCheckMax times, or older than the log is kept --> TRANS_CHECK_MAX_TIME_TOPIC, and an op
              message: decided

An op message (RMQ_SYS_TRANS_OP_HALF_TOPIC, tag d) names halves by their offsets in the half queue. One-way decisions,
which is how clients send them, are done when all is read that came in a turn; one op message stands for all of them.
Which halves are open is nothing but the halves without one, so whoever becomes master reads both queues from where the
offsets of the group CID_RMQ_SYS_TRANS say, as many at a time as a turn has time for; until that is done nobody is
asked, and decisions are refused. It reads all that the log has, confirmed or not: what is cut off later, takes the role
with it. Progress is told only of halves whose op message is confirmed, so that no crash forgets an open one.

A slave that acts for its master reads both queues in the same way, and sends open halves to another master, which asks
their producers (`escape.py`): first after transactionCheckInterval, one after the other. How far it is, is committed as
the group's offset, with which the master goes on when it is back; a decision that comes to that one then is refused.

Invariants: a half is decided once in a log's life (the original commits as often as it is told); nothing is delivered
of what is open; a half is asked about until it is decided. A crash between a commit and its op message lets the
producer be asked again, and the message come twice. Sources: store.md §11, broker.md §8.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.deadlines import soonest
from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel import messages
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.scheduled import escape
from perseid.broker.transactions.op_messages import OpMessages
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.store.results import Appended, AppendRefused
from perseid.wire import command, ids, record
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.send import CheckTransactionStateRequest, EndTransactionRequest
from perseid.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from perseid.wire.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
    Message,
    Record,
)

if TYPE_CHECKING:
    from perseid.broker.clients.members import ProducerTable
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.kernel.request import Request
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.appender import Appender, Transformer
    from perseid.broker.scheduled.escape import Escape

GROUP = TRANSACTION_GROUP
MAX_OPEN = 1_000_000
"""Halves without a decision; further ones are refused until some are decided."""
LOADED_A_TURN = 10_000
"""Halves and op messages that one turn takes up after a start."""
CHECKS_A_TURN = 128
RETRY_MS = 1_000
"""After the log refused to take what a check writes."""
HOUR_MS = 3_600_000
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII).fullmatch


@dataclass(slots=True)
class _Half:
    """An open half, by its offset in the half queue."""

    physical_offset: int
    due: Millis
    """When its producer is asked about it."""


class QuickCommits(Protocol):
    """Takes halves that are committed: `commit` each, then `settle`."""

    def commit(self, physical_offset: int, queue_offset: int, group: str, transaction_id: str | None) -> int:
        """Take the message of a half: where it will end in the log. 0: the ordinary handler has to look at it."""

    def settle(self) -> None:
        """Write what was taken."""

    def count(self) -> None:
        """Tell the statistics what was taken."""

    def learn(self, topic: str, queue_id: int) -> None:
        """Messages for this queue can be taken from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPorts:
    """The parts of a broker that `TransactionService` needs."""

    turn: Turn
    settings: Settings
    reads: Reads
    queues: Queues
    topics: TopicTable
    offsets: ConsumerOffsets
    appender: Appender
    transformer: Transformer
    producers: ProducerTable
    escape: Escape
    quick: Callable[[], QuickCommits | None]


class TransactionService:
    """The halves of one broker that is master."""

    def __init__(self, ports: TransactionPorts) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._reads, self._queues = ports.reads, ports.queues
        self._topics = ports.topics
        self._offsets = ports.offsets
        self._appender = ports.appender
        self._transformer = ports.transformer
        self._producers = ports.producers
        self._escape = ports.escape
        self._make_quick = ports.quick
        self._open: dict[int, _Half] = {}
        """In the order of their offsets, but for those that come while older ones are being taken up."""
        self._due: list[tuple[Millis, int]] = []
        self._moved: dict[int, int] = {}
        """Where open halves stand now that were written anew, by the offset that their producer knows."""
        self._names: dict[int, int] = {}
        """The other way round."""
        self._ops = OpMessages(ports.turn, ports.settings, ports.appender, ports.reads, ports.offsets)
        self._removed: set[int] | None = None
        """While halves are taken up: those that are decided."""
        self._op_at = self._op_end = self._half_at = self._half_end = 0
        """How far op messages and halves are taken up, and where they ended at the start."""
        self._away_at: Millis = 0
        """When the next half is sent away."""
        self._away = False
        """One is on its way to another master."""
        self._trouble = ""
        self._questions = 0
        self.quick: QuickCommits | None = None
        self.oneway: list[Request] = []
        """Decisions of this turn whose answer nobody waits for."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def loading(self) -> bool:
        """Are halves still being taken up?"""
        return self._removed is not None

    def places(self) -> list[int]:
        """Where in the log the open halves stand."""
        return [half.physical_offset for half in self._open.values()]

    # ---- roles ----

    def start(self) -> None:
        """This broker is master from now on, or acts for it and sends halves away."""
        self.stop()
        self._away_at = self._turn.now + self._settings.current.transaction_check_interval if self._escape.on else 0
        offsets, reads = self._offsets, self._reads
        self._op_at = max(offsets.query(OP_HALF_TOPIC, GROUP, 0) or 0, reads.min_offset(OP_HALF_TOPIC, 0))
        self._half_at = max(offsets.query(HALF_TOPIC, GROUP, 0) or 0, reads.min_offset(HALF_TOPIC, 0))
        self._op_end, self._half_end = self._end(OP_HALF_TOPIC), self._end(HALF_TOPIC)
        self._ops.start(self._half_at, self._op_at)
        self._removed = set()
        self.quick = self._make_quick()
        self._load()

    def stop(self) -> None:
        """It is a slave from now on."""
        self.quick = None
        for table in (self._open, self._due, self._moved, self._names, self._ops):
            table.clear()
        self._removed = None
        self._away = False

    def _load(self) -> None:
        """Take up so many of the op messages, and after them of the halves."""
        removed = self._removed
        assert removed is not None
        for _ in range(LOADED_A_TURN):
            if self._op_at < self._op_end:
                self._load_op(self._op_at, removed)
                self._op_at += 1
            elif self._half_at < self._half_end:
                self._load_half(self._half_at, removed)
                self._half_at += 1
            else:
                self._removed = None
                self._open = dict(sorted(self._open.items()))
                return

    def _load_op(self, offset: int, removed: set[int]) -> None:
        found = self._record(OP_HALF_TOPIC, offset)
        texts = found.body.decode("ascii", "replace").split(",") if found is not None else []
        named = [int(text) for text in texts if _NUMBER(text)]
        removed.update(each for each in named if each >= self._half_at)
        if named:
            self._ops.found(offset, named)

    def _load_half(self, offset: int, removed: set[int]) -> None:
        found = self._record(HALF_TOPIC, offset)
        if offset in removed or found is None:
            removed.discard(offset)
            return
        immunity_ms = self._immunity(found.props.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS))
        self._opened(offset, found.physical_offset, self._due_after(found.born_timestamp, immunity_ms))
        known = found.props.get(props.TRAN_PREPARED_QUEUE_OFFSET, "")
        if _NUMBER(known):
            before = self._moved.get(int(known), int(known))
            if before in self._open:  # a crash came between a half that was written anew and its op message
                self._forget(before)
                self._ops.found_decided(before)
            self._rename(int(known), offset)

    def _end(self, topic: str) -> int:
        """Where a queue ends, whether or not readers see it yet."""
        queue = self._queues.get(topic, 0)
        return 0 if queue is None else queue.end

    def _record(self, topic: str, offset: int) -> Record | None:
        queue = self._queues.get(topic, 0)
        unit = queue.raw(offset) if queue is not None else None
        return None if unit is None else messages.stored_at(self._reads, unit.physical_offset)

    # ---- halves come ----

    def prepare(self, message: Message, properties: dict[str, str]) -> None:
        """Make a half of a message. RequestRefused(2) when too many are open."""
        if not self.room:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{len(self._open)} transactions are open; try again later"
            )
        unique = properties.get(props.UNIQ_KEY)
        if unique:
            properties[props.TRANSACTION_ID] = unique
        properties[props.REAL_TOPIC] = message.topic
        properties[props.REAL_QID] = str(message.queue_id)
        message.topic, message.queue_id = HALF_TOPIC, 0
        message.sys_flag &= ~SYS_TRANSACTION_MASK
        messages.seal(message, properties)

    def prepared(self, message: Message, stored: Appended) -> None:
        """A half was stored."""
        immunity_ms = self._immunity(props.get(message.properties, props.CHECK_IMMUNITY_TIME_IN_SECONDS))
        self._opened(stored.queue_offset, stored.physical_offset, self._due_after(message.born_timestamp, immunity_ms))

    @property
    def room(self) -> int:
        """So many more halves may be open."""
        return max(0, MAX_OPEN - len(self._open))

    def opened(self, halves: list[tuple[int, int, Millis]]) -> None:
        """Halves were stored that name no immunity of their own: offsets in queue and log, and when they were born."""
        immunity_ms = self._immunity(None)
        for offset, physical_offset, born in halves:
            self._opened(offset, physical_offset, self._due_after(born, immunity_ms))

    def _opened(self, offset: int, physical_offset: int, due: Millis) -> None:
        self._open[offset] = _Half(physical_offset, due)
        heapq.heappush(self._due, (due, offset))

    def _due_after(self, born: Millis, immunity_ms: int) -> Millis:
        """When a half is asked about. Its time of birth is of its producer's clock, which may be wrong."""
        now = self._turn.now
        return min(max(now, born + immunity_ms), now + immunity_ms)

    def _immunity(self, text: str | None) -> int:
        """How long a half is not asked about, after it was born."""
        if text is not None and _NUMBER(text):
            return int(text) * 1000
        return self._settings.current.transaction_time_out

    def is_late(self, half: Record) -> bool:
        """Is the time over that its producer wanted for a decision, if it named one?"""
        text = half.props.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
        return text is not None and self._turn.now - half.born_timestamp > self._immunity(text)

    # ---- and are decided ----

    def current(self, offset: int) -> int:
        """Where a half stands, by the offset that its producer knows. RequestRefused: 14 while halves are taken up, 1
        when it is decided, or there is none."""
        if self._removed is not None:
            left = self._half_end - self._half_at
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"{left} halves are still being taken up")
        now_at = self._moved.get(offset, offset)
        if now_at not in self._open:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the transaction {offset} is decided already")
        return now_at

    def decide(self, offset: int, half: Record, *, commit: bool) -> int:
        """A producer has decided the half that stands at `offset`: where in the log what was stored of it ends.
        AppendRefused: nothing has happened."""
        if commit:
            message = self._message(half)
            stored = self._appender.store(message)
            if self.quick is not None:
                self.quick.learn(message.topic, message.queue_id)
            return self._close(offset) or stored.physical_offset + stored.size
        end = self._ops.write(offset)
        self._forget(offset)
        return end

    def _message(self, half: Record) -> Message:
        """What is delivered of a half."""
        properties = dict(half.props)
        topic, queue_id = properties.pop(props.REAL_TOPIC), properties.pop(props.REAL_QID)
        properties.pop(props.TRAN_MSG, None)
        message = messages.copy_of(half)
        message.topic, message.queue_id = topic, int(queue_id)
        message.sys_flag = half.sys_flag & ~SYS_TRANSACTION_MASK | SYS_TRANSACTION_COMMIT
        message.prepared_transaction_offset = half.physical_offset
        message.store_host = self._settings.store_host
        self._transformer.transform(message, properties)
        return message

    def _forget(self, offset: int) -> None:
        self._open.pop(offset, None)
        self._moved.pop(self._names.pop(offset, -1), None)

    def _close(self, offset: int) -> int:
        """A half is decided, and the log shall say so: at once, where that ends is told, or (0) when it takes
        them."""
        self._forget(offset)
        return self._ops.write_or_owe(offset)

    def gather(self, request: Request) -> bool:
        """Keep a one-way decision until the end of the turn; False: that has come."""
        if self._ops.gathers:
            return False
        self.oneway.append(request)
        return True

    def carry_out(self, ordinary: Callable[[Request], None]) -> None:
        """Do what the one-way decisions of this turn say: plain commits here, the others in the `ordinary` way."""
        requests, self.oneway = self.oneway, []
        if not requests:
            return
        quick = None if self._removed is not None or self._appender.overload() else self.quick
        with self._ops.together():
            for request in requests:
                if quick is None or not self._commit_quickly(quick, request.header):
                    if quick is not None:
                        quick.settle()
                    ordinary(request)
            if quick is not None:
                quick.settle()
                quick.count()

    def _commit_quickly(self, quick: QuickCommits, header: EndTransactionRequest) -> bool:
        offset = header.tran_state_table_offset
        if header.commit_or_rollback != SYS_TRANSACTION_COMMIT or offset in self._moved or offset not in self._open:
            return False
        if not quick.commit(header.commit_log_offset, offset, header.producer_group, header.transaction_id):
            return False
        self._forget(offset)
        self._ops.write(offset)
        return True

    # ---- producers are asked ----

    def next_deadline(self) -> Millis | None:
        if self._removed is not None:
            return self._turn.now
        if self._escape.on:
            return None if self._away or not self._open else self._away_at
        return soonest(self._due[0][0] if self._due else None, self._ops.next_deadline())

    def tick(self, now: Millis) -> None:
        """Take up more halves, or ask about those that are due."""
        if self._removed is not None:
            self._load()
        if self._escape.on:
            self._send_away(now)
            return
        self._ops.tick(now)
        for _ in range(CHECKS_A_TURN):
            if self._removed is not None or not self._due or self._due[0][0] > now:
                break
            due, offset = heapq.heappop(self._due)
            half = self._open.get(offset)
            if half is not None and half.due == due and not self._check(offset, half, now):
                half.due = now + RETRY_MS
                heapq.heappush(self._due, (half.due, offset))
                break
        self._tell()

    def _check(self, offset: int, half: _Half, now: Millis) -> bool:
        """Ask a half's producer; False: not yet, for the log takes nothing, or may lose it."""
        if half.physical_offset >= self._reads.confirmed:
            return False
        found = messages.stored_at(self._reads, half.physical_offset)
        if found is None or not is_half(found):
            self._turn.note("error", f"half {offset} at {half.physical_offset} can't be read: it is left out")
            self._close(offset)
            return True
        text = found.props.get(props.TRANSACTION_CHECK_TIMES, "")
        times = int(text) if _NUMBER(text) else 0
        kept_ms = self._reads.config.file_reserved_time * HOUR_MS
        try:
            if times >= self._settings.current.transaction_check_max or now - found.born_timestamp > kept_ms:
                self._discard(offset, found)
            else:
                self._ask(offset, found, times + 1, now)
        except AppendRefused as refused:
            self._turn.note("warning", f"half {offset} can't be asked about, it is tried again: {refused}")
            return False
        return True

    def _discard(self, offset: int, half: Record) -> None:
        """Nobody says what is to become of it: it is kept for an operator."""
        self._topics.ensure(CHECK_MAX_TIME_TOPIC, 1, self._turn.now)
        message = messages.copy_of(half)
        message.topic, message.queue_id, message.store_host = CHECK_MAX_TIME_TOPIC, 0, self._settings.store_host
        self._appender.store(message)
        self._close(offset)

    def _ask(self, offset: int, half: Record, times: int, now: Millis) -> None:
        """Write the half anew, with one check more, and send the question."""
        known = self._names.get(offset, offset)
        properties = dict(half.props)
        properties[props.TRANSACTION_CHECK_TIMES] = str(times)
        properties[props.TRAN_PREPARED_QUEUE_OFFSET] = str(known)
        message = messages.seal(messages.copy_of(half), properties)
        message.store_host = self._settings.store_host
        stored = self._appender.store(message)
        self._close(offset)
        next_check = now + self._settings.current.transaction_check_interval
        self._opened(stored.queue_offset, stored.physical_offset, next_check)
        self._rename(known, stored.queue_offset)
        producer = self._producers.any_client(properties.get(props.PGROUP, ""))
        if producer is not None:
            self._questions = (self._questions + 1) & 0x7FFFFFFF
            name = self._settings.current.broker_name
            question = _question(name, self._turn.now, self._questions, message, properties, stored)
            self._turn.write(producer.conn, question)

    def _send_away(self, now: Millis) -> None:
        """Send the first open half to another master, as one that its producer has just sent."""
        if self._removed is not None or self._away or not self._open or now < self._away_at:
            return
        offset, half = next(iter(self._open.items()))
        found = messages.stored_at(self._reads, half.physical_offset)

        def told(why: str, now: Millis) -> None:
            self._away = False
            self._away_at = now + escape.RETRY_MS if why else now
            if why != self._trouble:
                self._trouble = why
                if why:
                    self._turn.note("warning", f"half {offset} is tried again: {why}")
            if not why:
                self._forget(offset)
                self._offsets.commit(HALF_TOPIC, GROUP, 0, next(iter(self._open), self._half_end), now, 1)

        if found is None or not is_half(found):
            self._turn.note("error", f"half {offset} at {half.physical_offset} can't be read: it is left out")
            told("", now)
            return
        message, properties = messages.copy_of(found), dict(found.props)
        message.topic = properties[props.REAL_TOPIC]
        message.sys_flag |= SYS_TRANSACTION_PREPARED
        for name in (props.REAL_QID, props.TRAN_PREPARED_QUEUE_OFFSET):
            properties.pop(name, None)
        properties[props.TRAN_MSG] = "true"
        self._away = True
        self._escape.send(message, properties, told)

    def resume(self, half: Record) -> int:
        """A half that was set aside is open again, and asked about at once: where it ends in the log. AppendRefused:
        nothing has happened."""
        properties = dict(half.props)
        properties[props.TRANSACTION_CHECK_TIMES] = "0"
        properties.pop(props.TRAN_PREPARED_QUEUE_OFFSET, None)
        message = messages.seal(messages.copy_of(half), properties)
        message.topic, message.queue_id, message.store_host = HALF_TOPIC, 0, self._settings.store_host
        stored = self._appender.store(message)
        self._opened(stored.queue_offset, stored.physical_offset, self._turn.now)
        return stored.physical_offset + stored.size

    def _rename(self, known: int, offset: int) -> None:
        self._moved[known] = offset
        self._names[offset] = known

    # ---- progress ----

    def _tell(self) -> None:
        """Commit how far all halves are decided, for whoever is master next."""
        self._ops.forget_confirmed()
        if self._removed is None:
            self._ops.commit(next(iter(self._open), self._reads.max_offset(HALF_TOPIC, 0)))

    def validate(self) -> None:
        assert not self.oneway, "a decision was not carried out"
        assert all(self._moved.get(known) == at for at, known in self._names.items()), "names go both ways"
        waiting = {(half.due, offset) for offset, half in self._open.items()}
        assert waiting <= set(self._due), "an open half is not going to be asked about"
        if self._removed is None:
            assert list(self._open) == sorted(self._open), "open halves are in order"


def names_another(decision: EndTransactionRequest, half: Record) -> bool:
    """Does a decision name an id that is not this half's? After a power cut another half may stand at its place: one
    that was put back, to be asked about once more. A decision without an id is believed, as the original believes
    all."""
    key = half.props.get(props.UNIQ_KEY)
    return bool(decision.transaction_id and key) and decision.transaction_id != key


def is_half(found: Record) -> bool:
    """Does a record say where its message is to go?"""
    queue_id = found.props.get(props.REAL_QID, "")
    return bool(found.props.get(props.REAL_TOPIC)) and _NUMBER(queue_id) is not None and int(queue_id) < 1 << 31


def _question(
    broker_name: str, now: Millis, number: int, message: Message, properties: dict[str, str], stored: Appended
) -> bytes:
    """CHECK_TRANSACTION_STATE: the message as it will be, and where its half stands."""
    topic, unique = properties[props.REAL_TOPIC], properties.get(props.UNIQ_KEY)
    message.topic, message.queue_id = topic, int(properties[props.REAL_QID])
    body = record.encode(message)
    record.patch(body, stored.queue_offset, stored.physical_offset, now)
    header = CheckTransactionStateRequest(
        topic=topic,
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        msg_id=unique,
        transaction_id=unique,
        offset_msg_id=ids.offset_message_id(message.store_host, stored.physical_offset),
        broker_name=broker_name,
    )
    return command.encode_request(
        RequestCode.CHECK_TRANSACTION_STATE, number, header, bytes(body), oneway=True
    )
