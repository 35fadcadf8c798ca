"""`perseid sim --for 8h`: a campaign on all cores, with its progress, and a report that is on disk as it goes."""

from __future__ import annotations

import gc
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from perseid.sim.campaign import STORY_LINES, Campaign, Chunk, Group
from perseid.sim.models import registry as models
from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import on_core, shortened
from perseid.sim.selection import Selection
from perseid.sim.shrink import Shrinker, Shrunk

RARE_GARBAGE = 500_000, 10, 10
"""Of the collector of cycles: a tenth of the time otherwise."""
SEED_LIMIT_S = 300
"""Of CPU: a seed that takes more does not end. Most take a second; on a busy machine that lasts."""
PROGRESS_S, QUIET_PROGRESS_S = 1.0, 60.0
"""Between two lines of progress on a terminal, and elsewhere."""
BAR = 20
"""Characters of its bar."""
REPORT_S = 20.0
"""Between two reports, but for failures, which are written at once."""
SHRINK_SHARE, MIN_SHRINK_S, MAX_SHRINK_S = 0.1, 60.0, 600.0
"""So much of the whole time a seed may be shrunk; at least and at most so long."""
MAX_SHRUNK = 20
"""Groups of which a seed is shrunk; more are of one cause."""
MAX_DEATHS = 10
"""Of the processes that play: where they die again and again, the night is over."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class SeedDoesNotEnd(Exception):
    """It was played for `SEED_LIMIT_S`."""


class Player:
    """Plays a campaign for so long. `run` gives the exit code of the process."""

    def __init__(self, campaign: Campaign, seconds: float, jobs: int, report: Path | None, *, quiet: bool) -> None:
        """`report`: the file that has it all from the first minute on. `quiet`: only the report and progress."""
        self.campaign, self.jobs, self.report, self.quiet = campaign, jobs, report, quiet
        self.began = time.monotonic()
        self.seconds = seconds
        self.interrupted = False
        self._at_work: dict[Future[tuple[list[Result], float]], Chunk] = {}
        self._to_shrink: list[Group] = []
        self._shrinking: dict[Future[Shrunk], Group] = {}
        self._shrink_s = min(max(SHRINK_SHARE * seconds, MIN_SHRINK_S), MAX_SHRINK_S)
        self._told = self._written = self.began
        self._deaths = 0
        self._long = False
        """A line of progress stands on the terminal."""

    @property
    def left_s(self) -> float:
        return self.began + self.seconds - time.monotonic()

    def run(self) -> int:
        """Play until the time is up and one seed of each group is shrunk, or until Ctrl-C."""
        pool = self._pool()
        self._write()
        try:
            while self.left_s > 0 or self._at_work or self._shrinking or self._to_shrink:
                try:
                    self._submit(pool)
                    futures: list[Future[Any]] = [*self._at_work, *self._shrinking]
                    for future in wait(futures, timeout=PROGRESS_S, return_when=FIRST_COMPLETED).done:
                        self._done(future)
                except BrokenProcessPool:
                    self._died()
                    if self._deaths == MAX_DEATHS:
                        break
                    pool = self._pool()
                self._progress()
        except KeyboardInterrupt:
            self.interrupted = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cost the report, which takes a moment
        finally:
            end(pool)
        self._write()
        return self.code

    def _submit(self, pool: ProcessPoolExecutor) -> None:
        """Half of the processes may shrink while the others go on; what has not begun to be when the time has been up
        for as long as one may take is left as it is."""
        if self.left_s < -self._shrink_s:
            self._to_shrink.clear()
        most = max(1, self.jobs // 2) if self.left_s > 0 else self.jobs
        while self._to_shrink and len(self._shrinking) < most:
            group = self._to_shrink.pop(0)
            seed, number = group.seeds[0]
            lane = self.campaign.lanes[number]
            task = lane.model, lane.with_core, lane.swarm, seed, group.broken, self._shrink_s
            self._shrinking[pool.submit(shrink, *task)] = group
        while self.left_s > 0 and len(self._at_work) + len(self._shrinking) < self.jobs + 1:
            chunk = self.campaign.next()
            self._at_work[pool.submit(play, chunk, time.monotonic() + self.left_s)] = chunk

    def _done(self, future: Future[Any]) -> None:
        """One that has ended; BrokenProcessPool when its process has, too."""
        if future in self._at_work:
            results, took_s = future.result()
            self._add(self._at_work.pop(future), results, took_s)
            return
        shrunk = future.result()
        group = self._shrinking.pop(future)
        group.shrunk = shrunk
        if not self.quiet:
            self._end_line()
            print(f"{group.model}: {group.broken}: seed {shrunk.seed} is shrunk")
            for line in shrunk.lines(self.campaign.shrunk_command(group)):
                print(f"    {line}", flush=True)
        self._write()

    @property
    def code(self) -> int:
        return INTERRUPTED if self.interrupted else 1 if self.campaign.has_failed or self.campaign.missing else 0

    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.jobs, initializer=prepare)

    def _add(self, chunk: Chunk, results: list[Result], took_s: float) -> None:
        groups = self.campaign.add(chunk, results, took_s)
        failed = [result for result in results if result.failure]
        for group, result in zip(groups, failed, strict=True):
            self._tell(chunk, group, result)
            if len(group.seeds) == 1 and len(self.campaign.groups) <= MAX_SHRUNK:
                self._to_shrink.append(group)
        if groups or time.monotonic() - self._written >= REPORT_S:
            self._write()

    def _tell(self, chunk: Chunk, group: Group, result: Result) -> None:
        if self.quiet:
            return
        self._end_line()
        name, first = self.campaign.lanes[chunk.lane].name, result.failure.splitlines()[0]
        print(f"{name}: seed {result.seed} failed after {result.virtual_s:.3f} s: {first}")
        if len(group.seeds) == 1:
            for line in (*result.failure.splitlines()[1:], *shortened(result.story)[-STORY_LINES:]):
                print(f"    {line}")
        print(f"    {self.campaign.command(result.seed, chunk.lane)}   shows all of it", flush=True)

    def _died(self) -> None:
        """A process that plays is gone, and with it what all of them had: each seed of theirs may be the reason."""
        self._deaths += 1
        for group in self._shrinking.values():
            self._end_line()
            print(f"{group.model}: {group.broken}: a process died, perhaps of being shrunk", file=sys.stderr)
        for chunk in self._at_work.values():
            self.campaign.add(chunk, [], 0.0)
            last = chunk.seeds[-1]
            what = f"a process died that may have played one of the seeds {chunk.seeds[0]} to {last}"
            result = Result(chunk.seeds[0], failure=what, broken="the process that plays stays alive")
            self._tell(chunk, self.campaign.fail(chunk.lane, result), result)
        self._at_work.clear()
        self._shrinking.clear()
        self._write()

    # ---- what is told meanwhile ----

    def lines(self) -> list[str]:
        """The report."""
        campaign, took = self.campaign, time.monotonic() - self.began
        state = "interrupted" if self.interrupted else "being played" if self.left_s > 0 else "played"
        if not self.interrupted and (self._to_shrink or self._shrinking):
            state += f" ({len(self._to_shrink) + len(self._shrinking)} to be shrunk)"
        title = f"{campaign.played} seeds {state} in {took:.0f} of {self.seconds:.0f} s by {self.jobs} processes"
        failures = campaign.failures()
        lines = [f"{title}, from {campaign.first} on", "", *campaign.table(), "", *campaign.covered()]
        if failures and not self.campaign.has_failed:
            most = campaign.tolerated_percent
            failures.append(f"at most {most} % of each model: tolerated, and each of them is a defect")
        return [*lines, "", *(["failed", *failures] if failures else ["no seed failed"])]

    def _write(self) -> None:
        """Replace the report: whatever ends this process, a whole one is there."""
        self._written = time.monotonic()
        if self.report is None:
            return
        lines = self.lines()
        for group in self.campaign.ordered():
            if group.first is not None:
                lines += ["", f"{group.model}, seed {group.first.seed}: {group.first.failure}"]
                lines += [f"    {line}" for line in shortened(group.first.story)[-STORY_LINES:]]
        new = self.report.with_name(f"{self.report.name}.new")
        try:
            new.write_text("\n".join(lines) + "\n")
            new.replace(self.report)
        except OSError as error:  # the disk is full: there is room again, or all of it is printed in the end
            self._end_line()
            print(f"perseid sim: {self.report} can't be written: {error}; playing on", file=sys.stderr, flush=True)

    def _progress(self) -> None:
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self._told < (PROGRESS_S if terminal else QUIET_PROGRESS_S):
            return
        self._told = now
        minutes, seconds = divmod(max(0, int(self.left_s)), 60)
        by_model = ", ".join(f"{model} {self.campaign.seeds_of(model)}" for model in self.campaign.counts)
        done = round(BAR * min(1.0, 1 - self.left_s / self.seconds))
        bar = f"[{'#' * done}{'.' * (BAR - done)}] {minutes}:{seconds:02} left"
        told = f"{bar}, {self.campaign.played} seeds ({by_model}), {self.campaign.failed} failed"
        print(f"\r\033[K{told}" if terminal else told, end="" if terminal else "\n", file=sys.stderr, flush=True)
        self._long = terminal

    def _end_line(self) -> None:
        if self._long:
            print(file=sys.stderr, flush=True)
            self._long = False

    def tell(self, *, as_json: bool) -> None:
        """Print all of it, when it is over."""
        self._end_line()
        if as_json:
            took = round(time.monotonic() - self.began, 1)
            print(json.dumps({**self.campaign.summary(), "wall_s": took, "interrupted": self.interrupted}, indent=2))
        else:
            print("\n".join(self.lines()))
            if self.report is not None:
                print(f"report: {self.report}")


# ---- in the processes that play ----


def prepare() -> None:
    """Ctrl-C reaches all processes of a terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _too_long)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    leave_garbage()


def leave_garbage() -> None:
    """Look for cycles once in some seeds: what a seed leaves behind is small beside the time of looking."""
    gc.freeze()
    gc.set_threshold(*RARE_GARBAGE)


def _end_with_parent() -> None:
    """End with the parent process: one that is killed does not end its children, which would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def end(pool: ProcessPoolExecutor) -> None:
    """End its processes, whatever they play: else they would play it to its end, for no one."""
    for process in list((pool._processes or {}).values()):  # noqa: SLF001 (nothing else names them)
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise SeedDoesNotEnd(f"played for {SEED_LIMIT_S} s of CPU")


def play(chunk: Chunk, until: float) -> tuple[list[Result], float]:
    """The results of a chunk's seeds, of the first and of those that begin before `until` (of the monotonic clock), and
    the seconds that it took."""
    results: list[Result] = []
    began = time.monotonic()
    with on_core(chunk.with_core):
        for seed in chunk.seeds:
            if results and time.monotonic() >= until:
                break
            result = guarded(seed, lambda seed=seed: models.play(chunk.model, seed, chunk.selection))  # type: ignore[misc]
            result.begun = {}  # nobody asks, and it is long
            results.append(result)
    return results, time.monotonic() - began


def shrink(model: str, with_core: bool, swarm: bool, seed: int, broken: str, limit_s: float) -> Shrunk:
    """Shrink a seed that breaks a property, for so long at most."""
    until = time.monotonic() + limit_s

    def once(selection: Selection) -> Result:
        return guarded(seed, lambda: models.play(model, seed, selection))

    with on_core(with_core):
        shrunk = Shrinker(once, swarm, broken, lambda: time.monotonic() < until).shrink()
    shrunk.selection = replace(shrunk.selection, begun={})  # nobody asks, and it is long
    shrunk.result.begun = {number: replace(one, state=None) for number, one in shrunk.result.begun.items()}
    return shrunk


def guarded(seed: int, play: Callable[[], Result]) -> Result:
    """A seed that neither ends nor raises is stopped; one that can't even begin has failed."""
    signal.setitimer(signal.ITIMER_PROF, SEED_LIMIT_S)
    try:
        return play()
    except Exception as error:
        return Result(seed, failure="".join(traceback.format_exception(error)), broken=type(error).__name__)
    finally:
        with suppress(SeedDoesNotEnd):
            signal.setitimer(signal.ITIMER_PROF, 0)


def cores() -> int:
    """As many processes as this one may use processors."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
