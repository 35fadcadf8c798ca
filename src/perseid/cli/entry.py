"""Entry point of the `perseid` command: answers Ctrl-C in one line from the first moment on, while it still imports."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command."""
    try:
        from perseid.cli.main import main as perseid

        perseid()
    except KeyboardInterrupt:
        print("perseid: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
