"""Offsets of groups: the one that a group is told is one that it committed, and none older than what was acknowledged
in this life of the broker, or saved before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perseid.sim.facts import LOOSE
from perseid.sim.promises import Violation

LAST = "committed offsets last"


@dataclass(slots=True)
class Commits:
    """The offsets that one group committed in one queue, in the order of its attempts."""

    attempts: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    unanswered: set[int] = field(default_factory=set)
    acked: int = -1
    """The last attempt that was answered in the broker's present life."""
    durable: int = -1
    """The last attempt that a completed save holds."""
    ahead: set[int] = field(default_factory=set)
    """Offsets that the client itself took from before a loss, and so beyond its queue's end."""

    def may_be(self, offset: int) -> bool:
        """May the group be told this one?"""
        floor = max(self.acked, self.durable)
        return offset in self.attempts[max(floor, 0) :] or any(self.attempts[i] == offset for i in self.unanswered)


class GroupOffsets:
    """Those of all groups."""

    def __init__(self, known_max: Callable[[str, int], int]) -> None:
        """`known_max`: where a queue ends, as far as clients know."""
        self._known_max = known_max
        self._commits: dict[tuple[str, str, int], Commits] = {}
        self.takeovers = 0
        """How often the broker went on with the offsets of another one."""

    # ---- what groups do, and are told ----

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_us: int) -> tuple[Commits, int]:
        """A group is about to commit; the number of the attempt."""
        commits = self._commits.setdefault((group, topic, queue_id), Commits())
        commits.attempts.append(offset)
        commits.times_us.append(now_us)
        if offset > self._known_max(topic, queue_id):
            commits.ahead.add(offset)
        number = len(commits.attempts) - 1
        commits.unanswered.add(number)
        return commits, number

    def answered(self, group: str, topic: str, queue_id: int, offset: int | None) -> None:
        """The broker told a group's offset (None: there is none)."""
        commits = self._commits.get((group, topic, queue_id))
        if commits is None or topic.startswith(LOOSE):
            return
        floor = max(commits.acked, commits.durable)
        if floor < 0 and offset in (None, 0):
            return
        if offset is None or not commits.may_be(offset):
            allowed = commits.attempts[max(floor, 0) :]
            raise Violation(LAST, f"{group} in {topic}/{queue_id}: {offset}, should be of {allowed}")

    # ---- what becomes of the broker ----

    def saved(self, table: dict[str, dict[str, int]], takeovers: int = 0) -> None:
        """A save of the offsets, keyed `topic@group` and queue id, is durable, which began after so many takeovers."""
        if takeovers != self.takeovers:
            return
        for joined, queues in table.items():
            topic, _, group = joined.partition("@")
            for queue_id, offset in queues.items():
                commits = self._commits.get((group, topic, int(queue_id)))
                if commits is not None:
                    for number in range(len(commits.attempts) - 1, commits.durable, -1):
                        if commits.attempts[number] == offset:
                            commits.durable = number
                            break

    def life_ended(self) -> None:
        """The broker's process is gone, and with it what was acknowledged of commits but not saved."""
        for commits in self._commits.values():
            commits.acked = -1

    def recovered(self, offset_of: Callable[[str, str, int], int | None], max_of: Callable[[str, int], int]) -> None:
        """A start has recovered: groups are where they may be, and none is ahead of its queue. `offset_of`: topic,
        group, queue → the group's offset; `max_of`: topic, queue → where the queue ends."""
        for (group, topic, queue_id), commits in self._commits.items():
            offset, end = offset_of(topic, group, queue_id), max_of(topic, queue_id)
            self.answered(group, topic, queue_id, offset)
            if offset is not None and offset > end and offset not in commits.ahead:
                raise Violation("no group is ahead of its queue", f"{group} in {topic}/{queue_id}: {offset} of {end}")
            commits.acked = -1

    def taken_over(self, place: Callable[[str, str, int], tuple[int | None, int]], now_us: int) -> None:
        """The broker goes on with the offsets of another one, which may be older. `place`: topic, group, queue → where
        the group is now, and where the queue ends, which no group is beyond."""
        for (group, topic, queue_id), commits in self._commits.items():
            offset, end = place(topic, group, queue_id)
            if offset not in (*commits.attempts, None, 0, end):
                raise Violation(LAST, f"{group} in {topic}/{queue_id}: {offset} never was")
            if offset is not None:
                commits.attempts.append(offset)
                commits.times_us.append(now_us)
            commits.acked = commits.durable = -1
        self.takeovers += 1
