"""A history from a seed: what befalls a topic and its table, one step after the other, and the judge beside it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from perseid.spark.jobs.archive.run import Allowed

from . import operators
from .hooks import Hooks, Killed, installed
from .judge import Books, Judge
from .landing import DONE, KILLED, REFUSED, Asked, Failure, Landing, Outcome, without_spark
from .topic import World

STEPS = (6, 16)
"""How many steps a history has."""
FEW_POINTS = 14
"""Something happens at one of so many points of a run, or of as many as the longest one yet had; a run that has fewer
is then undisturbed."""
LAST_RUNS = 3
"""So many runs, with all permissions, bring a table that is whole up to its topic."""
MAX_COPIES = 3

FORMATS = ("parquet", "delta", "iceberg")


@dataclass
class Played:
    """What became of a history."""

    seed: int
    form: str
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    failure: str = ""


class Stage(Protocol):
    """On what a history is played."""

    def world(self, *, compacted: bool) -> World:
        """A topic without queues."""

    def landing(self, path: Path, form: str, world: World, hooks: Hooks) -> Landing:
        """A table that is not there yet."""

    def never(self, *, compacted: bool) -> frozenset[str]:
        """The steps that it can't play."""


class Model:
    """The archive's own code, without Spark and brokers."""

    def world(self, *, compacted: bool) -> World:
        return World(compacted=compacted)

    def landing(self, path: Path, form: str, world: World, hooks: Hooks) -> Landing:
        return Landing(path, form, world, hooks)

    def never(self, *, compacted: bool) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True)
class Copy:
    """A copy of a table's folder, or of its rows alone, and of the books as they were."""

    path: Path
    books: Books


class History:
    """One history, as it is played."""

    def __init__(self, seed: int, form: str, folder: Path, stage: Stage) -> None:
        self.random = Random(f"{form} {seed}")
        self.played = Played(seed, form)
        self.world, self.hooks = stage.world(compacted=self.random.random() < 0.3), Hooks()
        self.landing = stage.landing(folder / "table", form, self.world, self.hooks)
        self._never = stage.never(compacted=self.world.compacted)
        self.judge = Judge(self.landing)
        self.most_points = 40
        self.copies: list[Copy] = []
        self._folder = folder

    def play(self) -> None:
        """All steps, then the last runs. Failure when a promise is broken."""
        for broker in ["a", "b"][: self.random.randint(1, 2)]:
            for _ in range(self.random.randint(1, 2)):
                self.world.add_queue(broker)
        steps = self.steps()
        kinds = [kind for kind in steps if kind not in self._never]
        weights = [steps[kind][0] for kind in kinds]
        for _ in range(self.random.randint(*STEPS)):
            (kind,) = self.random.choices(kinds, weights)
            if steps[kind][1]():
                self.count(kind)
        self.last()

    def count(self, what: str) -> None:
        self.played.counts[what] += 1

    def tell(self, line: str) -> None:
        self.played.story.append(line)

    def steps(self) -> dict[str, tuple[int, Callable[[], bool]]]:
        """What can come next: how likely it is, and what does it (False: there was nothing to do)."""
        steps: dict[str, tuple[int, Callable[[], bool]]] = {
            "messages": (25, self.messages),
            "run": (16, self.run),
            "run that is killed": (12, self.run_killed),
            "run that the topic changes under": (6, self.run_disturbed),
            "second run at once": (3, self.run_twice),
            "executors elsewhere": (1, self.run_elsewhere),
            "compaction": (3, self.compaction),
            "compaction that is killed": (2, self.compaction_killed),
            **{name: (weight, self._befalls(name, change)) for name, (weight, change) in self.changes().items()},
            "copy": (4, self.copy),
            "older folder put back": (2, self.put_folder_back),
        }
        form = self.landing.form
        if form == "parquet":
            steps["older rows put back"] = (3, self.put_rows_back)
        for name, (weight, act) in operators.ACTS[form].items():
            steps[name] = (weight, self._done_by_others(name, act))
        if form in operators.PUT_BACK:
            name, _ = operators.PUT_BACK[form]
            steps[name] = (3, self.put_part_back)
        steps["a file is harmed"] = (2 if form == "parquet" else 5, self.harm)
        return steps

    # ---- the topic ----

    def changes(self) -> dict[str, tuple[int, Callable[[], bool]]]:
        """What befalls the topic by itself, also while a run is under way."""
        return {
            "retention": (7, self.retention),
            "topic made again": (2, self.recreated),
            "tail lost": (3, self.tail_lost),
            "holes": (2, self.holes),
            "queue added": (2, self.queue_added),
            "broker away": (2, self.broker_away),
            "broker back": (3, self.broker_back),
        }

    def _befalls(self, name: str, change: Callable[[], bool]) -> Callable[[], bool]:
        def befall() -> bool:
            before = self.world.current()
            if not change():
                return False
            self.judge.lost_by_brokers(before)
            return True

        return befall

    def _queue(self) -> str:
        return self.random.choice(sorted(self.world.queues))

    def messages(self) -> bool:
        for name in sorted(self.world.queues):
            if self.random.random() < 0.7:
                self.world.publish(name, self.random.randint(1, 9))
        self.tell(f"messages: {self._ends()}")
        return True

    def _ends(self) -> str:
        return ", ".join(f"{queue.name} {queue.low}..{queue.high}" for queue in self.world.queues.values())

    def retention(self) -> bool:
        for name in sorted(self.world.queues) if self.random.random() < 0.3 else [self._queue()]:
            queue = self.world.queues[name]
            all_of_it = self.random.random() < 0.3
            self.world.retain(name, queue.high if all_of_it else self.random.randint(queue.low, queue.high))
        self.tell(f"retention: {self._ends()}")
        return True

    def recreated(self) -> bool:
        self.world.recreate()
        if self.random.random() < 0.7:
            for name in sorted(self.world.queues):
                self.world.publish(name, self.random.choice([0, 3, 12, 40]))
        self.tell(f"topic made again: {self._ends()}")
        return True

    def tail_lost(self) -> bool:
        name = self._queue()
        if self.world.queues[name].high == 0:
            return False
        self.world.lose_tail(name, self.random.randint(1, 8))
        self.world.publish(name, self.random.choice([0, 2, 5, 15]))
        self.tell(f"tail lost: {self._ends()}")
        return True

    def holes(self) -> bool:
        queue = self.world.queues[self._queue()]
        if queue.high - queue.low < 3:
            return False
        gone = self.random.sample(range(queue.low, queue.high), self.random.randint(1, 3))
        self.world.compact(queue.name, gone)
        self.tell(f"holes: {queue.name} has no {sorted(queue.holes)} any more")
        return True

    def queue_added(self) -> bool:
        self.world.add_queue(self.random.choice("ab"))
        self.tell(f"queue added: {self._ends()}")
        return True

    def broker_away(self) -> bool:
        broker = self.random.choice(sorted({queue.broker for queue in self.world.queues.values()}))
        if broker in self.world.away:
            return False
        self.world.leave(broker)
        self.tell(f"broker {broker} is away")
        return True

    def broker_back(self) -> bool:
        if not self.world.away:
            return False
        self.world.come_back()
        self.tell("all brokers are back")
        return True

    # ---- runs ----

    def asked(self) -> Asked:
        drawn = [self.random.random() < chance for chance in (0.4, 0.35, 0.25)]
        return Asked(Allowed(*drawn), self.random.choice([None, 2, 5, 12]), latest=self.random.random() < 0.1)

    def archive(self, asked: Asked, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        """A run, judged."""
        self.judge.before_run()
        outcome = self.landing.archive(asked, at)
        self._told(f"run {asked.allowed}, {asked.batch_offsets} offsets a batch", outcome)
        self.judge.after_run(asked, outcome)
        return outcome

    def _told(self, what: str, outcome: Outcome) -> None:
        self.tell(f"{what}: {outcome.how} {outcome.error} {outcome.done or ''}")
        self.count(f"run {outcome.how}")
        self.most_points = max(self.most_points, self.hooks.passed)
        if outcome.refusal:
            self.count(f"refused: {outcome.refusal}")
        done = outcome.done
        if done is not None:
            for name, said in (
                ("gaps", done.gaps), ("rewound", done.rewound), ("queues away", done.away), ("rows", done.rows),
            ):  # fmt: skip
                if said:
                    self.count(f"said: {name}")

    def run(self) -> bool:
        self.archive(self.asked())
        return True

    def _kill(self) -> None:
        raise Killed

    def _point(self) -> int:
        most = FEW_POINTS if self.random.random() < 0.4 else max(FEW_POINTS, self.most_points)
        return self.random.randrange(most)

    def run_killed(self) -> bool:
        point = self._point()
        self.tell(f"killed at point {point}:")
        return self.archive(self.asked(), {point: self._kill}).how == KILLED

    def run_disturbed(self) -> bool:
        changes = self.changes()
        happened = []

        def change() -> None:
            name = self.random.choice([name for name in sorted(changes) if name not in self._never])
            if self._befalls(name, changes[name][1])():
                happened.append(name)

        self.judge.before_run()
        asked = self.asked()
        outcome = self.landing.archive(asked, {self._point(): change})
        self._told(f"run {asked.allowed}, {asked.batch_offsets} offsets a batch", outcome)
        self.judge.after_run(asked, outcome)
        return bool(happened)

    def run_twice(self) -> bool:
        others = []

        def other() -> None:
            topic = self.landing.topic
            hooks, self.landing.hooks = self.landing.hooks, Hooks()
            outcome = self.landing.archive(Asked())
            if outcome.how == DONE:
                self.judge.after_run(Asked(), outcome)
            self.landing.hooks, self.landing.topic = hooks, topic
            if topic is not None and topic.looked is not None and outcome.refusal != "held by another run":
                raise Failure(f"a second run was not refused for the first, but {outcome.error or 'done'}")
            if outcome.refusal:
                self.count(f"refused: {outcome.refusal}")
            others.append(outcome.refusal)

        point = self._point() // 2
        self.tell(f"a second run at point {point}:")
        self.archive(self.asked(), {point: other})
        return bool(others)

    def run_elsewhere(self) -> bool:
        outcome = self.archive(Asked(Allowed(gaps=True), None, elsewhere=True))
        shutil.rmtree(self._folder / "elsewhere", ignore_errors=True)
        if outcome.how == DONE and outcome.done is not None and outcome.done.rows:
            raise Failure("rows were added whose files are elsewhere")
        return outcome.how == REFUSED

    def compaction(self, at: dict[int, Callable[[], None]] | None = None) -> bool:
        if self.landing.folder.info() is None:
            return False
        before = self.judge.rows()
        outcome = self.landing.compact(0 if self.random.random() < 0.5 else 1, at)
        self._told("compaction", outcome)
        if self.judge.rows() != before:
            raise Failure("a compaction changed rows")
        return outcome.how != REFUSED

    def compaction_killed(self) -> bool:
        return self.compaction({self._point(): self._kill})

    # ---- copies ----

    def copy(self) -> bool:
        if len(self.copies) >= MAX_COPIES or not self.landing.path.exists():
            return False
        place = self._folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.landing.path, place)
        self.copies.append(Copy(place, deepcopy(self.judge.books)))
        self.tell(f"copy {len(self.copies) - 1} is made")
        return True

    def put_folder_back(self) -> bool:
        if not self.copies:
            return False
        number = self.random.randrange(len(self.copies))
        shutil.rmtree(self.landing.path)
        shutil.copytree(self.copies[number].path, self.landing.path)
        self.tell(f"copy {number} is put back")
        self.judge.books = deepcopy(self.copies[number].books)
        self.judge.put_back()
        return True

    def put_rows_back(self) -> bool:
        found = [one for one in self.copies if (one.path / "data").exists()]
        if not found or not (self.landing.path / "data").exists():
            return False
        shutil.rmtree(self.landing.path / "data")
        one = self.random.choice(found)
        shutil.copytree(one.path / "data", self.landing.path / "data")
        self.tell(f"the rows of {one.path.name} are put back")
        self.judge.put_back()
        return True

    def put_part_back(self) -> bool:
        name, act = operators.PUT_BACK[self.landing.form]
        if not self.copies or not self.landing.path.exists():
            return False
        if not act(self.landing.path, self.random.choice(self.copies).path, self.random):
            return False
        self.tell(name)
        self.judge.put_back()
        return True

    def _done_by_others(self, name: str, act: operators.Act) -> Callable[[], bool]:
        def done() -> bool:
            if self.landing.folder.info() is None or not act(self.landing.path, self.random):
                return False
            self.tell(f"{name}: {len(self.judge.rows())} rows are left")
            self.judge.touched = True
            if "deleted" not in name:
                self.judge.put_back()
            return True

        return done

    def harm(self) -> bool:
        """A file is gone or cut; what is run then is refused, and it is put back."""
        found = self.landing.named()
        if not found:
            return False
        path = self.random.choice(sorted(found))
        whole, cut = path.read_bytes(), self.landing.form == "parquet" or self.random.random() < 0.5
        self.tell(f"{path} is {'cut' if cut else 'gone'}")
        path.unlink()
        if cut:
            path.write_bytes(whole[:-7])
        outcome = self.landing.archive(self.asked())
        self._told("run", outcome)
        path.write_bytes(whole)
        if outcome.how != REFUSED:
            raise Failure(f"{path} was {'cut' if cut else 'gone'}, and a run did not mind")
        return True

    # ---- the end ----

    def last(self) -> None:
        """All comes back, and runs that may do anything bring the table up to its topic."""
        self.world.come_back()
        self.tell("the end:")
        for _ in range(LAST_RUNS):
            outcome = self.archive(Asked(Allowed(True, True, True)))
            if outcome.how == DONE:
                break
        else:
            raise Failure(f"there is no way on: {outcome.error}")
        again = self.archive(Asked())
        if again.how != DONE or again.done is None or again.done.rows or again.done.batches:
            raise Failure(f"a run on a table that is up to date: {again}")


def play(seed: int, form: str, folder: Path) -> Played:
    """Play a history in a folder that is there and empty."""
    history = History(seed, form, folder, Model())
    with without_spark(), installed(history.hooks, form):
        play_on(history)
    return history.played


def play_on(history: History) -> None:
    """Play it; why it failed is noted in it."""
    try:
        history.play()
    except Exception as error:
        history.played.failure = f"{type(error).__name__}: {error}"
        if not isinstance(error, Failure):
            import traceback

            history.tell(traceback.format_exc())
    history.played.counts.update({f"at: {kind}": times for kind, times in history.hooks.kinds.items()})
