"""What clients of the brokers of a Raft group saw, and what follows from it.

- a message that was acknowledged is committed, where the answer says, and stays there: queue, offset and bytes;
- what a pull brings is committed, and each offset of a queue brings the same message for ever;
- a delayed message that was acknowledged is delivered, once or more often, and so is one of a transaction whose commit
  was acknowledged; what is open or rolled back is not.
"""

from __future__ import annotations

from perseid.sim.models.dledger.group import BrokerGroup
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_queues import Queues
from perseid.sim.promises.transactions import Decisions

TOPIC, QUEUES = "orders", 2


class GroupHistory:
    """What all clients were told."""

    def __init__(self, group: BrokerGroup) -> None:
        self.group = group
        self.seen: dict[tuple[int, int], bytes] = {}
        """Queue, offset → body."""
        self.delayed: set[bytes] = set()
        """To be delivered."""
        self.decisions = Decisions()
        self.acknowledged = 0
        self.queues = Queues(fresh=False)
        """A leader that is none any more does not know so, and names its own ends."""

    def acked(self, queue_id: int, offset: int, physical: int, body: bytes, delayed: bool, called_us: int) -> None:
        """A send was acknowledged that was called at `called_us`."""
        self.acknowledged += 1
        if self.group.records.get(physical) != body:
            raise Violation("acknowledged is committed", f"{body[:20]!r} at {physical}")
        if delayed:
            self.delayed.add(body)
            self.group.count("acknowledged: delayed")
        else:
            self.met(queue_id, offset, body)
            self.queues.sent(TOPIC, queue_id, offset, called_us, self.group.scheduler.now_us)
            self.group.count("acknowledged")

    def met(self, queue_id: int, offset: int, body: bytes) -> None:
        """A message stands at an offset, as somebody was told."""
        self.decisions.check_read(f"{queue_id}@{offset}", body)
        before = self.seen.setdefault((queue_id, offset), body)
        if before != body:
            raise Violation("an offset keeps its message", f"{queue_id}@{offset}: {before[:20]!r}, then {body[:20]!r}")
