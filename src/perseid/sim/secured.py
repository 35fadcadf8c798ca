"""TLS in the simulator: servers take both, clients dial with it more often than not.

Keys and random bytes of TLS are OpenSSL's own, and differ in each run; their lengths do not (TLS 1.3, Ed25519, no
tickets). So what is sealed is cut, delayed and lost in the same places in each run of a seed, and what comes out is the
same. The trace has the plain bytes.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from functools import cache

from perseid.disk.lent import lent
from perseid.security.certificates import Terms, Wanted, client_context, context_of, self_made
from perseid.security.tls import ClientSide, Mode, ServerSide, Tls
from perseid.sim.scheduler import Stream

OF_SEEDS, SECURED = 24, 11
"""Seeds that leave this remainder have TLS, none of them pinned by then: the others are what they were without it."""
DIALS = 0.7
"""Of connections, that are dialled with TLS."""
NAME = "sim"
SINCE, DAYS = datetime(2020, 1, 1, tzinfo=UTC), 36_500


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    made = self_made(Wanted(NAME, SINCE, (NAME,), DAYS, stable=True))
    with lent(made.certificate) as path:
        return context_of(made), client_context(trust=path, terms=Terms(["TLSv1.3"]))


class Secured:
    """The TLS of a run's connections."""

    def __init__(self, random: Stream) -> None:
        self._random = random
        self._server = ServerSide(Mode.PERMISSIVE, lambda: _contexts()[0])
        self._client = ClientSide(lambda: _contexts()[1])

    def ends(self) -> tuple[Tls | None, Tls]:
        """Of a new connection: the one that dials, and the one that accepts."""
        dialled = Tls.dialled(self._client, f"{NAME}:0") if self._random.random() < DIALS else None
        return dialled, Tls.accepted(self._server)


def has_tls(seed: int) -> bool:
    """Whether a seed's connections may use TLS."""
    return seed % OF_SEEDS == SECURED
