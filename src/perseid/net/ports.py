"""Ports for servers that are started as processes of their own."""

import random
import socket
from collections.abc import Sequence
from pathlib import Path

from perseid.base.errors import PerseidError

_LOW = 10_010
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_TOP = 32_768
_TRIES = 200


def free_port(span: Sequence[int] = (0,)) -> int:
    """A port p on loopback with p + s free for every s of `span`.

    It lies below the ports that the system hands out to clients: one of those may be taken as another connection's
    own end before the server, which is yet to start, listens on it. PerseidError when none is found.
    """
    top = max(int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _USUAL_TOP, 2 * _LOW)
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        port = draw.randrange(_LOW, top - 10)
        try:
            for s in span:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + s))
        except OSError:
            continue
        return port
    raise PerseidError(f"no free port found between {_LOW} and {top} in {_TRIES} tries; end what listens there")
