"""docs/reference/spark-options.md, made from the options of the sources, the sink and the jobs.

    python -m tests.tidy.spark_options     writes it anew
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

from tests.tidy.settings_reference import cell, code

from perseid.base.options import Doc
from perseid.spark import keys, options, sink_options, tls
from perseid.spark.jobs.options import ArchiveOptions, ReplayOptions
from perseid.spark.log import options as log_options
from perseid.spark.option import SparkOption

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md"
COMMAND = "python -m tests.tidy.spark_options"
INTRODUCTION = f"""\
# Options for Spark

<!-- made by: {COMMAND} -->

Options of the source and the sink `perseid`, the source `perseid-log`, and the jobs `archive` and `replay`. The case
of their names does not matter. An unknown option is an error that names the nearest one. How to use
them: [Spark](../spark.md).
"""
HEAD = ("| option | default | takes | effect |", "|---|---|---|---|")
JOB_HEAD = ("| field | flag | default | effect |", "|---|---|---|---|")
Section = tuple[str, str, tuple[SparkOption, ...]]
SECTIONS: tuple[Section, ...] = (
    (
        "Source `perseid`",
        '`spark.read.format("perseid")` and `spark.readStream.format("perseid")`, with the options for '
        "[users and TLS](#users-and-tls) besides.",
        options.OPTIONS,
    ),
    (
        "Sink `perseid`",
        '`df.write.format("perseid")` and `df.writeStream.format("perseid")`, with the options for '
        "[users and TLS](#users-and-tls) besides.",
        sink_options.OPTIONS,
    ),
    ("Users and TLS", "Of the source and the sink.", (*keys.OPTIONS, *tls.OPTIONS)),
    (
        "Source `perseid-log`",
        '`spark.read.format("perseid-log")`: store folders, with no broker running.',
        log_options.OPTIONS,
    ),
)
JOBS = (
    ("Archive", "`ArchiveOptions` of `perseid.spark.jobs.archive`, and `perseid spark archive`.", ArchiveOptions),
    ("Replay", "`ReplayOptions` of `perseid.spark.jobs.replay`, and `perseid spark replay`.", ReplayOptions),
)


def line(*cells: str) -> str:
    return f"| {' | '.join(map(cell, cells))} |"


def rows(found: Iterable[SparkOption]) -> Iterator[str]:
    """A line for each option."""
    for one in found:
        also = f" (also {', '.join(map(code, one.aliases))})" if one.aliases else ""
        yield line(code(one.name) + also, one.default, one.takes, one.effect)


def fields(kind: type) -> Iterator[str]:
    """A line for each field of a job's options."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        (doc,) = (each for each in get_args(hints[field.name]) if isinstance(each, Doc))
        least = f" At least {doc.least}." if doc.least is not None else ""
        yield line(code(field.name), code(flag(field, doc)), default(field), doc.text + least)


def flag(field: dataclasses.Field[object], doc: Doc) -> str:
    """The flag that says something else than the default."""
    name = field.name.replace("_", "-")
    return doc.flags[0] if doc.flags else f"--{'no-' if field.default is True else ''}{name}"


def default(field: dataclasses.Field[object]) -> str:
    """As a reader writes it; "" for none."""
    if field.default is dataclasses.MISSING or field.default in (None, ()):
        return ""
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def whole() -> str:
    """The document as the sources have it now."""
    lines: list[str] = []
    for title, text, found in SECTIONS:
        lines += ["", f"## {title}", text, "", *HEAD, *rows(found)]
    for title, text, kind in JOBS:
        lines += ["", f"## {title}", text, "", *JOB_HEAD, *fields(kind)]
    return INTRODUCTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(whole())
