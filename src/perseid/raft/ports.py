"""What the parts of a member ask of the member that they are parts of; each adds what it needs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from perseid.base.machine import Buffer, Millis
from perseid.wire.dledger import DLedgerRequest, Message

M = TypeVar("M", bound=Message)


class Noting(Protocol):
    """Keeps the member's notes."""

    def note(self, level: str, text: str) -> None: ...


class Asking(Noting, Protocol):
    """Asks other members."""

    def call(
        self,
        peer: str,
        code: DLedgerRequest,
        request: Message | Buffer,
        kind: type[M],
        answered: Callable[[M | None, Millis], None],
    ) -> None:
        """`answered` gets the member's response, or None when there is none that can be read."""
