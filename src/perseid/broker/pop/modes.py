"""Which groups pop and which pull (SET_MESSAGE_REQUEST_MODE, 401; the original's MessageRequestModeManager)."""

from __future__ import annotations

from typing import Any

import msgspec

from perseid.base.errors import RequestRefused, StoreError
from perseid.wire import fastjson
from perseid.wire.bodies import SetMessageRequestModeRequestBody
from perseid.wire.body import Body
from perseid.wire.codes import ResponseCode

MODES_PATH = "config/messageRequestMode.json"
PULL, POP = "PULL", "POP"
MAX_MODES = 1_000_000
"""Of all topics and groups."""

Row = SetMessageRequestModeRequestBody


class _Saved(Body):
    """The file's form, which is also the body of code 402."""

    message_request_mode_map: dict[str, dict[str, Row]] = msgspec.field(default_factory=dict)


class RequestModes:
    """By topic and group. `dirty` until the table was saved."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Row]] = {}
        self.dirty = False

    def get(self, topic: str, group: str) -> Row | None:
        return self.rows.get(topic, {}).get(group)

    def put(self, row: Row) -> None:
        """RequestRefused(1) when the table is full."""
        groups = self.rows.setdefault(row.topic, {})
        if row.consumer_group not in groups and sum(map(len, self.rows.values())) >= MAX_MODES:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the broker has {MAX_MODES} modes already")
        groups[row.consumer_group] = row
        self.dirty = True

    def adopt(self, body: Any) -> None:
        """Let the table be a master's (code 402). RequestRefused(1) when the body is none."""
        rows = _Saved.from_json(body).message_request_mode_map
        if rows != self.rows:
            self.rows, self.dirty = rows, True

    def for_slaves(self) -> bytes:
        """The body of code 402."""
        return fastjson.dumps({"messageRequestModeMap": self.rows})

    def to_json(self) -> bytes:
        """The text of config/messageRequestMode.json."""
        return fastjson.pretty({"messageRequestModeMap": self.rows})

    def load(self, text: bytes) -> None:
        """Take up what the file says. StoreError when the text is not such a file."""
        try:
            self.rows = _Saved.from_json(text).message_request_mode_map
        except RequestRefused as refused:
            raise StoreError(f"{MODES_PATH} can't be taken up: {refused.remark}; repair it, or remove it") from None
