"""Settings that a request changes while a node runs: all or none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from perseid.base import config as settings
from perseid.base.errors import ConfigError, RequestRefused
from perseid.base.machine import Buffer
from perseid.wire.codes import ResponseCode

C = TypeVar("C")


def wanted(body: Buffer, black_list: Iterable[str]) -> dict[str, str]:
    """The settings that a body asks for, by their original names. RequestRefused: 1 when it is no text, 16 when one of
    them is in the black list."""
    try:
        found = settings.pairs(str(body, "utf-8"))
    except ValueError:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
    if not found.keys().isdisjoint(black_list):
        raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    return found


def changed(config: C, asked: dict[str, str]) -> C:
    """A configuration with those settings. RequestRefused (1) for a value that doesn't fit."""
    try:
        return settings.changed(config, asked)
    except ConfigError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"nothing was changed; {error}") from None
