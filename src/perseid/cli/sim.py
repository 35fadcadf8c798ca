"""`perseid sim`: many seeds of the simulator, or one seed with its whole trace, or as many as there is time for."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perseid import core
from perseid.cli.campaign import INTERRUPTED, Player, cores, end, leave_garbage, prepare
from perseid.cli.flags import flattened
from perseid.sim import coverage
from perseid.sim.campaign import Campaign, range_of
from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import FORMERLY, MODELS, command, play, shortened
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

CHUNK_SEEDS = 20
MAX_STORIES = 5
"""Failing seeds whose trace is printed; all are named."""
STORY_LINES = 60
UNITS_S = {"s": 1, "m": 60, "h": 3600}
MAX_FOR_S = 7 * 24 * 3600
DEFAULT_SEEDS = 200


def register(app: typer.Typer) -> None:
    """Add the command to the `perseid` command."""
    app.command("sim")(sim)


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """Which seeds are played."""

    seeds: Annotated[int | None, typer.Option(help="The number of seeds to run (200).", min=1)] = None
    first: Annotated[int | None, typer.Option(help="The first seed (1).", min=0)] = None
    seed: Annotated[int | None, typer.Option(help="Run this seed and print its whole trace.", min=0)] = None


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """How long is played, whatever the number of seeds."""

    play_for: Annotated[
        str | None,
        typer.Option("--for", help="Run for this time (90s, 10m, 8h), with the compiled core and without it."),
    ] = None
    fresh: Annotated[
        str | None,
        typer.Option(help="With --for: derive the seeds from this text, such as the hash of a commit."),
    ] = None
    report: Annotated[Path | None, typer.Option(help="With --for: write the results to this file while it runs.")] = (
        None
    )
    tolerate: Annotated[
        float, typer.Option(help="With --for: exit code 0 if at most this percentage of a model's seeds failed.", min=0)
    ] = 0.0


@dataclass(frozen=True, slots=True)
class PartOptions:
    """Which part of each seed is played."""

    swarm: Annotated[
        bool, typer.Option("--swarm", help="Let each seed draw which kinds of faults and operations it has.")
    ] = False
    only_faults: Annotated[
        str | None, typer.Option(help="With --seed: keep only these of its faults (3,7-9), or none.")
    ] = None
    only_parts: Annotated[
        str | None,
        typer.Option(help="With --seed: keep only these of its clients and operations (client1,reads), or none."),
    ] = None
    until: Annotated[
        float | None, typer.Option(help="With --seed: the second at which faults end and the last checks begin.", min=0)
    ] = None

    @property
    def is_part(self) -> bool:
        """Something of a seed is left out by name."""
        return self.only_faults is not None or self.only_parts is not None or self.until is not None


@flattened
def sim(
    *,
    which: SeedOptions,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Processes that run seeds (1; with --for: one for each core).", min=1, max=64)
    ] = None,
    model: Annotated[
        Literal["broker", "acting", "raft", "dledger", "ha", "all", "group"] | None,
        typer.Option(
            help="What to simulate: a broker with name server and slaves (broker), the same with acting slaves "
            "(acting), a Raft group (raft), brokers in one (dledger, formerly group), controllers with brokers (ha). "
            "With --for: all."
        ),
    ] = None,
    story: Annotated[bool, typer.Option(help="With --seed: leave out the lines about disks.")] = False,
    campaign: CampaignOptions,
    parts: PartOptions,
) -> None:
    """Simulate brokers, controllers or Raft groups and their clients in virtual time, with faults drawn from seeds."""
    named = None if model is None else FORMERLY.get(model, model)
    if campaign.play_for is not None:
        if which.seed is not None or which.seeds is not None or parts.is_part or parts.swarm:
            what = "--seed, --seeds, --swarm and parts of a seed"
            raise typer.BadParameter(f"--for plays as many seeds as there is time for: leave {what} out")
        raise typer.Exit(_campaign(_seconds(campaign.play_for), named, which.first, campaign, jobs, as_json))
    if campaign.fresh is not None or campaign.report is not None or model == "all":
        raise typer.BadParameter("--fresh, --report and --model all are for a time: add --for 10m")
    if parts.is_part and which.seed is None:
        raise typer.BadParameter("--only-faults, --only-parts and --until are parts of one seed: add --seed N")
    chosen = named or "broker"
    if which.seed is not None:
        raise typer.Exit(_replay(chosen, which.seed, _selection(parts), as_json, story))
    first = 1 if which.first is None else which.first
    tally = Tally(chosen, first, which.seeds or DEFAULT_SEEDS, Selection(swarm=parts.swarm))
    try:
        for result in _played(tally, jobs or 1):
            tally.add(result, quiet=as_json)
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.tell(as_json=as_json)
    raise typer.Exit(tally.code)


def _selection(options: PartOptions) -> Selection:
    only_parts, until = options.only_parts, options.until
    parts = None if only_parts is None else frozenset(only_parts.split(",") if only_parts != "none" else ())
    until_us = None if until is None else round(until * US_PER_S)
    faults = None if options.only_faults is None else _numbers(options.only_faults)
    return Selection(swarm=options.swarm, only_faults=faults, only_parts=parts, until_us=until_us)


def _numbers(text: str) -> frozenset[int]:
    """Of `3,7-9`, or `none`."""
    found: set[int] = set()
    for word in text.split(",") if text != "none" else ():
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", word)
        if match is None:
            raise typer.BadParameter(f"--only-faults {text[:40]}: numbers are needed, as 3,7-9, or none")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def _seconds(text: str) -> float:
    """Of `90s`, `10m`, `8h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None:
        raise typer.BadParameter(f"--for {text[:40]}: a number and s, m or h is needed, as 90s, 10m or 8h")
    seconds = float(found[1]) * UNITS_S[found[2]]
    if not 0 < seconds <= MAX_FOR_S:
        raise typer.BadParameter(f"--for {text[:40]}: at least a moment, and at most 168h")
    return seconds


def _campaign(
    seconds: float, model: str | None, first: int | None, options: CampaignOptions, jobs: int | None, as_json: bool
) -> int:
    fresh, report = options.fresh, options.report
    if first is not None and fresh is not None:
        raise typer.BadParameter("--first and --fresh both name the range: leave one of them out")
    if report is not None and (report.is_dir() or not report.parent.is_dir()):
        raise typer.BadParameter(f"--report {report}: a file in a folder that is there is needed")
    if first is None:
        first = range_of(fresh if fresh is not None else str(time.time_ns()))
    models = list(MODELS) if model in (None, "all") else [str(model)]
    both = (True, False) if core.compiled is not None else (False,)
    campaign = Campaign(models, first, cores=both, tolerated_percent=options.tolerate)
    player = Player(campaign, seconds, jobs or cores(), report, quiet=as_json)
    if not as_json:
        plain = "with the compiled core and without it" if len(both) > 1 else "without the compiled core"
        if report is None:
            plain += " (--report FILE keeps all of it on disk as it goes)"
        print(f"playing {', '.join(models)} for {seconds:.0f} s, {plain}, from seed {first} on", flush=True)
    code = player.run()
    player.tell(as_json=as_json)
    return code


class Tally:
    """The results until now."""

    def __init__(self, model: str, first: int, seeds: int, selection: Selection) -> None:
        self.model, self.first, self.seeds, self.selection = model, first, seeds, selection
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
                _report(self.model, result, self.selection, with_story=len(self.failed) <= MAX_STORIES)
        if sys.stderr.isatty():
            told = f"\r{self.played} of {self.seeds} seeds, {len(self.failed)} failed"
            print(told, end="", file=sys.stderr, flush=True)

    @property
    def expected(self) -> coverage.Expected:
        """Events that are to occur."""
        return MODELS[self.model].wanted(swarms=self.selection.swarm)

    @property
    def missing(self) -> list[str]:
        """Events that should have occurred in so many seeds, and did not."""
        enough = self.played >= coverage.ENOUGH_SEEDS
        return coverage.missing(self.total, self.expected) if enough else []

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
        print(coverage.table(self.total, self.expected))
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


def _played(tally: Tally, jobs: int) -> Iterator[Result]:
    """The results in the order of the seeds."""
    model, first, seeds = tally.model, tally.first, tally.seeds
    if jobs == 1:
        leave_garbage()
        for seed in range(first, first + seeds):
            yield play(model, seed, tally.selection)
        return
    chunks = [range(at, min(at + CHUNK_SEEDS, first + seeds)) for at in range(first, first + seeds, CHUNK_SEEDS)]
    play_all = partial(_play, model, tally.selection)
    with ProcessPoolExecutor(jobs, initializer=prepare) as pool:
        waiting = iter(chunks)
        futures = [pool.submit(play_all, chunk) for chunk in islice(waiting, 2 * jobs)]
        try:
            while futures:
                yield from futures.pop(0).result()
                futures += [pool.submit(play_all, chunk) for chunk in islice(waiting, 1)]
        except BaseException:
            end(pool)
            raise


def _play(model: str, selection: Selection, seeds: range) -> list[Result]:
    results = [play(model, seed, selection) for seed in seeds]
    for result in results:
        result.begun = {}  # nobody asks, and it is long
    return results


def _report(model: str, result: Result, selection: Selection, *, with_story: bool) -> None:
    print(f"seed {result.seed} failed after {result.virtual_s:.3f} s: {result.failure}")
    if with_story:
        for line in result.story[-STORY_LINES:]:
            print(f"    {line}")
    switched_off = core.is_compiled and core.compiled is None
    print(f"    {command(model, result.seed, selection, with_core=not switched_off)}   shows all of it", flush=True)


def _replay(model: str, seed: int, selection: Selection, as_json: bool, story: bool) -> int:
    if not selection.is_whole:
        whole = play(model, seed, Selection(swarm=selection.swarm))
        _check_part(selection, whole)
        selection = selection.knowing(whole.begun, whole.paces)
    result = play(model, seed, selection, story=True)
    if story:
        result.story = shortened(result.story)
    if as_json:
        counts = dict(sorted(result.counts.items()))
        print(json.dumps({**_seed(result), **_parts(result), "counts": counts, "story": result.story}))
    else:
        for line in result.story:
            print(line)
        for number, one in sorted(result.begun.items()):
            print(f"fault {number}: {one.kind}, {one.at_us / US_PER_S:.1f} s")
        print(f"clients and operations: {', '.join(sorted(result.parts))}")
        print(f"seed {seed}: {result.operations} operations, {result.faults} faults, digest {result.digest}")
        print(result.failure or "all promises were kept")
    return 1 if result.failure else 0


def _check_part(selection: Selection, whole: Result) -> None:
    """Parts that are named have to be there."""
    strange = sorted((selection.only_parts or frozenset()) - whole.parts)
    if strange:
        known = ", ".join(sorted(whole.parts))
        raise typer.BadParameter(f"--only-parts {strange[0][:40]}: this seed has {known}")
    lacking = sorted((selection.only_faults or frozenset()) - whole.begun.keys())
    if lacking:
        known = ", ".join(f"{number} {one.kind}" for number, one in sorted(whole.begun.items()))
        raise typer.BadParameter(f"--only-faults {lacking[0]}: the faults that begin in this seed are {known}")


def _parts(result: Result) -> dict[str, Any]:
    faults = [{"number": n, "kind": one.kind, "at_s": one.at_us / US_PER_S} for n, one in sorted(result.begun.items())]
    return {"faults_begun": faults, "parts": sorted(result.parts), "broken": result.broken}


def _seed(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "failure": result.failure,
        "digest": result.digest,
        "operations": result.operations,
        "faults": result.faults,
        "virtual_s": result.virtual_s,
    }
