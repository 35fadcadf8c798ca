"""Fuzz one target for a while, or each: `python tests/fuzz/run.py TARGET|all --seconds 60`.

With atheris it is guided by coverage; without it, a seeded loop of mutations. An input that breaks the target
is written into the working folder, as `crash-TARGET-…`, and the process ends with a code other than 0.
"""

import argparse
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from hashlib import sha256
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

try:
    import atheris
except ImportError:
    atheris = None

LIMIT_S = 60
"""Of what a target takes besides its seconds."""
POLL_S = 0.05
BUILD_LIMIT_S = 900


@contextmanager
def instrumented() -> Iterator[None]:
    """What is imported meanwhile tells atheris which branches it takes; without a line for each module."""
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["perseid"]):
        yield


def guided(name: str, seconds: int) -> None:
    """Run under atheris, which ends the process itself."""
    with instrumented():
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


def fork(name: str, options: argparse.Namespace, output: IO[bytes]) -> int:
    """A child that fuzzes one target, with all that is imported already; its process."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        if atheris is not None and not options.plain:
            guided(name, options.seconds)
        os._exit(unguided(name, options.seconds, options.seed))
    except SystemExit:  # atheris found something: its own handler at the end of a process writes the input
        sys.stderr.flush()
        ctypes.CDLL(None).exit(1)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def each(options: argparse.Namespace) -> int:
    """Every target in a process of its own (atheris ends its process), as many at once as there are cores. They are
    imported once, for coverage too, which takes seconds: the children are forks."""
    with TemporaryDirectory() as folder:
        core = build_core(folder)
        if core is not None:
            os.environ["FUZZ_CORE"] = core
        with instrumented() if atheris is not None and not options.plain else nullcontext():
            from targets import TARGETS
        waiting, failed = list(TARGETS), 0
        running: dict[int, tuple[str, IO[bytes], float]] = {}
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                name, output = waiting.pop(0), TemporaryFile()  # noqa: SIM115
                running[fork(name, options, output)] = name, output, time.monotonic() + options.seconds + LIMIT_S
            for child, (name, output, end) in list(running.items()):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    del running[child]
                    failed += tell(name, output, os.waitstatus_to_exitcode(status))
                elif time.monotonic() > end:
                    os.kill(child, signal.SIGKILL)
            threading.Event().wait(POLL_S)
    return 1 if failed else 0


def tell(name: str, output: IO[bytes], code: int) -> bool:
    """Print what came of a target; whether it failed."""
    with output:
        output.seek(0)
        said = output.read().decode(errors="replace")
    last = (said.strip().splitlines() or [""])[-1]
    print(f"{name}: {last}" if code == 0 else f"{name} FAILED (exit code {code})\n{said}", flush=True)
    return code != 0


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
