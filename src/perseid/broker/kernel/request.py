"""What a handler is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perseid.base.machine import Buffer, ConnId
from perseid.wire.command import Command
from perseid.wire.host import NOWHERE, Host

MAIN_LISTENER = "main"
VIP_LISTENER = "vip"
"""listenPort − 2: the same requests, but for those that may take long (broker.md §3)."""


@dataclass(slots=True)
class Connection:
    """A client's, broker's or name server's connection to this node."""

    id: ConnId
    peer: str
    local: str
    listener: str = MAIN_LISTENER
    dialled: str = ""
    born_host: Host = NOWHERE
    packed_host: bytes = b""
    """The born host as a record carries it; 8 bytes for IPv4."""


@dataclass(slots=True)
class Request:
    """One request on its way through a handler. `header` is an instance of its route's header class."""

    conn: Connection
    command: Command
    header: Any
    may_hold: bool = True
    """False when a held pull is looked at again: the answer is given now, whatever it is."""
    may_fetch: bool = True
    """False when a pull has waited for the disk once."""
    user: str | None = None
    """The name of the user that signed it; empty: nobody had to. None: that was not looked at yet."""
    asked: Any = None
    """The header as it came, where `header` is what became of it: a static topic's physical queue."""
    finish: Callable[[Reply], Reply] | None = None
    """What is done with the answer before it leaves."""

    @property
    def body(self) -> Buffer:
        body: Buffer = self.command.body
        return body


@dataclass(slots=True)
class Reply:
    """An answer: code 0 is success. `header` is a header class's instance or a plain mapping."""

    code: int = 0
    header: Any | Mapping[str, str] | None = None
    body: Buffer = b""
    remark: str | None = None
    buffers: Sequence[Buffer] = field(default=())
    """The body in pieces that are sent as they are, without a copy; used in place of `body`."""
