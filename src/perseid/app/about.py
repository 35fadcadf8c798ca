"""Which Perseid runs here: its version, its commit, and whether its core is compiled."""

from __future__ import annotations

import logging
import os
import platform

import perseid
from perseid import core
from perseid.app.commit import commit

log = logging.getLogger("perseid")

COMPILED = "compiled core"
UNCOMPILED = "uncompiled core"
SWITCHED_OFF = f"core switched off by {core.SWITCH}={os.environ.get(core.SWITCH, '')}"


def core_state() -> str:
    """What the core is, in two words; or that it is compiled and not used."""
    if core.compiled is not None:
        return COMPILED
    return SWITCHED_OFF if core.is_compiled else UNCOMPILED


def describe() -> str:
    """What `perseid --version` prints, like `perseid 0.2.0 (commit 1ae3982, compiled core)`."""
    return f"perseid {perseid.__version__} (commit {commit()}, {core_state()})"


def log_start() -> None:
    """A server's first line: what runs, and, as a warning, that it runs without its compiled core."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    state = core_state()
    if state == COMPILED:
        log.info("%s on %s", describe(), python)
    elif state == SWITCHED_OFF:
        log.warning("%s on %s: slower; unset %s to use the compiled core", describe(), python, core.SWITCH)
    else:
        log.warning(
            "%s on %s: slower; install a C compiler (Debian: apt-get install gcc python3-dev), then: "
            "pip install --force-reinstall --no-cache-dir --no-binary perseid perseid (in a checkout: make setup)",
            describe(), python,
        )  # fmt: skip
