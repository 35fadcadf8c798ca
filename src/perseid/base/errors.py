"""The errors that cross a layer. Each says what happened, where, and what to do."""

from __future__ import annotations


class PerseidError(Exception):
    """The root of all errors that Perseid raises on purpose."""


class LocalProtocolError(PerseidError):
    """We were about to break the protocol ourselves: a defect of the caller."""


class RemoteProtocolError(PerseidError):
    """A peer sent bytes that break the protocol: its connection is closed, nothing else suffers."""


class RequestRefused(PerseidError):
    """A request that is answered with an error code; `remark` is for the people at the other end."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = int(code)
        self.remark = remark


class ConfigError(PerseidError):
    """A configuration that can't be started with; the text names file, line and key."""


class StoreError(PerseidError):
    """The store can't go on as asked."""


class CorruptLog(StoreError):
    """Bytes on disk that can't be what was written; names file and offset."""

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__(f"{path}: at byte {offset}: {why}")
        self.path = path
        self.offset = offset
        self.why = why


class StoreLocked(StoreError):
    """Another process holds the store folder."""
