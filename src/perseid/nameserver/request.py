"""What a handler is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perseid.base.machine import Buffer, ConnId
from perseid.wire.command import Command
from perseid.wire.headers.base import Header


@dataclass(slots=True)
class Request:
    """One request on its way through a handler. `header` is an instance of its route's header class."""

    conn: ConnId
    peer: str
    command: Command
    header: Any = None

    @property
    def body(self) -> Buffer:
        body: Buffer = self.command.body
        return body


@dataclass(slots=True)
class Reply:
    """An answer: code 0 is success."""

    code: int = 0
    header: Header | Mapping[str, str | None] | None = None
    body: Buffer = b""
    remark: str | None = None


OK = Reply()
