"""Transactions: a message is read in its topic only when its producer has said that it is to be committed."""

from __future__ import annotations

from perseid.sim.facts import Sent
from perseid.sim.promises import Violation

READ = "only what is committed is read"


def check_read(sent: Sent, topic: str) -> None:
    """A message is read in its topic."""
    if sent.commit is not None and not (sent.commit and sent.decision_sent):
        what = "rolled back" if sent.decision_sent else "open"
        raise Violation(READ, f"{sent} is {what}, and read in {topic}")


class Decisions:
    """What producers have said about the halves that they sent, by body."""

    def __init__(self) -> None:
        self._said: dict[bytes, bool | None] = {}
        """None: nothing yet. A commit, once it is said, stays one."""

    def opens(self, body: bytes) -> None:
        """A producer is about to send a half."""
        self._said.setdefault(body, None)

    def decides(self, body: bytes, *, commit: bool) -> None:
        """It is about to say what becomes of it."""
        self._said[body] = bool(self._said[body]) or commit

    def check_asked(self, body: bytes) -> None:
        """A broker asks about it."""
        if body not in self._said:
            raise Violation("a question names a half", f"{body[:20]!r}")

    def check_read(self, where: str, body: bytes) -> None:
        """A message stands in its topic: if it is of a transaction, that is said to be committed."""
        said = self._said.get(body, True)
        if not said:
            raise Violation(READ, f"{where}: {body[:20]!r} is {'open' if said is None else 'rolled back'}")
