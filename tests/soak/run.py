"""The real thing under faults: processes in network namespaces, on small disks of their own, killed, stopped, cut off,
with clocks that jump and disks that are slow or full; `perseid verify` holds them to each acknowledgement.

    python -m tests.soak.run --for 60m --seed 7 --modes alone,classic,controller,dledger

needs root, the `ip` command and a C compiler. A mode gets its share of the time; a table at the end says how often each
fault was, and what became of what was acknowledged. Exit code 1: a promise was broken. What is drawn is told by
the seed; when it happens is told by the machine, so a failure is not replayed by it: the logs stay (`--keep`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from netns import PERSEID, Star  # noqa: E402

from .modes import MODES, SPACES, Mode  # noqa: E402
from .nodes import Cluster, Node, pause, shim  # noqa: E402

UNITS_S = {"s": 1, "m": 60, "h": 3600}
RATE = 100
PAUSE_S = (2.0, 8.0)
LASTS_S = (0.5, 9.0)
SETTLE_S = 40
QUIET_S = 20.0
"""Before the end nothing happens any more, so that what is sent last is acknowledged."""
CHECK_S = 240.0
CLOCK_MS = (-90_000, 90_000)
SLOW_US = (20_000, 900_000)
BROKEN = ("lost", "moved", "reordered", "invented")


class Faults:
    """Draws faults, and heals each."""

    def __init__(self, cluster: Cluster, mode: Mode, random: Random) -> None:
        self.cluster, self.mode, self.random = cluster, mode, random
        self.counts: Counter[str] = Counter()

    def one(self) -> None:
        """Something happens to a node, for a while."""
        kind, name = self.random.choice(self.mode.faults), self.random.choice(self.mode.victims)
        node, lasts_s = self.cluster.nodes[name], self.random.uniform(*LASTS_S)
        self.counts[kind] += 1
        print(f"{time.strftime('%H:%M:%S')}  {kind}: {name}, {lasts_s:.1f} s", flush=True)
        self._begin(kind, node)
        pause(lasts_s)
        self._end(kind, node)

    def _begin(self, kind: str, node: Node) -> None:
        if kind == "kill":
            node.kill()
        elif kind == "restart":
            node.stop()
        elif kind == "pause":
            node.signal(signal.SIGSTOP)
        elif kind == "clock":
            node.shift_clock(self.random.randint(*CLOCK_MS))
        elif kind == "slow disk":
            node.slow_disk(self.random.randint(*SLOW_US))
        elif kind == "full disk":
            node.fill_disk(full=True)
        else:
            self._cut(node, both=kind == "cut")

    def _cut(self, node: Node, *, both: bool) -> None:
        star = self.cluster.star
        space = next(name for name, made in star.names.items() if made == node.space)
        others = [name for name in star.names if name != space]
        other = self.random.choice(others)
        ways = [(space, other), (other, space)]
        for sender, receiver in ways if both else [self.random.choice(ways)]:
            star.lose(sender, receiver)

    def _end(self, kind: str, node: Node) -> None:
        if kind.startswith("cut"):
            self.cluster.star.heal()
        node.heal()
        self.revive()

    def revive(self) -> None:
        """What does not run is started; what ended by itself is counted: a full disk may do that."""
        for node in self.cluster.nodes.values():
            if not node.look():
                node.heal()
                node.start()


def soak(mode: Mode, seconds: float, seed: int, home: Path) -> dict[str, Any]:
    """One mode for so long: what became of what was acknowledged, and what happened."""
    with ExitStack() as undo:
        star = Star(SPACES, undo)
        cluster = Cluster(star, home, shim(home), undo)
        mode.build(cluster)
        for node in cluster.nodes.values():
            node.start()
        client = ["ip", "netns", "exec", star.names["client"], *PERSEID]
        told = ["-n", cluster.namesrv, "--json"]
        command = [*client, "verify", "run", "soak", "--rate", str(RATE), "--seconds", str(int(seconds)),
                   "--settle", str(SETTLE_S), "--ledger", str(home / "ledger"), *told]  # fmt: skip
        began = time.monotonic()
        with (home / "verify").open("wb") as errors:
            verify = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=_environment())
            undo.callback(verify.kill)
            faults = Faults(cluster, mode, Random(f"{seed} {mode.name}"))
            while time.monotonic() < began + seconds - QUIET_S and verify.poll() is None:
                pause(faults.random.uniform(*PAUSE_S))
                faults.one()
            out, _ = verify.communicate(timeout=seconds + CHECK_S)
        if not out:
            raise RuntimeError(f"{mode.name}: perseid verify said nothing: {(home / 'verify').read_text()[-2000:]}")
        findings: dict[str, Any] = json.loads(out)
        ends = {name: node.ends for name, node in cluster.nodes.items() if node.ends}
        return {"mode": mode.name, "faults": faults.counts, "ends": ends, **findings}


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def seconds_of(text: str) -> float:
    """90s, 10m, 1h."""
    match = re.fullmatch(r"(\d+)([smh])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 90s, 10m or 1h")
    return int(match[1]) * UNITS_S[match[2]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="time", type=seconds_of, default=3600.0, help="for all modes together (1h)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--faults", help="only these kinds, with commas between them")
    parser.add_argument("--keep", type=Path, help="a folder that is made, for logs and ledgers")
    options = parser.parse_args()
    modes = [MODES[name] for name in options.modes.split(",")]
    if options.faults:
        modes = [replace(mode, faults=tuple(options.faults.split(","))) for mode in modes]
    bad, rows = False, []
    print(f"seed {options.seed}, {options.time / len(modes):.0f} s a mode", flush=True)
    with TemporaryDirectory(prefix="soak-") as temporary:
        base = options.keep or Path(temporary)
        for mode in modes:
            home = base / mode.name
            home.mkdir(parents=True)
            found = soak(mode, options.time / len(modes), options.seed, home)
            rows.append(found)
            bad |= not found["kept"]
            for kind, lines in found["named"].items():
                print(f"{mode.name}: {kind}: {lines}", flush=True)
    print(f"{'mode':12}{'acknowledged':>13}" + "".join(f"{name:>11}" for name in BROKEN) + "  longest gap  faults")
    for row in rows:
        numbers = "".join(f"{row[name]:>11}" for name in BROKEN)
        faults = ", ".join(f"{kind} {times}" for kind, times in sorted(row["faults"].items()))
        gap = row["sender"]["longestGapMs"] / 1000
        print(f"{row['mode']:12}{row['acknowledged']:>13}{numbers}  {gap:>9.1f} s  {faults}")
        if row["ends"]:
            print(f"{'':12}ended by themselves, and were started again: {row['ends']}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
