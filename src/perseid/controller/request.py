"""What a handler is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perseid.base.machine import Buffer, ConnId
from perseid.wire.headers.base import Header


@dataclass(slots=True)
class Request:
    """One request. `header` is an instance of its route's header class; `body` is valid during the call only."""

    conn: ConnId
    peer: str
    code: int
    opaque: int
    is_oneway: bool
    header: Any = None
    body: Buffer = b""


@dataclass(slots=True)
class Reply:
    """An answer: code 0 is success."""

    code: int = 0
    header: Header | None = None
    body: Buffer = b""
    remark: str | None = None


OK = Reply()
