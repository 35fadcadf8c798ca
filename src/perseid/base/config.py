"""Configuration: RocketMQ's own property files (or TOML) into frozen dataclasses.

A part of the system declares its settings as a frozen dataclass with a default for each field. A field's
key in a file is its name in camelCase (`listen_port` is `listenPort`) unless `option(key=…)` says otherwise,
so that the files and the defaults of the original keep working. TOML may use either spelling; its tables
only group.

The original drops a value that it can't parse and goes on with the default, in silence. Here such a value
stops the start with a `ConfigError` that names file, line and key. A key that no part knows is handed back
(`unknown`), to be reported once; one that asks for something Perseid lacks is refused (`refuse`).
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

from perseid.base.errors import ConfigError

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?[0-9]+")
_UPPER_AFTER = re.compile(r"_([a-z0-9])")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAVA_LONG = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """One `key = value` of a file; `where` is `file:line`."""

    key: str
    value: str
    where: str


class Refusal(NamedTuple):
    """A key whose value must be one of `allowed` (lower case) here; `why` says what is missing."""

    key: str
    allowed: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Option:
    """How one field is written in a file."""

    key: str
    field: str
    kind: type
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    form: tuple[str, str] | None
    important: bool


def option(
    default: Any,
    *,
    key: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    form: tuple[str, str] | None = None,
    important: bool = False,
) -> Any:
    """A dataclass field with its key, the bounds of its value, and whether `-m` prints it.

    `form` is for texts: a regular expression, and the words for people who did not keep to it.
    """
    metadata = {"key": key, "low": low, "high": high, "choices": choices, "form": form, "important": important}
    return dataclasses.field(default=default, metadata=metadata)


def camel(name: str) -> str:
    """`flush_disk_type` → `flushDiskType`."""
    return _UPPER_AFTER.sub(lambda m: m.group(1).upper(), name)


def options(cls: type) -> Mapping[str, Option]:
    """What a configuration class can read: key → option, in the order of the fields."""
    hints = get_type_hints(cls)
    found = {}
    for f in dataclasses.fields(cls):
        kind = hints[f.name]
        assert kind in (bool, int, float, str), f"{cls.__name__}.{f.name}: bool, int, float or str"
        meta = f.metadata
        key = meta.get("key") or camel(f.name)
        bounds = meta.get("low"), meta.get("high")
        choices, form = meta.get("choices"), meta.get("form")
        found[key] = Option(key, f.name, kind, *bounds, choices, form, meta.get("important", False))
    return found


# ---- reading ----


def read(text: str, name: str) -> dict[str, Setting]:
    """The settings of a file's text by key; `name` is the file's, a `.toml` at its end chooses the format."""
    return _read_toml(text, name) if name.endswith(".toml") else _read_properties(text, name)


def pairs(text: str) -> dict[str, str]:
    """The key and value pairs of a properties text that came in a request's body."""
    return {key: setting.value for key, setting in _read_properties(text, "body").items()}


def _read_properties(text: str, name: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for number, line in _logical_lines(text):
        key, value = _split_property(line)
        if key:
            found[key] = Setting(key, value, f"{name}:{number}")
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without blank ones and comments, those that end in a lone backslash joined with the next."""
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        first = first if parts else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if parts:
        yield first, "".join(parts)


def _split_property(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:]
    return _unescape(line[:at]), _unescape(rest.strip(" \t\f"))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            digits = text[at : at + 4]
            if char == "u" and re.fullmatch("[0-9a-fA-F]{4}", digits):
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)


def _read_toml(text: str, name: str) -> dict[str, Setting]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    lines = text.splitlines()
    found: dict[str, Setting] = {}
    for written, value in _flat(document):
        key = camel(written)
        where = f"{name}:{_line_of(lines, written)}"
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{where}: {key}: a text, number, true or false is wanted")
        if key in found:
            raise ConfigError(f"{where}: {key}: given twice, also at {found[key].where}")
        found[key] = Setting(key, str(value), where)
    return found


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value


def _line_of(lines: list[str], key: str) -> int:
    """tomllib keeps no positions: the first line that begins with the key."""
    wanted = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
    return next((number for number, line in enumerate(lines, 1) if wanted.match(line)), 1)


# ---- into dataclasses ----


def build(cls: type[T], settings: Mapping[str, Setting]) -> T:
    """An object of a configuration class: defaults, changed by those settings that are its own."""
    given = {}
    for key, opt in options(cls).items():
        if key in settings:
            setting = settings[key]
            given[opt.field] = _convert(opt, setting.value, setting.where)
    return cls(**given)


def changed(config: T, new: Mapping[str, str]) -> T:
    """A copy with those of the `new` values whose keys it has; ConfigError for a value that doesn't fit."""
    known = options(type(config))
    values = {known[key].field: _convert(known[key], value, "update") for key, value in new.items() if key in known}
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def unknown(settings: Mapping[str, Setting], *classes: type) -> list[Setting]:
    """The settings that none of the classes knows, in the order of the file."""
    known = {key for cls in classes for key in options(cls)}
    return [setting for key, setting in settings.items() if key not in known]


def refuse(settings: Mapping[str, Setting], refusals: Iterable[Refusal]) -> None:
    """ConfigError for the first setting that asks for what Perseid lacks."""
    for key, allowed, why in refusals:
        setting = settings.get(key)
        if setting is not None and setting.value.lower() not in allowed:
            raise ConfigError(
                f"{setting.where}: {key}={setting.value}: {why}; remove the line or set {key}={allowed[0]}"
            )


def _convert(opt: Option, text: str, where: str) -> Any:
    def wrong(wanted: str) -> ConfigError:
        return ConfigError(f"{where}: {opt.key}={text}: {wanted} is wanted")

    if opt.kind is str:
        if opt.choices is not None and text not in opt.choices:
            raise wrong("one of " + ", ".join(opt.choices))
        if opt.form is not None and not re.fullmatch(opt.form[0], text, re.ASCII):
            raise wrong(opt.form[1])
        return text
    if opt.kind is bool:
        if text.lower() not in ("true", "false"):
            raise wrong("true or false")
        return text.lower() == "true"
    if opt.kind is int:
        if not _INTEGER.fullmatch(text) or not _JAVA_LONG[0] <= int(text) <= _JAVA_LONG[1]:
            raise wrong("a whole number")
        value: float = int(text)
    else:
        try:
            value = float(text)
        except ValueError:
            raise wrong("a number") from None
    if opt.low is not None and not value >= opt.low:
        raise wrong(f"at least {opt.low}")
    if opt.high is not None and not value <= opt.high:
        raise wrong(f"at most {opt.high}")
    return value


# ---- writing ----


def to_properties(*configs: Any, important: bool = False) -> dict[str, str]:
    """Key → text of all settings (or the important ones) of some configurations, sorted by key."""
    found = {}
    for config in configs:
        for key, opt in options(type(config)).items():
            if opt.important or not important:
                value = getattr(config, opt.field)
                found[key] = ("true" if value else "false") if opt.kind is bool else str(value)
    return dict(sorted(found.items()))


def to_text(*configs: Any, important: bool = False, kept: Mapping[str, str] | None = None) -> str:
    """The same as a properties text: `key=value` lines; before them the keys of `kept` that are none of theirs."""
    own = to_properties(*configs, important=important)
    others = {key: value for key, value in (kept or {}).items() if key not in own}
    return "".join(f"{key}={value}\n" for key, value in (others | own).items())
