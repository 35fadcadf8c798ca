"""Plays histories of landings, and tells what occurred in them.

    python -m tests.spark.landing.run [--count 1000] [--seed N] [--formats parquet,delta,iceberg] [--story]

Histories are numbered from the seed on. One that breaks a promise is printed with the command that plays it alone, as a
story. What never occurred in many histories was not tested, and fails too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

from .history import FORMATS, History, Model, Played, play
from .landing import REFUSALS

MEMORY = Path("/dev/shm")
"""Where folders cost no disk, if it is there."""
TOLD_S = 10.0
MAX_FAILURES = 10
ENOUGH = 2_000
"""Histories of a format in which everything has to occur."""
SAID = ("gaps", "rewound", "queues away", "rows")
NOBODY = {"rows of nobody", "rows of others", "a damaged file"}
OF = {"parquet": {*NOBODY, "a file is gone"}, "delta": NOBODY, "iceberg": NOBODY}
"""Refusals that can't come: of a plain folder nobody says which files it has; and nobody adds rows, or damages more."""


def played(seed: int, form: str) -> Played:
    """A history in a folder of its own, which is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="landing-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        return play(seed, form, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def command(one: Played) -> str:
    """What plays it again."""
    return f"python -m tests.spark.landing.run --seed {one.seed} --count 1 --formats {one.form} --story"


def main() -> int:
    """The exit status: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="histories of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--story", action="store_true", help="tell each history")
    asked = parser.parse_args()
    pa.set_cpu_count(1)  # files of a few rows: threads cost more than they bring
    failed: list[Played] = []
    for form in asked.formats.split(","):
        failed += campaign(form, asked.seed, asked.count, story=asked.story)
    return 1 if failed else 0


def expected(form: str) -> set[str]:
    """What has to occur in many histories: each step, each end of a run, each refusal, what runs say."""
    place = Path(tempfile.mkdtemp(prefix="landing-"))
    steps = History(0, form, place, Model()).steps()
    place.rmdir()
    refusals = {f"refused: {name}" for name in REFUSALS if name not in OF.get(form, ())}
    return {*steps, *refusals, "run done", "run refused", "run killed", *(f"said: {name}" for name in SAID)}


def campaign(form: str, first: int, count: int, *, story: bool) -> list[Played]:
    """Play so many; those that failed, and one that says what never occurred."""
    counts: Counter[str] = Counter()
    failed: list[Played] = []
    begun = told = time.monotonic()
    for number in range(count):
        one = played(first + number, form)
        counts.update(one.counts)
        if one.failure:
            failed.append(one)
            print(f"{form} {one.seed}: {one.failure}\n    {command(one)}", flush=True)
        if story:
            print("\n".join(one.story))
        if len(failed) >= MAX_FAILURES:
            break
        if time.monotonic() - told > TOLD_S:
            told = time.monotonic()
            print(f"{form}: {number + 1} of {count} histories, {len(failed)} failed", file=sys.stderr, flush=True)
    took_s = time.monotonic() - begun
    print(f"{form}: histories {first} to {first + number} in {took_s:.0f} s, {len(failed)} failed")
    for name, times in sorted(counts.items()):
        print(f"    {name:48}{times:9,}")
    never = sorted(name for name in expected(form) if not counts[name])
    if never and count >= ENOUGH and not failed:
        failed.append(Played(first, form, failure=f"never occurred: {', '.join(never)}"))
        print(f"{form}: {failed[-1].failure}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
