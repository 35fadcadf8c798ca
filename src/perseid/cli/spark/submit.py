"""The application that spark-submit is given: `spark-submit … submit.py archive TOPIC TABLE` is `perseid spark archive
TOPIC TABLE`, on the cluster that spark-submit was told of."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `perseid spark` with the arguments of this process."""
    from perseid.cli.entry import main as perseid

    sys.argv = ["perseid", "spark", *sys.argv[1:]]
    perseid()


if __name__ == "__main__":
    main()
