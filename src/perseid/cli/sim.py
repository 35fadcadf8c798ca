"""`perseid sim`: many seeds of the simulator, or one seed with its whole trace."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import typer

from perseid.sim import broker_group, coverage, group_run, ha_run
from perseid.sim.run import Result, run

MODELS: dict[str, tuple[Callable[..., Result], coverage.Expected]] = {
    "broker": (run, coverage.EXPECTED),
    "acting": (partial(run, acting=True), coverage.ACTING_EXPECTED),
    "raft": (group_run.run, coverage.RAFT_EXPECTED),
    "group": (broker_group.run, coverage.GROUP_EXPECTED),
    "ha": (ha_run.run, coverage.HA_EXPECTED),
}
"""What is played, and what a long run has to have met."""
MINOR = (" synced ", " saved ", " debug: ")
"""Words of lines that a story leaves out."""
CHUNK_SEEDS = 20
MAX_STORIES = 5
"""Failing seeds whose trace is printed; all are named."""
STORY_LINES = 60
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def register(app: typer.Typer) -> None:
    """Add the command to the `perseid` command."""
    app.command("sim")(sim)


def sim(
    seeds: Annotated[int, typer.Option(help="How many seeds to play.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="The first of them.", min=0)] = 1,
    seed: Annotated[int | None, typer.Option(help="Play this one and print its whole trace.", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes that play.", min=1, max=64)] = 1,
    model: Annotated[
        Literal["broker", "acting", "raft", "group", "ha"],
        typer.Option(
            help="A broker with name server and slaves, the same with slaves that act, a Raft group, brokers in one, "
            "or controllers with brokers."
        ),
    ] = "broker",
    story: Annotated[bool, typer.Option(help="With --seed: leave out what only disks do.")] = False,
) -> None:
    """Play brokers, controllers or Raft groups with their clients, in virtual time, under faults drawn from seeds."""
    if seed is not None:
        raise typer.Exit(_replay(model, seed, as_json, story))
    tally = Tally(model, first, seeds)
    try:
        for result in _played(model, first, seeds, jobs):
            tally.add(result, quiet=as_json)
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.tell(as_json=as_json)
    raise typer.Exit(tally.code)


class Tally:
    """What was played until now."""

    def __init__(self, model: str, first: int, seeds: int) -> None:
        self.model, self.first, self.seeds = model, first, seeds
        self.started = time.monotonic()
        self.total: Counter[str] = Counter()
        self.failed: list[Result] = []
        self.played = self.operations = self.faults = 0
        self.interrupted = False

    def add(self, result: Result, *, quiet: bool) -> None:
        """Count one; tell of it at once when it failed."""
        self.played += 1
        self.operations += result.operations
        self.faults += result.faults
        self.total += result.counts
        if result.failure:
            self.failed.append(result)
            if not quiet:
                _report(self.model, result, with_story=len(self.failed) <= MAX_STORIES)
        if sys.stderr.isatty():
            told = f"\r{self.played} of {self.seeds} seeds, {len(self.failed)} failed"
            print(told, end="", file=sys.stderr, flush=True)

    @property
    def missing(self) -> list[str]:
        """What should have occurred in so many seeds, and did not."""
        enough = self.played >= coverage.ENOUGH_SEEDS
        return coverage.missing(self.total, MODELS[self.model][1]) if enough else []

    @property
    def code(self) -> int:
        """Of the process."""
        return INTERRUPTED if self.interrupted else 1 if self.failed or self.missing else 0

    def tell(self, *, as_json: bool) -> None:
        """Print all of it."""
        took = time.monotonic() - self.started
        if as_json:
            print(json.dumps(self._summary(took), indent=2))
            return
        print(coverage.table(self.total, MODELS[self.model][1]))
        rate = f"{took:.0f} s ({60 * self.played / took:.0f} seeds a minute)"
        print(f"{self.played} seeds, {self.operations} operations, {self.faults} faults in {rate}")
        for name in self.missing:
            print(f"never occurred: {name}")
        if self.failed:
            print(f"{len(self.failed)} seeds failed: {' '.join(str(result.seed) for result in self.failed)}")
        if self.interrupted:
            print(f"interrupted: {self.played} of {self.seeds} seeds, from {self.first} on, were played")

    def _summary(self, took: float) -> dict[str, Any]:
        return {
            "seeds": self.played,
            "operations": self.operations,
            "faults": self.faults,
            "seconds": round(took, 1),
            "failed": [_seed(result) for result in self.failed],
            "never_occurred": self.missing,
            "interrupted": self.interrupted,
            "counts": dict(sorted(self.total.items())),
        }


def _played(model: str, first: int, seeds: int, jobs: int) -> Iterator[Result]:
    """The results in the order of the seeds."""
    if jobs == 1:
        yield from map(MODELS[model][0], range(first, first + seeds))
        return
    chunks = [range(at, min(at + CHUNK_SEEDS, first + seeds)) for at in range(first, first + seeds, CHUNK_SEEDS)]
    play = partial(_play, model)
    with ProcessPoolExecutor(jobs, initializer=_leave_interrupts) as pool:
        waiting = iter(chunks)
        futures = [pool.submit(play, chunk) for chunk in islice(waiting, 2 * jobs)]
        try:
            while futures:
                yield from futures.pop(0).result()
                futures += [pool.submit(play, chunk) for chunk in islice(waiting, 1)]
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()  # what it plays would be played to its end, and nobody would hear of it
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _leave_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _play(model: str, seeds: range) -> list[Result]:
    return [MODELS[model][0](seed) for seed in seeds]


def _command(model: str, seed: int) -> str:
    return f"perseid sim --seed {seed}" + ("" if model == "broker" else f" --model {model}")


def _report(model: str, result: Result, *, with_story: bool) -> None:
    print(f"seed {result.seed} failed after {result.virtual_s:.3f} s: {result.failure}")
    if with_story:
        for line in result.story[-STORY_LINES:]:
            print(f"    {line}")
    print(f"    {_command(model, result.seed)}   shows all of it", flush=True)


def _replay(model: str, seed: int, as_json: bool, story: bool) -> int:
    result = MODELS[model][0](seed, story=True)
    if story:
        result.story = [line for line in result.story if not any(words in line for words in MINOR)]
    if as_json:
        print(json.dumps({**_seed(result), "counts": dict(sorted(result.counts.items())), "story": result.story}))
    else:
        for line in result.story:
            print(line)
        print(f"seed {seed}: {result.operations} operations, {result.faults} faults, digest {result.digest}")
        print(result.failure or "all promises were kept")
    return 1 if result.failure else 0


def _seed(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "failure": result.failure,
        "digest": result.digest,
        "operations": result.operations,
        "faults": result.faults,
        "virtual_s": result.virtual_s,
    }
