"""Could one queue, and one offset of a group in it, have given these answers, each at one moment between question and
answer? The checks of linearizability of what clients were told, in the manner of Porcupine, beside all other checks.

**Queues.** A queue only grows. Let T(n) be the moment in which its length becomes n + 1. A send that was acknowledged
at offset n lay between call and answer: called ≤ T(n) ≤ answered. An answer that names the end m was true at some
moment of its own: T(m − 1) ≤ answered, and called ≤ T(m). Moments exist if and only if, with T ascending, no lower
bound lies above a later upper one: one walk over the offsets, no search.

Where stale answers are allowed (a master that is none any more does not know so, and a slave follows), what was told
has to have been there: only T(m − 1) ≤ answered is asked for.

**Offsets.** An offset of a group is a register: a commit writes it, a question reads it. Commits that nobody answered
may have happened at any time after they were sent, or never. Which order explains the answers is searched for (Wing,
Gong and Lowe): operations are put in order one by one, and a state that was met before is not looked at again. One life
of a broker is looked at by itself: what an end of a process takes back, other checks say; its first value is whatever
the first answer says.

What lost messages with a power cut (`lost`) is left out from then on, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perseid.sim.promises import Violation

MOST_STEPS = 20_000
"""Of the search for an order of one group's commits; a history that needs more is counted as undecided."""
NEVER_US = 1 << 62

QueueName = tuple[str, int]


class LengthAnswer(NamedTuple):
    """An answer about a queue's length, and when the question left. `is_send`: the message at `length` − 1 is ours."""

    called: int
    answered: int
    length: int
    is_send: bool


class Step(NamedTuple):
    """A commit (`is_commit`), or a question for the offset; `answered` is NEVER_US where no answer came."""

    called: int
    answered: int
    offset: int
    is_commit: bool


def explain_queue(answers: Iterable[LengthAnswer], *, fresh: bool = True) -> str:
    """Why no queue could have given these answers; "" when one could. `fresh`: answers were never out of date."""
    earliest: dict[int, int] = {}
    latest: dict[int, int] = {}
    for one in answers:
        if one.length > 0:
            latest[one.length - 1] = min(latest.get(one.length - 1, NEVER_US), one.answered)
        grown = one.length - 1 if one.is_send else one.length
        if one.is_send or fresh:
            earliest[grown] = max(earliest.get(grown, 0), one.called)
    highest, of = 0, -1
    for offset in sorted(earliest.keys() | latest.keys()):
        if earliest.get(offset, 0) > highest:
            highest, of = earliest[offset], offset
        if latest.get(offset, NEVER_US) < highest:
            return f"offset {offset} was taken by {latest[offset]} µs, and offset {of} still free at {highest} µs"
    return ""


def explain_offsets(steps: Sequence[Step], limit: int = MOST_STEPS) -> str | None:
    """Why no register could have given these answers; "" when one could, None when `limit` steps of the search did
    not tell."""
    sure = sorted((one for one in steps if one.answered < NEVER_US), key=lambda one: (one.called, one.answered))
    perhaps = sorted((one for one in steps if one.answered == NEVER_US), key=lambda one: one.called)
    first = {one.offset for one in sure if not one.is_commit} | {0}
    todo: list[tuple[frozenset[int], frozenset[int], int]] = [(frozenset(), frozenset(), v) for v in first]
    met = set(todo)
    furthest: frozenset[int] = frozenset()
    while todo:
        limit -= 1
        if limit < 0:
            return None
        done, used, value = todo.pop()
        if len(done) == len(sure):
            return ""
        furthest = max(furthest, done, key=len)
        left = [n for n in range(len(sure)) if n not in done]
        horizon = min(sure[n].answered for n in left)
        for n in left:
            one = sure[n]
            if one.called > horizon:
                break
            after = [((done | {n}, used), one.offset)] if one.is_commit or one.offset == value else []
            if not after:  # a commit without an answer may have come before
                for k, other in enumerate(perhaps):
                    if other.called > one.answered:
                        break
                    if k not in used and other.offset == one.offset:
                        after = [((done | {n}, used | {k}), one.offset)]
                        break
            for (now_done, now_used), now in after:
                state = (now_done, now_used, now)
                if state not in met:
                    met.add(state)
                    todo.append(state)
    stuck = next(sure[n] for n in range(len(sure)) if n not in furthest)
    what = "was answered for a commit" if stuck.is_commit else "was read"
    return f"offset {stuck.offset} {what} between {stuck.called} and {stuck.answered} µs, which no order explains"


@dataclass(slots=True)
class Queues:
    """All that clients of one run were told of queues' lengths and of groups' offsets. `fresh` as above."""

    fresh: bool = True
    answers: dict[QueueName, list[LengthAnswer]] = field(default_factory=dict)
    steps: dict[tuple[str, str, int, int], list[Step]] = field(default_factory=dict)
    """Group, topic, queue, life of the broker."""
    counts: Counter[str] = field(default_factory=Counter)
    _lost: set[QueueName] = field(default_factory=set)

    def sent(self, topic: str, queue_id: int, offset: int, called: int, answered: int) -> None:
        """A send was acknowledged at an offset."""
        self._add(topic, queue_id, LengthAnswer(called, answered, offset + 1, True))

    def ends(self, topic: str, queue_id: int, end: int, called: int, answered: int) -> None:
        """An answer named a queue's end."""
        self._add(topic, queue_id, LengthAnswer(called, answered, end, False))

    def lost(self, queues: Iterable[QueueName]) -> None:
        """These have lost messages, as they might."""
        self._lost.update(queues)

    def committed(
        self, group: str, topic: str, queue_id: int, life: int, offset: int, called: int, answered: int = NEVER_US
    ) -> None:
        """A group committed an offset, to a broker in its `life`-th life."""
        self.steps.setdefault((group, topic, queue_id, life), []).append(Step(called, answered, offset, True))

    def asked(
        self, group: str, topic: str, queue_id: int, life: int, offset: int | None, called: int, answered: int
    ) -> None:
        """A group was told where it is; None: it has no offset, and young queues say 0 for that."""
        self.steps.setdefault((group, topic, queue_id, life), []).append(Step(called, answered, offset or 0, False))

    def explain(self) -> str:
        """The first queue, or offset, that no order explains; "" when there is none."""
        for name, answers in self.answers.items():
            if name in self._lost:
                self.counts["queue with losses, not checked for linearizability"] += 1
                continue
            if why := explain_queue(answers, fresh=self.fresh):
                return f"{name[0]}/{name[1]}: {why}"
            self.counts["queue is linearizable"] += 1
        for (group, topic, queue_id, life), steps in self.steps.items():
            if all(one.is_commit for one in steps):
                continue
            earlier = [
                one._replace(answered=NEVER_US)
                for (*others, before), them in self.steps.items()
                if others == [group, topic, queue_id] and before < life
                for one in them
                if one.is_commit and one.answered == NEVER_US
            ]
            found = explain_offsets([*earlier, *steps])
            if found:
                return f"{group} in {topic}/{queue_id}, life {life}: {found}"
            what = "undecided" if found is None else "linearizable"
            self.counts[f"offsets of a group are {what}"] += 1
        return ""

    def _add(self, topic: str, queue_id: int, answer: LengthAnswer) -> None:
        self.answers.setdefault((topic, queue_id), []).append(answer)


def require_linearizable(queues: Queues, counts: Counter[str]) -> None:
    """One order of all that happened explains what clients were told; `counts` gets what was looked at."""
    why = queues.explain()
    counts.update(queues.counts)
    if why:
        raise Violation("linearizable", why)
