"""Configuration: RocketMQ's own property files (or TOML) into frozen dataclasses.

A part of the system declares its settings as a frozen dataclass with a default for each field. A field's
key in a file is its name in camelCase (`listen_port` is `listenPort`) unless `option(key=…)` says otherwise,
so that the files and the defaults of the original keep working. TOML may use either spelling; its tables
only group.

The original drops a value that it can't parse and goes on with the default, in silence. Here such a value
stops the start with a `ConfigError` that names file, line and key; where only one number can be meant, it is taken
and told of (`plain_number`). A key that no part knows is handed back (`unknown`), to be reported once; one that asks
for something Perseid lacks is refused (`refuse`). What a running process follows is marked where it is declared
(`option(live=True)`), and so is what people read of a setting: its effect, its unit, its group.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

from perseid.base.errors import ConfigError

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""As a properties file has them: other characters that Python takes for ends of lines are none there."""
_UPPER_AFTER = re.compile(r"_([a-z0-9])")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
JAVA_INT = (1 << 31) - 1
"""The most that an `int` of the original holds."""
_JAVA_LONG = (-(1 << 63), (1 << 63) - 1)
_REMARK_BEHIND = re.compile(r"\s+#.*")
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_ALIKE = 0.75
"""From 0 to 1: a key that is no more like the one that was written is not suggested."""
MAX_KEY = 64
"""Characters of a key for which a nearest one is looked for, or which is told whole."""
MAX_SHOWN = 200
"""Of a value."""
HIDDEN = "******"
"""What is shown of a secret."""
PREFIXES = frozenset(("tls",))
"""TOML's tables only group, but for these: the keys in them have the tables' names before their own, as in
`tls.server.mode`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One `key = value` of a file; `where` is `file:line`."""

    key: str
    value: str
    where: str


class Refusal(NamedTuple):
    """A key whose value must be one of `allowed` (lower case) here, or empty; `why` says what it would do, or what is
    missing. Without `allowed`, the key must not be there; `instead` is the way out."""

    key: str
    allowed: tuple[str, ...]
    why: str
    instead: str = ""

    def way_out(self) -> str:
        """What to do about it, in words."""
        other = f" or set {self.key}={self.allowed[0]}" if self.allowed else ""
        return f"remove the line{other}" + (f"; {self.instead}" if self.instead else "")


class Ignored(NamedTuple):
    """A key of the original's that has no effect here though it has one there; `usual`, in lower case, are the values
    that ask for nothing."""

    key: str
    usual: tuple[str, ...]
    why: str


class Foreign(NamedTuple):
    """What one process does with keys of the original's that it has no option for."""

    refused: tuple[Refusal, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    meaningless: frozenset[str] = frozenset()
    """Of threads, pools and buffers that are not here."""

    @property
    def keys(self) -> frozenset[str]:
        """All of them."""
        return self.meaningless | {one.key for one in self.refused} | {one.key for one in self.ignored}

    def beside(self, other: Foreign) -> Foreign:
        """Of two processes that read one file."""
        return Foreign(
            self.refused + other.refused, self.ignored + other.ignored, self.meaningless | other.meaningless
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one field is written in a file, and what people are told of it."""

    key: str
    field: str
    kind: type
    default: bool | int | float | str
    effect: str = ""
    unit: str = ""
    computed: str = ""
    section: str = ""
    ours: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None
    form: tuple[str, str] | None = None
    important: bool = False
    live: bool = False
    told: str = ""
    secret: bool = False


def option(
    default: Any,
    effect: str = "",
    *,
    unit: str = "",
    computed: str = "",
    section: str = "",
    ours: bool = False,
    key: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    form: tuple[str, str] | None = None,
    important: bool = False,
    live: bool = False,
    told: str = "",
    secret: bool = False,
) -> Any:
    """A dataclass field with its key, the bounds of its value, whether `-m` prints it, and whether a running process
    follows a change.

    `effect` says what the setting does, for the reference (`docs/reference/settings.md`, `perseid settings`); `unit` is
    the value's. `computed` describes a default that is only known when a process starts. `section` begins a group of
    settings, which lasts until the next one. `ours`: RocketMQ has no such key.

    `form` is for texts: a regular expression, and the words for people who did not keep to it. `told` is what people
    hear who change it: what it does not do. `secret`: nobody is shown its value.
    """
    about = {"effect": effect, "unit": unit, "computed": computed, "section": section, "ours": ours}
    bounds = {"low": low, "high": high, "choices": choices, "form": form}
    rest = {"important": important, "live": live, "told": told, "secret": secret}
    return dataclasses.field(default=default, metadata={"key": key, "option": {**about, **bounds, **rest}})


def camel(name: str) -> str:
    """`flush_disk_type` → `flushDiskType`."""
    return _UPPER_AFTER.sub(lambda m: m.group(1).upper(), name)


def options(cls: type) -> Mapping[str, Option]:
    """What a configuration class can read: key → option, in the order of the fields."""
    hints = get_type_hints(cls)
    found: dict[str, Option] = {}
    section = ""
    for f in dataclasses.fields(cls):
        kind = hints[f.name]
        assert kind in (bool, int, float, str), f"{cls.__name__}.{f.name}: bool, int, float or str"
        key = f.metadata.get("key") or camel(f.name)
        rest = dict(f.metadata.get("option", {}))
        section = rest.pop("section", "") or section
        default: Any = f.default
        found[key] = Option(key=key, field=f.name, kind=kind, default=default, section=section, **rest)
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
    for number, raw in enumerate(_LINE.findall(text), 1):
        line = raw.rstrip("\r\n").lstrip(" \t\f")
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


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}." if before or key in PREFIXES else "")
        else:
            yield before + key, value


def _line_of(lines: list[str], key: str) -> int:
    """tomllib keeps no positions: the first line that begins with the key."""
    for name in (key, key.rpartition(".")[2]):
        wanted = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
        found = next((number for number, line in enumerate(lines, 1) if wanted.match(line)), 0)
        if found:
            return found
    return 1


# ---- into dataclasses ----


def build(cls: type[T], settings: Mapping[str, Setting]) -> T:
    """An object of a configuration class: defaults, changed by those settings that are its own."""
    given = {}
    for key, opt in options(cls).items():
        if key in settings:
            setting = settings[key]
            given[opt.field] = _convert(opt, setting.value, setting.where)
    return cls(**given)


def parsed(opt: Option, text: str) -> Any:
    """The value of a text that came in a request. ConfigError when it doesn't fit."""
    return _convert(opt, text, "update")


def unknown(settings: Mapping[str, Setting], *classes: type) -> list[Setting]:
    """The settings that none of the classes knows, in the order of the file."""
    known = {key for cls in classes for key in options(cls)}
    return [setting for key, setting in settings.items() if key not in known]


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that somebody may have meant; None: none is like it."""
    if len(key) > MAX_KEY:
        return None
    names = sorted(known)
    for name in names:
        if name.lower() == key.lower():
            return name
    found = difflib.get_close_matches(key, names, n=1, cutoff=_ALIKE)
    return found[0] if found else None


def shown(text: str) -> str:
    """A value as people are told of it: no longer than `MAX_SHOWN`."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def refuse(settings: Mapping[str, Setting], refusals: Iterable[Refusal]) -> None:
    """ConfigError for the first setting that asks for what Perseid lacks."""
    for one in refusals:
        setting = settings.get(one.key)
        if setting is not None and setting.value and setting.value.lower() not in one.allowed:
            text = f"{setting.where}: {one.key}={shown(setting.value)}: {one.why}; {one.way_out()}"
            raise ConfigError(text)


def plain_number(opt: Option, text: str) -> str:
    """A value in which only one number, true or false can be meant, without the rest: a remark behind it, a fraction of
    zero, a percent sign behind a share. The original ignores such a value."""
    if opt.kind is str:
        return text
    found = _REMARK_BEHIND.sub("", text)
    if opt.kind is int:
        if opt.key.endswith("Ratio"):
            found = found.removesuffix("%")
        whole = _WHOLE.fullmatch(found)
        found = whole.group(1) if whole is not None else found
    return found


def plain_numbers(settings: Mapping[str, Setting], *classes: type) -> tuple[dict[str, Setting], list[Setting]]:
    """The settings with what `plain_number` takes of them, and those of which it left something out."""
    found, meant = dict(settings), []
    for cls in classes:
        for key, opt in options(cls).items():
            setting = found.get(key)
            if setting is not None and (text := plain_number(opt, setting.value)) != setting.value:
                found[key] = Setting(key, text, setting.where)
                meant.append(setting)
    return found, meant


def _convert(opt: Option, text: str, where: str) -> Any:
    def wrong(wanted: str) -> ConfigError:
        return ConfigError(f"{where}: {opt.key}={shown(text)}: {wanted} is wanted")

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


def to_properties(*configs: Any, important: bool = False, secrets: bool = False) -> dict[str, str]:
    """Key → text of all settings (or the important ones) of some configurations, sorted by key. A secret is `HIDDEN`,
    unless they are asked for."""
    found = {}
    for config in configs:
        for key, opt in options(type(config)).items():
            if opt.important or not important:
                value = getattr(config, opt.field)
                found[key] = ("true" if value else "false") if opt.kind is bool else str(value)
                if opt.secret and value and not secrets:
                    found[key] = HIDDEN
    return dict(sorted(found.items()))


def to_text(*configs: Any, important: bool = False) -> str:
    """The same as a properties text: `key=value` lines, as people are shown them."""
    return "".join(f"{key}={value}\n" for key, value in to_properties(*configs, important=important).items())


def to_file(*configs: Any, kept: Mapping[str, str] | None = None) -> str:
    """What reads back as these settings; before them the keys of `kept` that are none of theirs."""
    own = to_properties(*configs, secrets=True)
    others = {key: value for key, value in (kept or {}).items() if key not in own}
    return "".join(_line(key, value) for key, value in (others | own).items())


def edited(text: str, new: Mapping[str, str]) -> str:
    """A properties text in which these keys have new values; all other lines, remarks too, are as they were. A key that
    is there twice gets its value in both places, one that is not there comes last."""
    out, left = [], dict(new)
    for key, raw in _raw_properties(text):
        if key in new:
            out.append(_line(key, new[key]))
            left.pop(key, None)
        else:
            out.append(raw)
    if left and out and not out[-1].endswith("\n"):
        out.append("\n")
    return "".join([*out, *(_line(key, value) for key, value in left.items())])


def _raw_properties(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text with their ends, those of one property together, and its key; "" for blanks and remarks."""
    parts: list[str] = []
    lines: list[str] = []
    for raw in _LINE.findall(text):
        line = raw.rstrip("\r\n").lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            yield "", raw
            continue
        lines.append(raw)
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield _split_property("".join([*parts, line]))[0], "".join(lines)
        parts, lines = [], []
    if lines:
        yield _split_property("".join(parts))[0], "".join(lines)


def _line(key: str, value: str) -> str:
    """A line of a properties file that reads back as this."""
    text = value.replace("\\", "\\\\")
    for char, escape in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        text = text.replace(char, escape)
    if text[:1] == " ":
        text = "\\" + text
    if text[-1:] == " ":
        text = text[:-1] + "\\u0020"
    name = re.sub(r"([\\:=#! ])", r"\\\1", key)
    return f"{name}={text}\n"
