"""Who is in sync with a master: what the controller agreed to, what is proposed, and whom an acknowledgement needs
(ha-autoswitch.md §8).

    required = agreed ∪ all that was proposed since and may have been applied ∪ who is awaited

A proposal that got no answer may be applied at any later time, so its joiners count until the set's epoch has moved on:
then no older proposal can be applied any more. A replica that is to leave counts until the controller has let it go
(B1, B2). One proposal is under way at a time.

A master alone in sync confirms all that it writes at once, so that a joiner would have to have every byte in one
instant: under load it never has. So who is near is *awaited*: for `AWAITED_MS` at most it counts before it is proposed,
nothing is confirmed without it, and when it has all that is confirmed it is proposed.

A replica stays while it has caught up with the master's end within `max_not_caught_up_ms`. It comes in when it has all
that is confirmed, and a byte position in the master's own epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perseid.base.machine import Millis

RETRY_MS = 500
"""After a proposal that failed."""
BARRED_MS = 10_000
"""A replica that the controller does not know is not proposed again for so long."""
MAX_BARRED = 1_000
AWAITED_MS = 1_000
"""So long acknowledgements wait for a joiner that is near, at most."""
FOR_EVER = 1 << 62
REST_MS = 3_000
"""After that it is not awaited again for so long."""


@dataclass(frozen=True, eq=False, slots=True)
class Proposal:
    """One proposal; another one of the same members is another one."""

    members: frozenset[int]


class InSync:
    """The set of one master's term. `own` is the master's id."""

    def __init__(self, own: int, max_not_caught_up_ms: Millis) -> None:
        self.own = own
        self._most_ms = max_not_caught_up_ms
        self.agreed: frozenset[int] = frozenset((own,))
        self.epoch = -1
        """Of the agreed set, as the controller counts."""
        self.proposed: Proposal | None = None
        """The proposal that is under way."""
        self._maybe: frozenset[int] = frozenset()
        """Members of proposals since `epoch` that may have been applied."""
        self._unknown = False
        """One of them got no answer."""
        self._caught_up: dict[int, Millis] = {}
        self._wanted: set[int] = set()
        """Who has caught up, and is to come in."""
        self._awaited: dict[int, Millis] = {}
        """Joiner → until when it counts, or (in the past) when it did last."""
        self._now: Millis = 0
        self._not_before: Millis = 0
        self._singly = False
        """One joiner at a time: together they were refused, and nobody knows who was meant."""
        self._barred: dict[int, Millis] = {}
        self._quiet_until: Millis = 0
        """There is nothing to propose before, unless something happens."""

    def reconfigure(self, max_not_caught_up_ms: Millis) -> None:
        """Take replicas for so long for caught up from now on."""
        self._most_ms = max_not_caught_up_ms
        self._quiet_until = 0

    # ---- what the controller says ----

    def agree(self, members: Iterable[int], epoch: int, now: Millis) -> bool:
        """The controller's set; False: it is older than what is known, or the same."""
        if epoch <= self.epoch:
            return False
        self.agreed, self.epoch = frozenset(members) | {self.own}, epoch
        self._quiet_until = 0
        self._maybe, self._unknown, self.proposed = frozenset(), False, None
        self._wanted -= self.agreed
        self._awaited = {one: until for one, until in self._awaited.items() if one not in self.agreed}
        self._singly = self._singly and bool(self._wanted)
        for one in self.agreed:
            self._caught_up.setdefault(one, now)
        return True

    def failed(self, proposal: Proposal, now: Millis, *, refused: bool, stranger: bool = False) -> None:
        """A proposal came to nothing: the controller refused it, or (not `refused`) nobody knows. `stranger`: the
        controller does not know some replica. The answer to a proposal that is under way no longer changes nothing:
        of the one that is, it says nothing."""
        if proposal is not self.proposed:
            return
        joiners = proposal.members - self.agreed
        self._singly = self._singly or (refused and len(joiners) > 1)
        if stranger and len(joiners) == 1:
            if len(self._barred) >= MAX_BARRED:
                self._barred.clear()
            self._barred[min(joiners)] = now + BARRED_MS
        self.proposed = None
        self._unknown = self._unknown or not refused
        if not self._unknown:
            self._maybe = frozenset()
        self._not_before = now + RETRY_MS

    # ---- whom an acknowledgement needs ----

    @property
    def required(self) -> frozenset[int]:
        """All of these need to have what is acknowledged."""
        if not self._awaited and not self._maybe:  # nearly always
            return self.agreed
        awaited = frozenset(one for one, until in self._awaited.items() if self._now < until)
        return self.agreed | self._maybe | awaited

    @property
    def stuck(self) -> bool:
        """Is somebody waited for who is gone, and whom no proposal can let go: the one that was to bring it in got no
        answer, and may be applied yet?"""
        unknown = self._maybe - self.agreed if self._unknown and self.proposed is None else frozenset()
        return any(one not in self._caught_up for one in unknown)

    @property
    def count(self) -> int:
        """How many are in sync, as `minInSyncReplicas` counts: the original's greater of both sets."""
        return max(len(self.agreed), len(self._maybe))

    # ---- what replicas do ----

    def caught_up(self, replica: int, at: Millis) -> None:
        """It had all that the master had then."""
        if at > self._caught_up.get(replica, -1):
            self._caught_up[replica] = at

    def may_join(self, replica: int) -> None:
        """It has all that is confirmed."""
        if replica not in self.agreed:
            self._wanted.add(replica)
            self._quiet_until = 0

    def near(self, replica: int, now: Millis) -> None:
        """It is not in sync, and has all but what came a moment ago: await it, unless that was tried just now."""
        if replica in self.agreed or self.epoch < 0 or self._barred.get(replica, 0) > now:
            return
        if now >= self._awaited.get(replica, -REST_MS) + REST_MS:
            self._awaited[replica] = now + AWAITED_MS

    def keep_joiners(self, may_join: Callable[[int], bool]) -> None:
        """Those that are to come in, and have not been proposed, stay so only if they may."""
        if self._wanted and self.proposed is None:
            self._wanted = {one for one in self._wanted if may_join(one)}

    def gone(self, replica: int) -> None:
        """Its connection is lost: it is to leave."""
        self._quiet_until = 0
        self._wanted.discard(replica)
        self._awaited.pop(replica, None)
        if replica != self.own:
            self._caught_up.pop(replica, None)

    def proposal(self, now: Millis) -> Proposal | None:
        """What to propose now; None: there is nothing to change, or an answer is awaited. `proposed` is that."""
        self._now = now
        if now < self._quiet_until or self.proposed is not None or now < self._not_before or self.epoch < 0:
            return None
        stays = frozenset(one for one in self.agreed if one == self.own or self._is_fresh(one, now))
        joiners = sorted(one for one in self._wanted if self._barred.get(one, 0) <= now)
        wanted = stays | set(joiners[:1] if self._singly else joiners)
        if wanted == self.agreed:
            if not self._wanted:  # until one of them may have to leave: each catches up later than it did, not sooner
                ends = [self._caught_up[one] + self._most_ms + 1 for one in self.agreed if one != self.own]
                self._quiet_until = min(ends, default=FOR_EVER)
            return None
        self.proposed = Proposal(wanted)
        self._maybe |= wanted
        return self.proposed

    def _is_fresh(self, replica: int, now: Millis) -> bool:
        return now - self._caught_up.get(replica, -self._most_ms - 1) <= self._most_ms

    def next_deadline(self) -> Millis | None:
        """When there may be something to propose."""
        ends = [until for until in self._awaited.values() if self._now < until] if self._awaited else []
        if self.proposed is not None or self.epoch < 0:
            return min(ends, default=None)
        dues = [self._barred.get(one, 0) for one in self._wanted]
        dues += [self._caught_up.get(one, -self._most_ms - 1) + self._most_ms + 1 for one in self.agreed - {self.own}]
        return min([*ends, max(self._not_before, min(dues))]) if dues else min(ends, default=None)

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        assert self.own in self.agreed, self.agreed
        assert self.proposed is None or self.proposed.members <= self._maybe, (self.proposed, self._maybe)
        assert not self._wanted & self.agreed, (self._wanted, self.agreed)
