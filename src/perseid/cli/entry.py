"""Entry point of the `perseid` command: answers Ctrl-C in one line from the first moment on, while it still imports.
Words are UTF-8 in any locale."""

from __future__ import annotations

import os
import signal
import sys

UTF8_MODE = "PYTHONUTF8"
OLDEST = (3, 11)
"""As in pyproject.toml: pip refuses an earlier one, a checkout on PYTHONPATH doesn't."""


def main() -> None:
    """Run the command."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"perseid: needs Python 3.11 or later, and this is {found}: make an environment with a later one")
    try:
        _speak_utf8()
        from perseid.cli.main import main as perseid

        perseid()
    except KeyboardInterrupt:
        print("perseid: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _speak_utf8() -> None:
    """Begin anew in Python's UTF-8 mode where the locale is ASCII and that mode was switched off: tags, keys and names
    of files would not be what they are. Exit code 2 for a word that is not UTF-8 at all."""
    if sys.getfilesystemencoding() == "ascii" and os.environ.get(UTF8_MODE) != "1":
        os.environ[UTF8_MODE] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    for word in sys.argv[1:]:
        if any("\udc80" <= letter <= "\udcff" for letter in word):
            print(f"perseid: {word!a} is not UTF-8: write it in UTF-8", file=sys.stderr)
            sys.exit(2)
