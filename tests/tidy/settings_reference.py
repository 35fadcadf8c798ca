"""docs/reference/settings.md, made from the options.

    python tests/tidy/settings_reference.py     writes it anew
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from perseid.app.settings import MEMBER, Described, described

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
COMMAND = "python tests/tidy/settings_reference.py"
INTRODUCTION = f"""\
# Settings

<!-- made by: {COMMAND} -->

All settings of name servers, brokers, controllers and members of DLedger groups. Write them into a properties file
like RocketMQ's, with `key=value` on each line, or a TOML file (`listenPort` or `listen_port`). `-c` names the file:

```
perseid broker -c broker.conf
```

- Keys and defaults are RocketMQ's, except for those that are marked *ours*: RocketMQ has no such key, and ignores it.
- **At run time**: a running node follows a change (`mqadmin updateBrokerConfig` and so on), and writes it to its file.
  Other settings need a restart.
- A value that can't be read, or is outside its limits, stops the start with one line that names file, line and key.
- `perseid settings NAME` prints the same in a terminal, `perseid settings --json` for programs.
  `perseid broker -p -c FILE` prints what a node would run with.

Settings of RocketMQ that stop the start here, or have no effect:
[what works, and what is refused](../compatibility.md#settings).
What is read from the environment: [environment variables](environment.md).
"""
HEAD = ("| key | default | unit | takes | at run time | effect |", "|---|---|---|---|---|---|")
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))
LEAST_SHOWN_MS = 10_000
LEAST_SHOWN_BYTES = 1 << 14


def cell(text: str) -> str:
    """As a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def readable(one: Described) -> str:
    """A large number in larger units, behind it; nothing where it would not come out even."""
    value, unit = one.option.default, one.option.unit
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    units = {"ms": _TIMES, "bytes": _SIZES}.get(unit, ())
    if value < (LEAST_SHOWN_BYTES if unit == "bytes" else LEAST_SHOWN_MS):
        return ""
    return next((f" ({value // size} {name})" for size, name in units if value % size == 0), "")


def row(one: Described) -> str:
    """One setting."""
    option = one.option
    default = option.computed or (code(one.default) + readable(one) if one.default else "empty")
    takes = ", ".join(map(code, option.choices)) if option.choices is not None else one.limits
    takes = "" if option.kind is bool else takes
    key = code(option.key) + (" *ours*" if option.ours else "")
    cells = key, default, option.unit, takes, "yes" if option.live else "restart", option.effect
    return f"| {' | '.join(map(cell, cells))} |"


def tables() -> Iterator[str]:
    """The lines of all tables, a title for each part and each section."""
    for title, parts in groupby(described(), lambda one: one.part.title):
        settings = list(parts)
        nodes = settings[0].part.nodes
        yield from ("", f"## {title}", "")
        if nodes == (MEMBER,):
            yield "In the file of `perseid dledger`."
        elif len(nodes) > 1:
            yield f"In the files of: {', '.join(nodes)}."
        for section, rows in groupby(settings, lambda one: one.option.section):
            yield from ("", f"### {section}", "", *HEAD)
            yield from map(row, rows)


def whole() -> str:
    """The document as the options have it now."""
    return INTRODUCTION + "\n".join(tables()) + "\n"


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(whole())
