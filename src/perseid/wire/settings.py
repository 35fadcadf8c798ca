"""Settings that a request changes while a node runs (25, 318, 1009): all or none of them.

A setting may be changed when its option says that a running process follows it (`option(live=True)`); a value that it
has already is no error, so that a whole configuration can be sent back. Whatever else is asked for is named in one
answer, with the nearest key where one is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from perseid.base import config as settings
from perseid.base.config import Foreign, Option
from perseid.base.errors import ConfigError, RequestRefused
from perseid.base.machine import Buffer
from perseid.wire.codes import ResponseCode

Values: TypeAlias = Mapping[str, str]
"""Key → text."""

MAX_BODY = 64 << 10
"""Bytes of a request's settings; all that a broker has are 10 KiB."""
MAX_NAMED = 8
"""Settings that one answer says something of."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a request asks for, in order: each configuration as it would be, and what really changes."""

    configs: tuple[Any, ...]
    values: Values
    """Of those settings that get another value."""
    told: tuple[str, ...]
    """What the changed settings do not do here."""


def wanted(body: Buffer, black_list: Iterable[str]) -> dict[str, str]:
    """The settings that a body asks for, by their original names. RequestRefused: 1 when it is no text or too long, 16
    when one of them is in the black list."""
    if len(body) > MAX_BODY:
        text = f"nothing was changed; {len(body)} bytes of settings, {MAX_BODY} are the most"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    try:
        found = settings.pairs(str(body, "utf-8"))
    except ValueError:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
    if not found.keys().isdisjoint(black_list):
        raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    return found


def change(
    asked: Mapping[str, str], configs: tuple[Any, ...], foreign: Foreign, fixed: Mapping[str, str] | None = None
) -> Change:
    """What the settings that are asked for make of these configurations; `fixed` are others as they are, by key.
    RequestRefused (1), with the names of all that can't be, and why."""
    fixed = fixed or {}
    known = {key: (number, opt) for number, config in enumerate(configs) for key, opt in _options(config).items()}
    new: list[dict[str, Any]] = [{} for _ in configs]
    values, told, wrong = {}, [], []
    for key, text in asked.items():
        if key not in known:
            if key not in fixed:
                wrong.append(_unknown(key, foreign, (*known, *fixed)))
            elif text != fixed[key]:
                wrong.append(f"{key}: needs a restart")
            continue
        number, opt = known[key]
        try:
            value = settings.parsed(opt, text)
        except ConfigError as error:
            wrong.append(str(error).removeprefix("update: "))
            continue
        if value == getattr(configs[number], opt.field):
            continue
        if not opt.live:
            wrong.append(f"{key}: needs a restart")
            continue
        new[number][opt.field] = value
        values[key] = text
        if opt.told:
            told.append(f"{key}: {opt.told}")
    if wrong:
        raise refused(wrong)
    return Change(tuple(replace(c, **v) for c, v in zip(configs, new, strict=True)), values, tuple(told))


def refused(wrong: list[str]) -> RequestRefused:
    """The one answer that says all that was wrong."""
    more = f"; and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    return RequestRefused(ResponseCode.SYSTEM_ERROR, "nothing was changed; " + "; ".join(wrong[:MAX_NAMED]) + more)


def _options(config: Any) -> Mapping[str, Option]:
    return settings.options(type(config))


def _unknown(key: str, foreign: Foreign, known: Iterable[str]) -> str:
    why = {one.key: f"can't be had: {one.why}" for one in foreign.refused}
    why |= {one.key: f"has no effect here: {one.why}" for one in foreign.ignored}
    if key in why:
        return f"{key}: {why[key]}"
    if key in foreign.meaningless:
        return f"{key}: has no meaning here"
    found = settings.nearest(key, known)
    name = key if len(key) <= settings.MAX_KEY else key[: settings.MAX_KEY] + "…"
    return f"{name}: is unknown" + (f", {found} is the nearest" if found else "")
