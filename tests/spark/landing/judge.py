"""The promise: each message that was acknowledged is in the table once, or in its record of gaps.

The judge keeps books of its own: which messages a table owes, since a run said that it had come to its end, or a batch
that counts says how far it goes. It reads rows and plans as they lie on disk, and never asks the code that it judges
where a run goes on.

What a broker itself lost, or an operator deleted with its topic, before it was in a table, nobody can know of. Nor what
was in a table that was put back to before it, when the topic had lost it too; nor that a queue was begun anew, when all
up to the place that was read is gone. That may be missing without a word in the record (`excused`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from perseid.spark.jobs.archive.folder import Gap, Plan
from perseid.spark.jobs.archive.resuming import REMOVED
from perseid.spark.jobs.archive.run import ABSENT, DELETED_ANEW

from .landing import DONE, Asked, Failure, Landing, Outcome, rows_in
from .topic import Message, Seen


@dataclass
class Books:
    """What a table owes. They go with copies of its folder."""

    begin: dict[str, int] | None = None
    """Where it began in the queues that there were; None before the first commit."""
    starting: dict[str, int] = field(default_factory=dict)
    """Where it would begin, as the last run was told that took it for a new one."""
    owed: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)
    loose: Counter[str] = field(default_factory=Counter)
    """So many that a run noted as missing, of a queue that was exchanged meanwhile, may never have been."""
    plan: Plan | None = None
    """As the last run left it that left one,"""
    told: set[Gap] = field(default_factory=set)
    generation: int = 1
    """and what was told until then."""


class Judge:
    """Watches one landing."""

    def __init__(self, landing: Landing) -> None:
        self._landing, self._world = landing, landing.world
        self.books = Books()
        self.touched = False
        """Others changed the table's rows since a run was content with them."""
        self.precious: set[int] = set()
        """Rows that lie in files which no table names, and nowhere else."""

    # ---- looking ----

    def rows(self) -> Counter[int]:
        """How often each message is in the table; Failure when one is not what it was."""
        found: Counter[int] = Counter()
        places: Counter[tuple[str, int, int]] = Counter()
        for path in self._landing.named():
            for uid, queue, offset, generation in rows_in(path):
                message = self._world.messages.get(uid)
                if message is None or (message.queue, message.offset) != (queue, offset):
                    raise Failure(f"{path} has a row at {queue} {offset} that is not message {uid}")
                found[uid] += 1
                places[queue, offset, generation] += 1
        taken = [place for place, rows in places.items() if rows > 1]
        if taken:
            raise Failure(f"several rows have one place and one generation: {sorted(taken)[:5]}")
        return found

    def _plan(self) -> Plan | None:
        table = self._landing.table()
        return None if table is None else self._landing.folder.plan(table.last_batch())

    # ---- what others do ----

    def lost_by_brokers(self, before: set[int]) -> None:
        """The topic no longer has what it had: what is in no table now, none can bring back."""
        gone = (self.books.owed & before) - self._world.current()
        self.books.excused |= gone - self.rows().keys()

    def put_back(self) -> None:
        """The table is an older one."""
        self.touched = True
        self.books.plan = self._plan() or self.books.plan
        self.books.excused |= self.books.owed - self._world.current() - self.rows().keys()

    def before_run(self) -> None:
        """Notes what a run must not remove."""
        rows = self.rows()
        readable = {m.uid for queue in self._world.queues.values() for m in queue.log if queue.has(m.offset)}
        named = {str(path) for path in self._landing.named()}
        self.precious = {
            uid for path in self._landing.on_disk() if str(path) not in named for uid, *_ in rows_in(path)
        } - rows.keys() - readable  # fmt: skip

    # ---- after a run ----

    def after_run(self, asked: Asked, outcome: Outcome) -> None:
        """Failure when a promise is broken. `outcome`: of an archive run."""
        topic, rows, plan = self._landing.topic, self.rows(), self._plan()
        blamed = ("changed by others", "rows of nobody", "rows of others")
        if outcome.refusal == "a damaged file" or (outcome.refusal in blamed and not self.touched):
            raise Failure(f"nobody did that to the table: {outcome.error}")
        twice = [uid for uid, times in rows.items() if times > 1]
        if twice:
            raise Failure(f"messages {self._told(twice)} are in the table twice")
        if topic is not None and topic.looked is not None and not topic.begun and self.books.begin is None:
            self.books.starting = dict(topic.looked.starting)
        if outcome.how == DONE or plan != self.books.plan:
            assert topic is not None
            self._owe(topic, plan, rows, done=outcome.how == DONE)
        if outcome.how == DONE:
            if plan is None:
                raise Failure("a run came to its end, and the table notes no position")
            assert outcome.done is not None
            if outcome.done.rewound is not None:
                self.put_back()
            self.touched = False
            self._check_said(asked, outcome, plan)
            self.check(rows, plan)
        elif self.precious:
            kept = {uid for path in self._landing.on_disk() for uid, *_ in rows_in(path)}
            noted = sum(gap.messages for gap in plan.gaps) if plan is not None else 0
            if len(self.precious - kept) > noted:
                raise Failure(f"messages {self._told(self.precious - kept)} were only in files that are removed")
        if plan is not None:
            self.books.plan, self.books.generation = plan, max(plan.generation, self.books.generation)
            self.books.told |= set(plan.gaps)

    def _owe(self, topic: Seen, plan: Plan | None, rows: Counter[int], *, done: bool) -> None:
        if self.books.begin is None:
            if topic.looked is None:
                return  # it came not as far
            self.books.begin = self.books.starting
        begin = dict(self.books.begin)
        for generation in () if plan is None else plan.generations:
            begin |= {name: at for name, at in generation.begin.items() if at < begin.get(name, 0)}
        mixed = topic.changes != self._world.changes
        seen = self._seen(topic)
        for name, log in topic.logs.items():
            reached = 0 if self.books.plan is None else self.books.plan.end.get(name, 0)
            end = len(log) if done and name in seen else 0
            if plan is not None:
                end = max(end, min(plan.end.get(name, 0), len(log)))
            if name not in seen and end <= reached:
                continue
            slots = log[begin.get(name, 0) : end]
            new = {message.uid for message in slots} - self.books.owed
            self.books.owed |= new
            if self._world.compacted:  # later messages with the same keys are there in their stead
                holes = topic.holes[name] | self._world.queues[name].holes
                self.books.excused |= {m.uid for m in slots if m.offset in holes}
            if not self._comparable(topic, name, reached):
                self.books.excused |= {m.uid for m in slots if m.uid in new and m.offset < reached} - rows.keys()
            if mixed:  # exchanged while it was read: what the brokers lost by that, a run may tell of or not
                before = () if self.books.plan is None else self.books.plan.gaps
                noted = [gap for gap in plan.gaps if gap not in before] if plan is not None else []
                self.books.loose[name] += sum(gap.messages for gap in noted if gap.queue == name)
                self.books.excused |= {message.uid for message in slots} - self._world.current() - rows.keys()

    def _seen(self, topic: Seen) -> dict[str, list[Message]]:
        """What a run could look at to its end."""
        there = {queue.name for queue in self._world.reachable()}
        return {name: log for name, log in topic.logs.items() if name in there}

    def _comparable(self, topic: Seen, name: str, reached: int) -> bool:
        """Is there a message before the place that was read, by which a queue is told from another one?"""
        assert topic.looked is not None
        begun = () if self.books.plan is None else self.books.plan.generations
        there = {
            offset for path in self._landing.named() for _, queue, offset, number in rows_in(path)
            if queue == name and all(offset < one.begin.get(name, reached) for one in begun if one.number > number)
        }  # fmt: skip
        low, holes = topic.looked.earliest[name], topic.holes[name]
        return any(low <= offset < reached and offset not in holes for offset in there)

    def _check_said(self, asked: Asked, outcome: Outcome, plan: Plan) -> None:
        done = outcome.done
        assert done is not None
        allowed = asked.allowed
        if done.gaps and not (allowed.gaps or allowed.changed_table):
            raise Failure(f"gaps were noted that nobody allowed: {done.gaps}")
        if plan.generation > self.books.generation and not allowed.new_generation:
            raise Failure("a generation was begun that nobody allowed")
        unsaid = [gap for gap in plan.gaps if gap not in self.books.told and gap not in done.gaps]
        if unsaid:
            raise Failure(f"gaps were noted by no run that came to its end, and this one does not say them: {unsaid}")

    def check(self, rows: Counter[int], plan: Plan) -> None:
        """The property itself."""
        topic = self._landing.topic
        assert topic is not None
        missing = [self._world.messages[uid] for uid in sorted(self.books.owed - rows.keys())]
        missing = [  # what a broker has that is away comes when it is back
            one for one in missing if one.queue in self._seen(topic) or one.offset < plan.end.get(one.queue, 0)
        ]  # fmt: skip
        for name in {message.queue for message in missing} | {gap.queue for gap in plan.gaps}:
            gaps = [gap for gap in plan.gaps if gap.queue == name]
            told = sum(gap.messages for gap in gaps)
            excused = [m for m in missing if m.queue == name and m.uid in self.books.excused]
            lost = [m for m in missing if m.queue == name and m.uid not in self.books.excused]
            outside = [m for m in lost if not any(gap.start <= m.offset < gap.end for gap in gaps)]
            at_most = sum(gap.messages for gap in gaps if gap.why == DELETED_ANEW) + self.books.loose[name]
            at_most += sum(1 for uid in rows if self._within(uid, [gap for gap in gaps if gap.why == ABSENT]))
            at_most += sum(  # a generation that begins before it reads them again
                gap.messages for gap in gaps for one in plan.generations
                if gap.why == REMOVED and one.batch >= gap.batch and one.begin.get(name, gap.end) < gap.end
            )  # fmt: skip
            covered = [offset for gap in gaps for offset in range(gap.start, gap.end)]
            at_most += len(covered) - len(set(covered))  # by several generations
            if outside or not len(lost) <= told <= len(lost) + len(excused) + at_most:
                raise Failure(
                    f"{name}: {len(lost)} messages are missing ({self._told(m.uid for m in lost)}; in no gap:"
                    f" {self._told(m.uid for m in outside)}), the record of gaps has {told}: {gaps}"
                )

    def _within(self, uid: int, gaps: list[Gap]) -> bool:
        message = self._world.messages[uid]
        return any(gap.queue == message.queue and gap.start <= message.offset < gap.end for gap in gaps)

    def _told(self, uids: object) -> str:
        found: list[Message] = [self._world.messages[uid] for uid in sorted(uids)][:20]  # type: ignore[call-overload]
        return ", ".join(f"{m.uid} ({m.queue} {m.offset})" for m in found)
