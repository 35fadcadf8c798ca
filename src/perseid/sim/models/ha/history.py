"""What clients of a broker set were told, and what follows from it.

C4   who is in sync has what was acknowledged          C10  and what readers see
C5   a later master has what was acknowledged

Where a message stands in its queue is `queues.py`'s (C11).

Where acknowledgements wait for all in sync, and for their disks where power may fail (`Ha.strict`), that holds whatever
happens, as long as one of them keeps its disk. Otherwise a new master may lack what the last one acknowledged: that is
lost with the change, counted, and everything else stays. The weaker promises of other modes:

- inSyncReplicas=n: so many nodes have what the agreed master acknowledges, when it does.
- minInSyncReplicas=n: who never had so many in sync since it became master acknowledges nothing but what it took in an
  earlier epoch of its own, when it had them.
- unclean elections: what is lost is lost with the election of somebody who was not in sync, and at no other time; the
  answers of those who do not know of that election yet promise nothing, and what they have beyond the new log goes.
- syncFromLastFile: such a broker lacks what stands before its log's beginning, and begins a queue anew of which it has
  nothing, when it is elected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.sim.models.ha.queues import QueuePlaces, Stored
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_queues import Queues
from perseid.sim.promises.timers import check_time
from perseid.sim.promises.transactions import Decisions
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from perseid.wire.record import Record, decode, decode_all

if TYPE_CHECKING:
    from perseid.sim.models.ha.cluster import Ha
    from perseid.sim.models.ha.members import Replica

WAITING = (SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC)
"""Topics of what is to come to its own topic later."""
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)


class SetHistory:
    """All of it."""

    def __init__(self, ha: Ha) -> None:
        self.ha = ha
        self.sent: dict[bytes, int] = {}
        """Body → how often it was sent."""
        self.stored: dict[int, Stored] = {}
        """By place in the log."""
        self.places = QueuePlaces(ha.count)
        self.delayed: set[bytes] = set()
        """Acknowledged, and to be delivered."""
        self.halves: dict[bytes, bool] = {}
        """Messages of transactions: are they to be committed?"""
        self.decisions = Decisions()
        self.may_repeat: set[bytes] = set()
        self.acknowledged = 0
        self.lost: list[Stored] = []
        self.queues = Queues(fresh=False)
        """A master that is none any more does not know so, and names its own ends."""
        self.began = 0
        """The epoch of the last master that began."""

    def sends(self, body: bytes, *, delayed: bool) -> None:
        """A client sends a message, perhaps again. What is delayed may be delivered again by the next master."""
        self.sent[body] = self.sent.get(body, 0) + 1
        if delayed:
            self.may_repeat.add(body)

    # ---- transactions ----

    def opens(self, body: bytes, *, commit: bool) -> None:
        """A client sends a half. A new master that lacks a decision asks again, and delivers again."""
        self.sends(body, delayed=True)
        self.halves[body] = commit
        self.decisions.opens(body)

    def decides(self, body: bytes) -> bool:
        """Its producer is about to say what becomes of a half: whether it is to be committed."""
        commit = self.halves[body]
        self.decisions.decides(body, commit=commit)
        return commit

    # ---- what leaves a broker ----

    def answered(self, replica: Replica, request: Command, answer: Command) -> None:
        """A broker answers a client; the bytes are not on their way yet."""
        if request.code in SENDS and answer.code == ResponseCode.SUCCESS:
            self._acked(replica, request, answer)
        elif request.code == RequestCode.PULL_MESSAGE and answer.code == ResponseCode.SUCCESS:
            for record in decode_all(answer.body):
                self._read(replica, record)

    def _acked(self, replica: Replica, request: Command, answer: Command) -> None:
        said = answer.header(SendMessageResponse)
        physical = int(said.msg_id[-16:], 16)
        record = self._record(replica, physical)
        body = bytes(request.body)
        if record is None or record.body != body:
            raise Violation("acknowledged is stored", f"{replica.name} has not {body[:20]!r} at {physical}")
        epoch = replica.epoch
        self.ha.oracle.acknowledges(self.ha.set_name, epoch, replica.id, replica.name)
        self.acknowledged += 1
        least = self.ha.settings.min_in_sync
        taken_in = max((number for number, start in replica.epochs if start <= physical), default=epoch)
        if least > 1 and max(len(self.ha.ever_in_sync(one)) for one in (taken_in, epoch)) < least:
            self._require_copies(replica, record, least)
        if not (self.ha.trusts(replica) or self.ha.is_current(replica)):
            self.ha.count("acknowledged by a master that is none any more")
            return  # the new one has it or not, as it happens
        stored = self._remember(replica, record, acknowledged=True)
        if stored.place is None:
            if self.halves.get(body, True):
                self.delayed.add(body)
            self.ha.count("acknowledged: half" if body in self.halves else "acknowledged: delayed")
        elif (said.queue_id, said.queue_offset) != stored.place:
            raise Violation("an answer says where", f"{said.queue_id}@{said.queue_offset}, it is at {stored.place}")
        self.ha.count(f"acknowledged with {len(self.ha.agreed.members)} in sync")
        stored.holders = self.ha.require_holders("C4", replica, stored)
        if self.ha.is_current(replica):
            self.ha.require_nodes(replica, stored)

    def _require_copies(self, replica: Replica, record: Record, least: int) -> None:
        """minInSyncReplicas, where no controller has heard of so many: a master counts those whom it is about to
        propose, too, and waits for them."""
        copies = sum(self._copy(one, record) for one in self.ha.replicas)
        if copies < least:
            raise Violation(
                "minInSyncReplicas",
                f"{replica.name} acknowledges in {replica.epoch} what {copies} have, never with {least} in sync",
            )

    def _copy(self, replica: Replica, record: Record) -> bool:
        held = self._record(replica, record.physical_offset)
        return held is not None and held.body == record.body

    def _read(self, replica: Replica, record: Record) -> None:
        if record.body not in self.sent:
            raise Violation("what is read was sent", f"{record.body[:20]!r} at {record.physical_offset}")
        self.decisions.check_read(replica.name, record.body)
        check_time(record)
        self.ha.count("message read" if replica.is_master else "message read from a slave")
        if not (self.ha.trusts(replica) or self.ha.is_current(replica)):
            return
        stored = self._remember(replica, record, acknowledged=False)
        self.ha.require_holders("C10", replica, stored)

    def _remember(self, replica: Replica, record: Record, *, acknowledged: bool) -> Stored:
        physical = record.physical_offset
        waits = record.topic in WAITING
        place = None if waits else (record.queue_id, record.queue_offset)
        known = self.stored.get(physical)
        if known is None or known.body != record.body:
            if known is not None:
                raise Violation("C5", f"{replica.name}: {known.body[:20]!r} was at {physical}, {record.body[:20]!r} is")
            known = Stored(physical, physical + record.size, bytes(record.body), place, False)
            self.stored[physical] = known
        known.acknowledged |= acknowledged
        if place is not None:
            self.places.stands(replica, place, known)
        return known

    @staticmethod
    def _record(replica: Replica, physical: int) -> Record | None:
        raw = replica.record(physical)
        return decode(raw) if raw is not None else None

    # ---- a master begins ----

    def master_began(self, replica: Replica) -> None:
        """C5: what a new master has to have."""
        gone = [one for one in self.stored.values() if not replica.has(one)]
        unclean = self.ha.agreed.unclean_at > self.began
        self.began = replica.epoch
        if gone and self.ha.strict and not unclean:
            one = gone[0]
            what = "acknowledged" if one.acknowledged else "read"
            raise Violation(
                "C5", f"{replica.name} is master of {replica.epoch} without {len(gone)} of {len(self.stored)}, e.g. "
                f"{one.body[:20]!r}, {what}, at {one.physical} (had it: {one.holders}); its log ends at {replica.end}"
            )  # fmt: skip
        for one in gone:
            del self.stored[one.physical]
            self.places.forget(one)
            self.delayed.discard(one.body)
            self.lost.append(one)
            what = "an unclean election" if unclean else "a change of masters"
            self.ha.count(f"lost with {what}: acknowledged" if one.acknowledged else "lost: read")
        if replica.start:
            self.places.without_beginning(replica)
