"""Fuzz one target for a while: `python tests/fuzz/run.py TARGET --seconds 60`.

With atheris it is guided by coverage; without it, a seeded loop of mutations. An input that breaks the target
is written beside this file's working folder, as `crash-TARGET-…`, and the process ends with code 1.
"""

import argparse
import random
import sys
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

try:
    import atheris
except ImportError:
    atheris = None


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
    print(f"{name}: {count} inputs in {seconds} s, nothing found (seed {seed})")
    return 0


def main() -> int:
    """Read the arguments and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1, help="of the loop without atheris")
    parser.add_argument("--plain", action="store_true", help="without atheris, even where it is installed")
    options = parser.parse_args()
    if atheris is not None and not options.plain:
        guided(options.target, options.seconds)
        return 0
    return unguided(options.target, options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
