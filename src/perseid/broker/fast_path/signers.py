"""Who may go the fast way where requests have to be signed: users, as the core knows them.

The core checks a signature by itself; what its signer may do is asked here, once for each user, address and topic.
The gate (`access/gate.py`) is the reference: what it would refuse is left to it, and so is whatever it was not asked
yet. All is forgotten with each change of users or policies.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from perseid.broker.kernel.request import Request
from perseid.security.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY
from perseid.wire.codes import RequestCode
from perseid.wire.headers.base import Header

if TYPE_CHECKING:
    from perseid.broker.access.gate import Gate
    from perseid.broker.kernel.dispatch import Dispatch
    from perseid.broker.kernel.request import Connection
    from perseid.core import Core
    from perseid.core.signers import Signer
    from perseid.wire.command import Command

CODES = (
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE,
)  # fmt: skip
"""Of the requests that go the fast way."""
MAX_PERMITS = 10_000
"""Of one broker. When there are more, all are learnt anew."""
NOBODY: dict[bytes, Signer] = {}
_NUMBERS = "commitOffset", "queueOffset"
"""The signed fields of a pull that change from one to the next."""


class Signers:
    """Those of one broker."""

    def __init__(self, gate: Gate, dispatch: Dispatch, compiled: Core) -> None:
        self._gate = gate
        self._dispatch = dispatch
        self._make = compiled.signers.Signer
        self._number = gate.number
        self._by_host: dict[str, dict[bytes, Signer]] = {}
        self._permits = 0

    def at(self, conn: Connection) -> dict[bytes, Signer]:
        """Those at the other end of a connection, by name, who may do something."""
        if self._number != self._gate.number:
            self._forget()
        return self._by_host.get(conn.peer.rpartition(":")[0], NOBODY)

    def learn(self, conn: Connection, command: Command, header: Header, permit: Hashable) -> bool:
        """Make it known that who is said to have signed a request may do what it asks for, which is called `permit`.
        False when that is known, or not so."""
        name = command.ext.get(ACCESS_KEY) or ""
        signer = self.at(conn).get(name.encode(errors="replace"))
        if not name.isascii() or (signer is not None and permit in signer.permits):
            return False
        user = self._gate.known(Request(conn, command, header), self._dispatch.routes[command.code])
        if user is None:
            return False
        if self._permits >= MAX_PERMITS:
            self._forget()
            signer = None
        if signer is None:
            signer = self._make(name.encode(), user.secret.encode("utf-8", "surrogatepass"))
            self._by_host.setdefault(conn.peer.rpartition(":")[0], {})[signer.name] = signer
        signer.permits.add(permit)
        self._permits += 1
        return True

    def _forget(self) -> None:
        self._number = self._gate.number
        self._by_host = {}
        self._permits = 0


def text_of_pull(command: Command) -> bytes | None:
    """What a pull's signature is of, with places for commit and queue offset; None when only the gate knows."""
    ext = command.ext
    if UNIQUE_KEY_QUERY in ext:
        return None
    values = ["%d" if name in _NUMBERS else ext[name].replace("%", "%%") for name in sorted(ext) if name != SIGNATURE]
    return "".join(values).encode()
