"""Host names to addresses, in threads: the resolver of the system may take its time, and can't be stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from threading import Thread

from perseid.base.machine import Resolved

MAX_LOOKUPS = 8
"""Under way at once. What comes meanwhile has no addresses, and is asked for again."""


class Names:
    """The lookups of one driver; `tell` is called from their threads."""

    def __init__(self, tell: Callable[[Resolved], None]) -> None:
        self._tell = tell
        self._under_way = 0

    def look_up(self, names: Sequence[str]) -> Resolved | None:
        """Begin a lookup; Resolved, and nothing is begun, when too many are under way."""
        if self._under_way >= MAX_LOOKUPS:
            return Resolved(dict.fromkeys(names, ()))
        self._under_way += 1
        Thread(target=self._run, args=(tuple(names),), name="perseid-names", daemon=True).start()
        return None

    def _run(self, names: Sequence[str]) -> None:
        self._tell(Resolved({name: resolve(name) for name in names}))

    def ended(self) -> None:
        """A lookup has been told of: the next one may begin."""
        self._under_way -= 1


def resolve(name: str) -> Sequence[str]:
    """The IP addresses of a host; none when the system knows none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))
