"""`perseid sim`: many seeds of the simulator, or one seed with its whole trace."""

from __future__ import annotations

import json
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
        Literal["broker", "raft", "group", "ha"],
        typer.Option(
            help="A broker with name server and slaves, a Raft group, brokers in one, or controllers with brokers."
        ),
    ] = "broker",
    story: Annotated[bool, typer.Option(help="With --seed: leave out what only disks do.")] = False,
) -> None:
    """Play brokers, controllers or Raft groups with their clients, in virtual time, under faults drawn from seeds."""
    if seed is not None:
        raise typer.Exit(_replay(model, seed, as_json, story))
    started = time.monotonic()
    total: Counter[str] = Counter()
    failed: list[Result] = []
    operations = faults = played = 0
    for results in _played(model, first, seeds, jobs):
        for result in results:
            played += 1
            operations += result.operations
            faults += result.faults
            total += result.counts
            if result.failure:
                failed.append(result)
                if not as_json:
                    _report(model, result, with_story=len(failed) <= MAX_STORIES)
        if sys.stderr.isatty():
            print(f"\r{played} of {seeds} seeds, {len(failed)} failed", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - started
    missing = coverage.missing(total, MODELS[model][1]) if seeds >= coverage.ENOUGH_SEEDS else []
    if as_json:
        print(json.dumps(_summary(played, failed, operations, faults, took, total, missing), indent=2))
    else:
        print(coverage.table(total, MODELS[model][1]))
        rate = f"{took:.0f} s ({60 * played / took:.0f} seeds a minute)"
        print(f"{played} seeds, {operations} operations, {faults} faults in {rate}")
        for name in missing:
            print(f"never occurred: {name}")
        if failed:
            print(f"{len(failed)} seeds failed: {' '.join(str(result.seed) for result in failed)}")
    raise typer.Exit(1 if failed or missing else 0)


def _played(model: str, first: int, seeds: int, jobs: int) -> Iterator[list[Result]]:
    """The results in the order of the seeds."""
    chunks = [range(at, min(at + CHUNK_SEEDS, first + seeds)) for at in range(first, first + seeds, CHUNK_SEEDS)]
    play = partial(_play, model)
    if jobs == 1:
        yield from map(play, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = iter(chunks)
        futures = [pool.submit(play, chunk) for chunk in islice(waiting, 2 * jobs)]
        while futures:
            yield futures.pop(0).result()
            futures += [pool.submit(play, chunk) for chunk in islice(waiting, 1)]


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


def _summary(
    played: int,
    failed: list[Result],
    operations: int,
    faults: int,
    took: float,
    total: Counter[str],
    missing: list[str],
) -> dict[str, Any]:
    return {
        "seeds": played,
        "operations": operations,
        "faults": faults,
        "seconds": round(took, 1),
        "failed": [_seed(result) for result in failed],
        "never_occurred": missing,
        "counts": dict(sorted(total.items())),
    }
