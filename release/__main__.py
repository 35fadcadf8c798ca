"""The steps of a release, in order: `python -m release`, or some of them by name. dist/ is what they leave to publish.

sdist     build the source distribution
wheels    a wheel for each Python of this machine
check     metadata, tags, sizes, symbols, and what must not be in them
sbom      a list of all components, in CycloneDX
install   in new environments: install, first message, pytest fixture, uninstall
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from release import build, checks, trial
from release.pythons import Python, installed
from release.report import Report
from release.running import Failed

STEPS: dict[str, Callable[[Report, list[Python]], None]] = {
    "sdist": lambda report, _: build.sdist(report),
    "wheels": build.wheels,
    "check": lambda report, _: checks.check(report),
    "sbom": trial.sbom,
    "install": trial.install,
}


def chosen(pythons: list[Python], names: Sequence[str]) -> list[Python]:
    """Those that are asked for, like 3.12; all, where none is. Failed when one is not on this machine."""
    found = [one for one in pythons if not names or any(f"{one.version}.".startswith(f"{name}.") for name in names)]
    missing = [name for name in names if not any(f"{one.version}.".startswith(f"{name}.") for one in found)]
    if missing or not found:
        here = ", ".join(one.version for one in pythons) or "none"
        raise Failed(f"no CPython {' '.join(missing) or '3.11 or later'} on this machine; there are: {here}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the steps out; the exit code."""
    parser = argparse.ArgumentParser(
        "python -m release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"{', '.join(STEPS)}; all, in this order, by default")
    parser.add_argument("--python", action="append", default=[], metavar="3.N", help="this one alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    asked = parser.parse_args(arguments)
    if unknown := [step for step in asked.steps if step not in STEPS]:
        parser.error(f"no step {', '.join(unknown)}: there are {', '.join(STEPS)}")
    report = Report()
    try:
        pythons = chosen(installed(), asked.python)
        for step in asked.steps or STEPS:
            STEPS[step](report, pythons)
    except Failed as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    finally:
        print(report.to_json() if asked.json else report.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
