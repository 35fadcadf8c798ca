"""Fuzz one target for a while, or each: `python tests/fuzz/run.py TARGET|all --seconds 60`.

With atheris it is guided by coverage; without it, a seeded loop of mutations. An input that breaks the target
is written into the working folder, as `crash-TARGET-…`, and the process ends with a code other than 0.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

try:
    import atheris
except ImportError:
    atheris = None

STARTUP_LIMIT_S = 60
BUILD_LIMIT_S = 300


def guided(name: str, seconds: int) -> None:
    """Run under atheris, which ends the process itself."""
    with atheris.instrument_imports(include=["perseid"]):
        from targets import SEEDS, TARGETS
    with TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [sys.argv[0], corpus, f"-max_total_time={seconds}", f"-artifact_prefix=crash-{name}-"]
        atheris.Setup(options, TARGETS[name])
        atheris.Fuzz()


def unguided(name: str, seconds: int, seed: int) -> int:
    """The loop of mutations; 1 when it found something."""
    from mutate import inputs
    from targets import SEEDS, TARGETS

    draw, target = inputs(SEEDS[name], random.Random(seed)), TARGETS[name]
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = draw()
        count += 1
        try:
            target(data)
        except Exception:
            path = Path(f"crash-{name}-{sha256(data).hexdigest()[:16]}")
            path.write_bytes(data)
            print(f"{name}: input {count} (seed {seed}) breaks it; it is in {path}", file=sys.stderr)
            raise
    print(f"{count} inputs in {seconds} s, nothing found (seed {seed})")
    return 0


def build_core(folder: str) -> str | None:
    """The folder of a core compiled with bounds checks; None where there is no compiler."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", folder, "--build-temp", folder]
    environment = os.environ | {"PERSEID_CORE_CHECKS": "1", "PERSEID_CORE_OPTIMIZE": "-O1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    found = list(Path(folder).rglob("batch*.so"))
    print(f"the core with bounds checks: {found[0] if found else 'no compiler: ' + done.stderr[-200:]}", flush=True)
    return str(found[0].parent) if found else None


def each(options: argparse.Namespace) -> int:
    """Every target in a process of its own (atheris ends its process), as many at once as there are cores."""
    from targets import TARGETS

    def run(name: str) -> bool:
        command = [sys.executable, __file__, name, f"--seconds={options.seconds}", f"--seed={options.seed}"]
        done = subprocess.run(
            command + ["--plain"] * options.plain,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=options.seconds + STARTUP_LIMIT_S,
        )
        lines = done.stdout.strip().splitlines() or [""]
        print(f"{name}: {lines[-1]}" if done.returncode == 0 else f"{name} FAILED\n{done.stdout}", flush=True)
        return done.returncode == 0

    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        core = build_core(folder)
        if core is not None:
            os.environ["FUZZ_CORE"] = core
        return 0 if all(list(pool.map(run, TARGETS))) else 1


def main() -> int:
    """Read the arguments and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="its name in targets.py, or `all`")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="of the loop without atheris")
    parser.add_argument("--plain", action="store_true", help="without atheris, even where it is installed")
    options = parser.parse_args()
    if options.target == "all":
        return each(options)
    if atheris is not None and not options.plain:
        guided(options.target, options.seconds)
        return 0
    return unguided(options.target, options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
