"""What is popped and not yet acknowledged: a fold of the revive log, and of nothing else.

A pop hands messages out for a time, and writes a *checkpoint* of them to the revive topic
(rmq_sys_REVIVE_LOG_<cluster>). An *ack* in the same queue of that topic says which of them are done with. What a broker
knows is what these records say, read in their order as far as readers see the log: it is the same after a restart, and
at whoever becomes master. A record of our own is taken up in the turn that writes it (or, where the log has to be
confirmed first, in the one that shows it).

    pop → checkpoint: *open* → every message acknowledged → *closed*
    open → its revive time → what is not acknowledged is written to the retry topic, and then an ack for it → closed
    open → more time for one message: a checkpoint of its own, and then an ack in the old one

Three offsets:

- *position*: where the group pops next. It is the group's committed offset, which moves when a checkpoint is taken up;
  pops that wait for confirmation are remembered beside it, and forgotten with the role.
- *progress*, the offset of the group CID_RMQ_SYS_REVIVE_GROUP on the revive topic: all up to it is closed. It is saved
  with the groups' offsets, in one file, so that a start finds each checkpoint that moved an offset which was not saved
  yet, and moves it again: nothing is handed out twice before its time, and nothing that an offset passed is forgotten.
- *tip*, its pull offset: how far checkpoints have moved the offsets in the same file. Behind a clean or sudden end of
  one master they are not moved again by older ones, since an operator may have set them meanwhile.

Invariants: a message below a group's position was acknowledged, or stands in an open checkpoint or in the retry topic;
it is shown again no earlier than its revive time; what an ack in the log names is never shown again by that checkpoint.
The retry topic gets a message before the ack that says so: a crash between both shows it twice, and never not at all.

Acks of one checkpoint that share a turn share a record: consumers acknowledge message by message what they popped
together. Whoever asks whether a message is out (`waits_for`) settles what is gathered first, or comes behind it.

The original sends checkpoints and acks through the timer wheel, so that its revive log is in the order of revive
times, and keeps nothing in memory. Records of either form are read. Ours carry the time of their writing as
TIMER_DELIVER_MS: a broker of the original that takes over reads from it how late it is. So that it needs to look over
few records, the revive queue is chosen by the length of the invisible time. Sources: broker.md §9, remoting.md §8.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.deadlines import soonest
from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel import messages
from perseid.broker.kernel.durability import Nodes
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.pop.gathered import Gathered, Run
from perseid.broker.pop.modes import RequestModes
from perseid.broker.pop.open import Open, ReviveQueue
from perseid.broker.pop.order import ConsumeOrder
from perseid.broker.pop.topic_routes import Routes
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.store.results import Appended, AppendRefused
from perseid.wire import pop
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.command import decode_each, encode_response
from perseid.wire.names import RETRY_PREFIX, REVIVE_GROUP, revive_topic
from perseid.wire.pop import Ack, Checkpoint, Key
from perseid.wire.record import Message, Record

if TYPE_CHECKING:
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.appender import Appender

MAX_OPEN = 1_000_000
"""Checkpoints (and acks without one); further pops wait until some are closed."""
LOADED_A_TURN = 10_000
"""Records of the revive log that one turn takes up after a start."""
REVIVED_A_TURN = 128
"""Checkpoints whose messages one turn writes to their retry topics."""
RETRY_MS = 1_000
"""After the log refused what a checkpoint has to write."""
PROGRESS_MS = 1_000
PATIENCE_MS = 4_000
"""Acks of the original come to the revive log no sooner than at the revive time, with the timer wheel: so long a
checkpoint that came with it waits for them."""
MAX_STALE = 4_096
_TIMER_MS = 1_000
"""The original's checkpoints come so long before their revive time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopPorts:
    """The parts of a broker that `PopService` needs."""

    turn: Turn
    settings: Settings
    reads: Reads
    queues: Queues
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    appender: Appender
    holds: Holds
    routes: Routes
    nodes: Nodes
    alone: bool
    """No other broker is ever master in its place."""


class PopService:
    """Of one broker that is master."""

    def __init__(self, ports: PopPorts) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._reads, self._consume_queues = ports.reads, ports.queues
        self._topics = ports.topics
        self._groups = ports.groups
        self._offsets = ports.offsets
        self._appender = ports.appender
        self._holds = ports.holds
        self._nodes = ports.nodes
        self._never_another = ports.alone
        self.topic = revive_topic(self._settings.current.broker_cluster_name)
        self.order = ConsumeOrder()
        self.modes = RequestModes()
        self.routes = ports.routes
        self._queues: list[ReviveQueue] = []
        self._open: dict[Key, Open] = {}
        self._due: list[tuple[Millis, int, Open]] = []
        self._numbers = 0
        self._positions: dict[tuple[str, str, int], int] = {}
        """Where groups pop next in a queue, as long as that is ahead of their offset."""
        self._fresh: dict[tuple[int, int], tuple[Checkpoint, int] | Ack] = {}
        """Records of our own that are not taken up yet, by queue and offset; with a checkpoint, the next position."""
        self._told: dict[Key, set[int]] = {}
        """What acks of our own name that are not taken up yet: it stands before all that is written now."""
        self._gathered: dict[tuple[Key, int], Gathered] = {}
        """Acknowledgements of this turn, by checkpoint and revive queue."""
        self._writes = self._leads = False
        self._alone = True
        """The tables of topics and groups are its own: another broker is never master in its place."""
        self.loaded = False
        """All that was written before this broker led is taken up: it may pop."""
        self._since: Millis = 0
        self._progress_at: Millis | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        """No further checkpoint may be opened."""
        return len(self._open) + len(self._fresh) >= MAX_OPEN

    # ---- roles ----

    def start(self, now: Millis) -> None:
        """This broker is master from now on."""
        self._forget()
        reads = self._reads
        self._keep_retry_topics(now)
        row = self._topics.get(self.topic)
        self._alone = self._never_another
        for queue_id in range(row.read_queue_nums if row is not None else 0):
            stored = self._consume_queues.get(self.topic, queue_id)
            done = self._offsets.query(self.topic, REVIVE_GROUP, queue_id)
            at = max(-1 if done is None else done, reads.min_offset(self.topic, queue_id) - 1) + 1
            end = 0 if stored is None else stored.end
            queue = ReviveQueue(queue_id, min(at, end), end)
            tip = self._offsets.pull_offset(self.topic, REVIVE_GROUP, queue_id)
            if self._alone and tip is not None:
                queue.tip = max(queue.at, tip)
            self._queues.append(queue)
        self._leads, self._since = True, now
        self._load(now)

    def _keep_retry_topics(self, now: Millis) -> None:
        """A message in a retry topic is as safe as the log. That there is such a topic may not have been saved yet, or
        copied from the last master: then nobody would pop it."""
        topics = self._topics
        for topic, queue_id in list(self._consume_queues.table):
            if topic.startswith(RETRY_PREFIX) and topics.ensure(topic, 1, now) is not None:
                topics.widen(topic, queue_id + 1, now)

    def stop(self) -> None:
        """It is a slave from now on."""
        self._forget()
        self.order.forget()

    def _forget(self) -> None:
        for one in self._gathered.values():
            why = "the broker is no master any more: the message is shown again"
            self._refuse(one, RequestRefused(ResponseCode.SYSTEM_BUSY, why))
        for table in (self._queues, self._open, self._due, self._positions, self._fresh, self._told, self._gathered):
            table.clear()
        self._leads = self.loaded = False
        self._progress_at = None

    # ---- the fold ----

    def arrived(self, queue_id: int) -> None:
        """Readers see a record of the revive log."""
        if self.loaded and not self._writes and queue_id < len(self._queues):
            self._take_up(self._queues[queue_id], 1 << 62)

    def _load(self, now: Millis) -> None:
        room = LOADED_A_TURN
        for queue in self._queues:
            room -= self._take_up(queue, room)
        if all(queue.at >= queue.end for queue in self._queues):
            self.loaded, self._since = True, now
            for group in sorted({one.checkpoint.group for one in self._open.values() if one.checkpoint is not None}):
                self._groups.find(group, self._settings.current, now)  # it may not have been saved, or copied
            self._holds.pops.everyone()

    def _take_up(self, queue: ReviveQueue, most: int) -> int:
        """Take up what readers see of a queue, at most so many records; how many it were."""
        reads, first = self._reads, queue.at
        end = min(reads.max_offset(self.topic, queue.id), first + most)
        while queue.at < end:
            offset = queue.at
            fresh = self._fresh.pop((queue.id, offset), None)
            if isinstance(fresh, Ack):
                self._heard(fresh)
                self._acknowledge(queue, offset, fresh)
            elif fresh is not None:
                self._add(queue, offset, fresh[0], fresh[0].revive_time)
                if fresh[0].again is None:  # more time for a message says nothing of those before it
                    self._move(*fresh)
            else:
                self._read(queue, offset)
            queue.at = offset + 1
        if queue.at > first and self._progress_at is None:
            self._progress_at = self._turn.now + PROGRESS_MS
        if not self._fresh:
            self._positions.clear()
        return queue.at - first

    def _heard(self, ack: Ack) -> None:
        """An ack of our own is about to be taken up."""
        told = self._told.get(ack.key)
        if told is not None:
            told.difference_update(ack.offsets)
            if not told:
                del self._told[ack.key]

    def _read(self, queue: ReviveQueue, offset: int) -> None:
        """Take up a record that another one, or an earlier life, wrote."""
        unit = self._reads.unit(self.topic, queue.id, offset)
        found = None if unit is None else messages.stored_at(self._reads, unit.physical_offset)
        if found is None:
            return
        tag = found.tag
        if tag == pop.CK_TAG:
            checkpoint = pop.read_checkpoint(found.body)
            if checkpoint is not None and not self._is_there(checkpoint):
                return
            if checkpoint is not None:
                if not self._alone:  # the last master may have made the group in its last moments
                    self._groups.find(checkpoint.group, self._settings.current, self._turn.now)
                self._add(queue, offset, checkpoint, self._due_of(checkpoint, found))
                if offset >= queue.tip and checkpoint.again is None and checkpoint.offsets:
                    self._move(checkpoint, checkpoint.offsets[-1] + 1)
                return
        elif tag in (pop.ACK_TAG, pop.BATCH_ACK_TAG):
            ack = pop.read_ack(found.body)
            if ack is not None:
                self._acknowledge(queue, offset, ack)
                return
        self._turn.note("error", f"{self.topic} queue {queue.id} offset {offset} is no record of POP: left out")

    def _is_there(self, checkpoint: Checkpoint) -> bool:
        """Does the queue reach so far? One that began anew, in a log without its beginning, has other messages."""
        queue = self._consume_queues.get(checkpoint.topic, checkpoint.queue_id)
        return queue is not None and max(checkpoint.offsets, default=-1) < queue.next_offset

    def _due_of(self, checkpoint: Checkpoint, record: Record) -> Millis:
        """When a checkpoint that was read is revived: one of the original waits for its acks, which come later. None
        waits longer than it was told to, though the clock has gone back since."""
        due = min(checkpoint.revive_time, self._turn.now + checkpoint.invisible_time)
        if record.props.get(props.TIMER_DELIVER_MS) == str(checkpoint.revive_time - _TIMER_MS):
            return max(due, self._turn.now) + PATIENCE_MS
        return due

    def _add(self, queue: ReviveQueue, offset: int, checkpoint: Checkpoint, due: Millis) -> None:
        before = self._open.pop(checkpoint.key, None)
        made = Open(checkpoint.key, queue.id, offset, due, checkpoint)
        if before is not None:
            before.closed = True
            if before.checkpoint is None:
                made.acked = before.acked & set(checkpoint.offsets)
        self._open[made.key] = made
        queue.open.append(made)
        if made.left:
            self._schedule(made)
        else:
            self._close(made)

    def _acknowledge(self, queue: ReviveQueue, offset: int, ack: Ack) -> None:
        found = self._open.get(ack.key)
        if found is None:
            self._wait_for_checkpoint(queue, offset, ack)
            return
        if found.checkpoint is None:
            found.acked.update(ack.offsets[: pop.MAX_MESSAGES])
            return
        found.acked.update(each for each in ack.offsets if each in found.checkpoint.offsets)
        found.owed = [each for each in found.owed if each not in found.acked]
        if len(found.acked) == len(set(found.checkpoint.offsets)):
            self._close(found)

    def _wait_for_checkpoint(self, queue: ReviveQueue, offset: int, ack: Ack) -> None:
        """Acks of ours for a checkpoint that is still in the timer wheel of the original."""
        until = ack.revive_time + PATIENCE_MS
        if not ack.revive_time or until <= self._turn.now or len(self._open) >= MAX_OPEN:
            return
        made = Open(ack.key, queue.id, offset, until, None)
        made.acked.update(ack.offsets[: pop.MAX_MESSAGES])
        self._open[made.key] = made
        queue.open.append(made)
        self._schedule(made)

    def _schedule(self, one: Open) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (one.due, self._numbers, one))
        if len(self._due) > 2 * len(self._open) + MAX_STALE:
            self._due = [row for row in self._due if not row[2].closed]
            heapq.heapify(self._due)

    def _close(self, one: Open) -> None:
        one.closed = True
        if self._progress_at is None:
            self._progress_at = self._turn.now + PROGRESS_MS
        if self._open.get(one.key) is one:
            del self._open[one.key]

    def _move(self, checkpoint: Checkpoint, offset: int) -> None:
        """A checkpoint is as safe as the log: its group's offset is behind its messages."""
        topic, group, queue_id = checkpoint.topic, checkpoint.group, checkpoint.queue_id
        before = self._offsets.query(topic, group, queue_id)
        if before is None or before < offset:
            self._commit(topic, group, queue_id, offset)

    def _commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        step = self._settings.current.consumer_offset_update_version_step
        self._offsets.commit(topic, group, queue_id, offset, self._turn.now, step)

    # ---- popping ----

    def position(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the group pops next; None: it is new there."""
        committed = self._offsets.query(topic, group, queue_id)
        ahead = self._positions.get((topic, group, queue_id)) if self._positions else None
        return committed if ahead is None or (committed is not None and committed > ahead) else ahead

    def take_reset(self, topic: str, group: str, queue_id: int) -> None:
        """Let what an operator set count from now on."""
        offset = self._offsets.take_reset(topic, group, queue_id)
        if offset is not None:
            self._positions.pop((topic, group, queue_id), None)
            self.order.clear(topic, group, queue_id)
            self._commit(topic, group, queue_id, offset)

    def skip(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """There is nothing for the group before this offset."""
        if (topic, group, queue_id) in self._positions:
            self._positions[topic, group, queue_id] = offset
        else:
            self._commit(topic, group, queue_id, offset)

    def revive_queue(self, invisible_time: Millis) -> int:
        """Where checkpoints of such a time go: those of one queue are revived about in their order."""
        return invisible_time.bit_length() % max(1, len(self._queues))

    def has(self, key: Key) -> bool:
        """Is a checkpoint of this name open?"""
        return key in self._open

    def free_time(self, topic: str, group: str, queue_id: int, start: int) -> Millis:
        """Now, or a moment later, so that no other checkpoint has the same name."""
        time = self._turn.now
        while (topic, group, queue_id, start, time) in self._open:
            time += 1
        return time

    @property
    def revive_queues(self) -> int:
        """How many queues the revive topic has."""
        return len(self._queues)

    def open(self, checkpoint: Checkpoint, next_offset: int) -> Appended:
        """Messages are handed out. AppendRefused: nothing has happened."""
        queue_id = self.revive_queue(checkpoint.invisible_time)
        stored = self._append(queue_id, pop.CK_TAG, checkpoint.to_json())
        if checkpoint.again is None:
            key = checkpoint.topic, checkpoint.group, checkpoint.queue_id
            self._positions[key] = max(next_offset, self._positions.get(key, 0))
        self._written(queue_id, stored, (checkpoint, next_offset))
        return stored

    def acknowledge(self, ack: Ack, queue_id: int) -> Appended | None:
        """Messages are consumed; None: there is nothing to write. AppendRefused: nothing has happened."""
        if not self.has_to_write(ack):
            return None
        known = self._open.get(ack.key)
        if known is not None:
            queue_id = known.queue
        if known is not None or not self.waits_for(ack.key, ack.offsets, ack.revive_time):
            ack = ack._replace(revive_time=0)
        stored = self._append(queue_id, ack.tag, ack.to_json())
        self._written(queue_id, stored, ack)
        return stored

    @property
    def shared(self) -> bool:
        """May another broker lead meanwhile, and do answers wait for others, so that this one can find out? Until then
        it knows nothing of what that one handed out."""
        return self._nodes.by_quorum or (not self._never_another and self._nodes.synchronous)

    def has_to_write(self, ack: Ack) -> bool:
        """Does the log have to say it? Not of what is not out any more, when no other broker can have handed it out."""
        return self.shared or self.waits_for(ack.key, ack.offsets, ack.revive_time)

    def gather(self, request: Request, ack: Ack, queue_id: int) -> None:
        """Let a request's acknowledgement of a message wait for others of its checkpoint, until the end of the turn at
        the latest; the request is answered then."""
        self._gather(ack, queue_id).add(request, ack.offsets)
        self._write_full(ack, queue_id)

    def gather_run(self, ack: Ack, queue_id: int, run: Run) -> None:
        """The same for several acknowledgements of one checkpoint, whose answers are made already."""
        self._gather(ack, queue_id).add_run(run)
        self._write_full(ack, queue_id)

    def room(self, ack: Ack, queue_id: int) -> int:
        """How many more acknowledgements of a checkpoint fit into one record."""
        found = self._gathered.get((ack.key, queue_id))
        return pop.MAX_MESSAGES - (0 if found is None else found.count)

    def left_of(self, key: Key) -> list[int] | None:
        """The messages of an open checkpoint that are out; None when none is known by this name."""
        found = self._open.get(key)
        return None if found is None or found.checkpoint is None else found.left

    def _gather(self, ack: Ack, queue_id: int) -> Gathered:
        found = self._gathered.get((ack.key, queue_id))
        if found is None:
            found = self._gathered[ack.key, queue_id] = Gathered(ack)
        return found

    def _write_full(self, ack: Ack, queue_id: int) -> None:
        if self._gathered[ack.key, queue_id].count >= pop.MAX_MESSAGES:
            self._write_gathered(queue_id, self._gathered.pop((ack.key, queue_id)))

    def settle(self) -> None:
        """Write what was gathered, one record for each checkpoint."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        for (_, queue_id), one in gathered.items():
            self._write_gathered(queue_id, one)

    def _write_gathered(self, queue_id: int, gathered: Gathered) -> None:
        try:
            stored = self.acknowledge(gathered.joined, queue_id)
        except AppendRefused as refused:
            self._refuse(gathered, self._appender.refusal(refused))
            return
        for one in gathered.waiting:
            if isinstance(one, Run):
                self._appender.confirm_frames(one.conn, one.answers, one.requests, stored)
            elif (reply := self._appender.confirm(one, Reply(), stored)) is not None:
                self._turn.reply(one, reply)

    def _refuse(self, gathered: Gathered, why: RequestRefused) -> None:
        for one in gathered.waiting:
            if isinstance(one, Run):
                for answer in decode_each(one.answers):
                    self._turn.write(one.conn, encode_response(answer.opaque, why.code, remark=why.remark))
            else:
                self._turn.reply(one, Reply(why.code, remark=why.remark))

    def waits_for(self, key: Key, offsets: tuple[int, ...], revive_time: Millis) -> bool:
        """Is any of the messages out, as far as that can be known? One that this broker handed out itself, and knows
        nothing of any more, was acknowledged or is shown again; a checkpoint that an earlier master handed out may
        still come, from its timer wheel."""
        found = self._open.get(key)
        if found is not None:
            return found.checkpoint is None or any(map(found.is_out, offsets))
        fresh = any(not isinstance(one, Ack) and one[0].key == key for one in self._fresh.values())
        return not self.loaded or fresh or key[-1] < self._since < revive_time

    def _append(self, queue_id: int, tag: str, body: bytes) -> Appended:
        message = Message(
            topic=self.topic,
            body=body,
            queue_id=queue_id,
            born_timestamp=self._turn.now,
            born_host=self._settings.store_host,
            store_host=self._settings.store_host,
            properties=b"TAGS\x01%s\x02TIMER_DELIVER_MS\x01%d\x02" % (tag.encode(), self._turn.now),
        )
        self._writes = True
        try:
            return self._appender.store(message)
        finally:
            self._writes = False

    def _written(self, queue_id: int, stored: Appended, record: tuple[Checkpoint, int] | Ack) -> None:
        """A record of ours was stored: it is taken up now, or when readers see it."""
        self._fresh[queue_id, stored.queue_offset] = record
        if isinstance(record, Ack):
            self._told.setdefault(record.key, set()).update(record.offsets)
        self.arrived(queue_id)

    # ---- reviving ----

    def next_deadline(self) -> Millis | None:
        if not self._leads:
            return None
        if not self.loaded:
            behind = any(queue.at < self._reads.max_offset(self.topic, queue.id) for queue in self._queues)
            return self._turn.now if behind else None  # the rest is not shown yet: it arrives
        return soonest(self._due[0][0] if self._due else None, self.order.next_deadline(), self._progress_at)

    def tick(self, now: Millis) -> None:
        """Take up more of the log, or show again what is due."""
        if not self._leads:
            return
        if not self.loaded:
            self._load(now)
            return
        for _ in range(REVIVED_A_TURN):
            if not self._due or self._due[0][0] > now:
                break
            one = heapq.heappop(self._due)[2]
            if not one.closed and not self._revive(one):
                one.due = now + RETRY_MS
                self._schedule(one)
        for topic, group, queue_id in self.order.freed(now):
            self._holds.pops.more(topic, group, queue_id)
        if self._progress_at is not None and now >= self._progress_at:
            self._progress_at = None
            self.tell_progress()

    def _revive(self, one: Open) -> bool:
        """Show what is not acknowledged again; False: the log does not take it now. What an ack names that is not
        taken up yet stays away: the log has it before any copy, and an answer may have promised it."""
        checkpoint = one.checkpoint
        if checkpoint is None or not self._is_wanted(checkpoint):
            self._close(one)
            return True
        told = self._told.get(one.key, ())
        try:
            for offset in [offset for offset in one.left if offset not in told]:
                self._write_again(checkpoint, offset)
                one.owed.append(offset)
            if one.owed:
                self._tell_revived(one, checkpoint)
        except AppendRefused as refused:
            why = f"POP: {checkpoint.topic} for {checkpoint.group} is shown again later: {refused}"
            self._turn.note("warning", why)
            return False
        return True

    def _is_wanted(self, checkpoint: Checkpoint) -> bool:
        return pop.normal_topic(checkpoint.topic, checkpoint.group) in self._topics and (
            checkpoint.group in self._groups
        )

    def _tell_revived(self, one: Open, checkpoint: Checkpoint) -> None:
        ack = Ack(
            checkpoint.topic, checkpoint.group, checkpoint.queue_id, checkpoint.start_offset, checkpoint.pop_time,
            checkpoint.broker_name, tuple(one.owed), batch=True,
        )  # fmt: skip
        self._written(one.queue, self._append(one.queue, ack.tag, ack.to_json()), ack)

    def _write_again(self, checkpoint: Checkpoint, offset: int) -> None:
        """Write one message to the retry topic; one that is gone is left out."""
        unit = self._reads.unit(checkpoint.topic, checkpoint.queue_id, offset)
        found = None if unit is None else messages.stored_at(self._reads, unit.physical_offset)
        if found is None:
            why = f"POP: {checkpoint.topic} {checkpoint.queue_id} {offset} is gone: not shown again"
            self._turn.note("warning", why)
            return
        topic = self.retry_topic(checkpoint.topic, checkpoint.group)
        row = self._retry_row(topic, checkpoint)
        if row is None:
            why = f"POP: {topic} can't be made, there are too many topics: a message is not shown again"
            self._turn.note("error", why)
            return
        separate = self._settings.current.use_separate_retry_queue and found.queue_id < row.write_queue_nums
        queue_id = found.queue_id if separate else 0
        if self._offsets.query(topic, checkpoint.group, queue_id) is None:
            self._commit(topic, checkpoint.group, queue_id, 0)
        properties = dict(found.props)
        if found.reconsume_times == 0 or props.FIRST_POP_TIME not in properties:
            properties[props.FIRST_POP_TIME] = str(checkpoint.pop_time)
        message = messages.seal(messages.copy_of(found), properties)
        message.topic, message.queue_id = topic, queue_id
        message.reconsume_times = found.reconsume_times + (not checkpoint.suspend)
        message.born_host = message.store_host = self._settings.store_host
        self._appender.store(message)

    def _retry_row(self, topic: str, checkpoint: Checkpoint) -> TopicConfig | None:
        """The retry topic, which is there from now on; with `useSeparateRetryQueue` it has no fewer queues than the
        topic itself. None: there are too many topics."""
        row = self._topics.ensure(topic, 1, self._turn.now)
        own = self._topics.get(pop.normal_topic(checkpoint.topic, checkpoint.group))
        if not self._settings.current.use_separate_retry_queue or row is None or own is None:
            return row
        return self._topics.widen(topic, own.write_queue_nums, self._turn.now)

    def retry_topic(self, topic: str, group: str) -> str:
        """Where messages of `topic` go that were not acknowledged."""
        if topic.startswith(RETRY_PREFIX):
            return topic
        make = pop.retry_topic_v2 if self._settings.current.enable_retry_topic_v2 else pop.retry_topic_v1
        return make(topic, group)

    # ---- progress ----

    def tell_progress(self) -> None:
        """Commit up to where the revive log is done."""
        if not self.loaded:
            return
        for queue in self._queues:
            done = queue.done()
            if done > queue.progress:
                queue.progress = done
                self._commit(self.topic, REVIVE_GROUP, queue.id, done)
            if queue.at > queue.tip:
                queue.tip = queue.at
                self._offsets.pulled(self.topic, REVIVE_GROUP, queue.id, queue.at)

    def validate(self) -> None:
        assert not self._gathered, "an acknowledgement was not written"
        if not self._leads:
            return
        self.order.validate()
        waiting = {id(row[2]) for row in self._due}
        for key, one in self._open.items():
            assert key == one.key and not one.closed, "what is closed is not open"
            told = self._told.get(key, set())
            assert id(one) in waiting or told.issuperset(one.left) or not self.loaded, "nobody looks at what is open"
        for queue in self._queues:
            assert queue.progress <= queue.done(), "progress is told of what is closed"
