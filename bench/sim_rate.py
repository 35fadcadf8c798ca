"""Seeds of the simulator that one core plays a minute, by model: CPU time, so that what else runs counts little.

`python bench/sim_rate.py`; `--swarm` for what campaigns play most; with PERSEID_CORE=off, what plain Python does. The
same seeds play the same on any machine, so two commits can be compared by running it at both, one after the other.
"""

from __future__ import annotations

import argparse
import time

from perseid.cli.campaign import leave_garbage
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.selection import Selection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="of each model")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--model", action="append", choices=list(MODELS), help="all of them without it")
    parser.add_argument("--swarm", action="store_true", help="as swarms: what campaigns play most of the time")
    given = parser.parse_args()
    leave_garbage()
    selection = Selection(swarm=given.swarm)
    print("| model | seeds a minute and core | ms a seed | operations | virtual s |\n|---|---|---|---|---|")
    for model in given.model or MODELS:
        began, operations, virtual_s, failed = time.process_time(), 0, 0.0, []
        for seed in range(given.first, given.first + given.seeds):
            result = MODELS[model].run(seed, Options(selection=selection))
            operations += result.operations
            virtual_s += result.virtual_s
            if result.failure:
                failed.append(seed)
        took = (time.process_time() - began) / given.seeds
        means = f"{operations / given.seeds:.0f} | {virtual_s / given.seeds:.0f}"
        print(f"| {model} | {60 / took:.0f} | {took * 1_000:.0f} | {means} |", flush=True)
        if failed:
            print(f"failed, and so played shorter: {model} {failed}")


if __name__ == "__main__":
    main()
