"""What clients notice when thousands of others connect over TLS at once.

    python bench/storm.py                  # ours, then Java's; each three times

16 clients of a broker send one message after the other over TLS; their latency is measured without a storm,
and then from the moment that 2,000 others connect until each of these has sent a message, too. Load generators are
processes of their own. Prints p50 and p99 of those who were there before, and how long the storm took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet import HEAP, alone, discard
from guarded import Guarded, Guards
from run import load_command, run_load
from servers import CORE, JAVA, BenchError, data_folder, parts_of, raise_open_files

TOPIC = "bench-storm"
ESTABLISHED: dict[str, float | str] = {"tls": 1, "connections": 16, "window": 1}
FOREVER_S = 600.0
SETTLE_S = 2.0
WARM_S = {JAVA: 20.0, CORE: 2.0}
QUIET_S = 3.0
TIMEOUT_S = 120.0


def storm_of(server: Guarded, number: int) -> float:
    """So many connect at once, send, and go; the seconds that it took."""
    options = {"tls": 1, "connections": 0, "idle": number, "at-once": number, "warm": 0, "seconds": 0}
    began = time.monotonic()
    done = subprocess.run(
        load_command(server, [TOPIC], "send", **options), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise BenchError(f"storm on {server.name}: {done.stderr.strip()}")
    return time.monotonic() - began


def during(server: Guarded, number: int) -> dict[str, Any]:
    """What the established clients measured, and `storm_s`. No number: nothing happens for a while."""
    command = load_command(server, [TOPIC], "send", **ESTABLISHED, warm=FOREVER_S, seconds=FOREVER_S)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        try:
            time.sleep(SETTLE_S)
            load.send_signal(signal.SIGUSR1)
            if number:
                took_s = storm_of(server, number)
            else:
                time.sleep(took_s := QUIET_S)
            load.send_signal(signal.SIGUSR1)
            out, error = load.communicate(timeout=TIMEOUT_S)
        finally:
            load.kill()
    if load.returncode:
        raise BenchError(f"established clients on {server.name}: {error.strip() or out.strip()}")
    found: dict[str, Any] = json.loads(out)
    return found | {"storm_s": took_s}


def rounds(server: Guarded, count: int, connections: int) -> None:
    run_load(server, [TOPIC], "send", **ESTABLISHED, warm=0, seconds=WARM_S[server.name])
    for _ in range(count):
        for number in (0, connections):
            found = during(server, number)
            cells = (
                server.name,
                f"{number:,}" if number else "none",
                f"{found['storm_s']:.2f}" if number else "",
                f"{found['per_second']:,.0f}",
                f"{found['p50_ms']:.2f}",
                f"{found['p99_ms']:.1f}",
                f"{found['server_cores']:.2f}",
                f"{found['other_cores']:.2f}",
            )
            print("| " + " | ".join(cells) + " |", flush=True)


def measure(names: Sequence[str], folder: Path, count: int, connections: int) -> None:
    print("| broker | new connections | within s | sends a second | p50 ms | p99 ms | cores | others' cores |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        server = Guarded(name, *parts_of(name, HEAP), folder / name, {}, Guards(True, False))
        try:
            server.start()
            server.create_topics([TOPIC], range(8))
            with alone(server, ()):
                rounds(server, count, connections)
        finally:
            discard(server)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=(CORE, JAVA))
    options = parser.parse_args()
    raise_open_files()
    folder = data_folder()
    try:
        measure([options.only] if options.only else [CORE, JAVA], folder, options.rounds, options.connections)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
