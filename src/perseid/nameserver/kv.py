"""Small settings by namespace and key, kept in one file as the original writes it (kvConfig.json)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perseid.base.errors import ConfigError, RemoteProtocolError, RequestRefused
from perseid.nameserver.limits import MAX_SETTINGS_CHARS, check_total
from perseid.wire import fastjson
from perseid.wire.body import Body

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of order topics: topic → `broker:queues;…`."""


class _File(Body):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVStore:
    """namespace → key → value."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self._chars = 0

    def load(self, raw: bytes | None, path: str) -> None:
        """Take over what the file holds; ConfigError when it can't be understood."""
        if raw is None or not raw.strip():
            return
        try:
            self._table = _File.from_json(raw).config_table
        except (RequestRefused, RemoteProtocolError) as error:
            raise ConfigError(f"{path}: {error}; repair the file or remove it") from None
        self._chars = sum(len(n) + sum(len(k) + len(v) for k, v in t.items()) for n, t in self._table.items())

    def dump(self) -> bytes:
        """The file's text."""
        return fastjson.pretty({"configTable": self._table})

    def put(self, namespace: str, key: str, value: str) -> None:
        """RequestRefused when all settings together would be too long: each change writes them all."""
        old = self._table.get(namespace, {}).get(key)
        more = len(value) - len(old) if old is not None else len(key) + len(value)
        more += len(namespace) if namespace not in self._table else 0
        if more > 0:
            check_total("characters of settings", self._chars, more, MAX_SETTINGS_CHARS)
        self._table.setdefault(namespace, {})[key] = value
        self._chars += more

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Whether there was something to delete."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._chars -= len(key) + len(value)  # the namespace stays
        return value is not None

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All of a namespace; None when it never had a key."""
        return self._table.get(namespace)
