"""A history of a few steps that somebody chose, with the judge beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perseid.spark.jobs.archive.run import Allowed

from .hooks import Hooks, Killed, installed
from .judge import Judge
from .landing import Asked, Failure, Landing, Outcome, without_spark
from .topic import World

A, B = "t/a/0", "t/a/1"


class Case:
    """A table and a topic of one queue, with a judge."""

    def __init__(self, path: Path, form: str = "parquet") -> None:
        self.world, self.hooks = World(), Hooks()
        self.world.add_queue("a")
        self.landing = Landing(path / "table", form, self.world, self.hooks)
        self.judge = Judge(self.landing)

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Runs are played in here."""
        with without_spark(), installed(self.hooks, self.landing.form):
            yield

    def run(
        self, *, gaps: bool = False, anew: bool = False, accept: bool = False, batch: int | None = None,
        at: dict[int, Callable[[], None]] | None = None,
    ) -> Outcome:  # fmt: skip
        """A run, judged."""
        asked = Asked(Allowed(gaps, anew, accept), batch)
        self.judge.before_run()
        outcome = self.landing.archive(asked, at)
        self.judge.after_run(asked, outcome)
        return outcome

    def compact(self, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        """A compaction, which changes no row."""
        before = self.judge.rows()
        outcome = self.landing.compact(1, at)
        if self.judge.rows() != before:
            raise Failure("a compaction changed rows")
        return outcome

    def rows(self) -> int:
        return self.judge.rows().total()


def kill() -> None:
    """What happens at a point."""
    raise Killed
