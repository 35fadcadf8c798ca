"""Seeds of the simulator, as many as are named: `python -m tests.mutants.play MODEL SEED …`.

The first one that fails is named, and ends it with 1. With PERSEID_MUTANTS_OUT each leaves a line of what it executed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from perseid.sim.models.registry import play

from .marks import VARIABLE, Marks
from .plugin import FAILED, OUT, packed, spent


def main(model: str, *seeds: str) -> int:
    """0 if all of them keep all promises."""
    marks = Marks(Path(os.environ[VARIABLE])) if OUT in os.environ else None
    for seed in map(int, seeds):
        if marks:
            marks.take()
        begin = spent()
        failure = play(model, seed).failure
        if marks:
            record = {"test": f"{model} {seed}", "s": round(spent() - begin, 4), "ok": not failure}
            with open(os.environ[OUT], "a") as file:
                file.write(json.dumps(record | {"marks": packed(marks.take())}) + "\n")
        elif failure:
            print(failure)
            if FAILED in os.environ:
                Path(os.environ[FAILED]).write_text(f"{model} {seed}: {failure.splitlines()[0][:150]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
