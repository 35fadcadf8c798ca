"""Ports for servers that are started as processes of their own."""

import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from perseid.base.errors import PerseidError

_LOW = 10_010
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_TOP = 32_768
_TRIES = 200
PORTS = "PERSEID_PORTS"
"""An environment variable, `LOW-HIGH`: who has several test runs on one machine gives each ports of its own."""
_MOST_GIVEN = 5_000
_given: set[int] = set()
"""Ports that this process was given, and those near them: a server that is down for a moment keeps its own."""


def free_port(span: Sequence[int] = (0,)) -> int:
    """A port p on loopback with p + s free for every s of `span`.

    It lies below the ports that the system hands out to clients: one of those may be taken as another connection's
    own end before the server, which is yet to start, listens on it. A process is never given the same one twice.
    PerseidError when none is found.
    """
    low, top = _bounds()
    draw = random.SystemRandom()
    if len(_given) > _MOST_GIVEN:
        _given.clear()
    for _ in range(_TRIES):
        port = draw.randrange(low, top)
        wanted = {port + s for s in span}
        if wanted & _given or not all(_is_free(one) for one in wanted):
            continue
        _given.update(wanted)
        return port
    raise PerseidError(f"no free port found between {low} and {top} in {_TRIES} tries; end what listens there")


def _bounds() -> tuple[int, int]:
    told = os.environ.get(PORTS)
    if told is None:
        top = max(int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _USUAL_TOP, 2 * _LOW)
        return _LOW, top - 10
    low, dash, high = told.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65_000):
        raise PerseidError(f"{PORTS}={told!r} is no range of ports such as 12000-15000")
    return int(low), int(high)


def _is_free(port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", port))  # no address of this machine has it
    except (OSError, OverflowError):
        return False
    return True
