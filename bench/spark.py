"""What Spark reads and writes a second: store folders, topics, the sink, a long archive.

    python bench/spark.py [--parts log,sink,source,archive] [--records 4000000] [--messages 2000000]
                          [--archive 10000000] [--rounds 3] [--json FILE] [--keep]

`--short` takes a minute or two and says little. All in one session, on two cores. A round does each once, in turn; the
best round counts. What is read goes to Spark's `noop` sink, so that every column of every row is made and nothing is
written. CPU is that of Spark's JVM and its Python processes, which says more than the clock on a machine that others
use too; that of the broker does not count, nor, for the Java consumer, the start and the warming up of its JVM. MB are
those of the log. Goals: issue 8.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import spark_broker
import spark_log
from kept import Kept, clean_commit
from machine import describe_machine

import perseid.spark
from perseid import core

PARTS = ("log", "sink", "source", "archive")
SHORT = {"records": 200_000, "messages": 100_000, "archive": 200_000, "rounds": 1}
MB = 1e6


def run(folder: Path, parts: Iterable[str], given: argparse.Namespace) -> dict[str, Any]:
    """The figures of some parts."""
    config = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    spark = perseid.spark.session("bench", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    done: dict[str, Any] = {"compiled": core.compiled is not None, "bytes": given.bytes}
    try:
        if "log" in parts:
            done["log"] = spark_log.run(spark, folder / "log", given.records, given.bytes, given.rounds)
            show(done, "log")
        if {"sink", "source", "archive"} & set(parts):
            with spark_broker.Broker(folder) as broker:
                if {"sink", "source"} & set(parts):
                    done["sink"] = spark_broker.run_sinks(spark, broker, given.messages, given.rounds)
                    show(done, "sink")
                if "source" in parts:
                    done["source"] = spark_broker.run_sources(spark, broker, given.messages, given.rounds)
                    show(done, "source")
                if "archive" in parts:
                    done["archive"] = spark_broker.run_archive(spark, broker, folder, given.archive)
                    print("\n".join(archive_lines(done["archive"])), flush=True)
    finally:
        spark.stop()
    return done


def table(done: dict[str, Any], part: str) -> list[list[str]]:
    """A part's figures: name, records a second, MB a second, records a CPU-second, seconds, CPU seconds."""
    lines = []
    for name, one in done[part].items():
        mb = f"{one['bytes'] / one['s'] / MB:,.0f}" if "bytes" in one else ""
        per_s, per_cpu = one["records"] / one["s"], one["records"] / max(one["cpu_s"], 1e-9)
        lines.append([name, f"{per_s:,.0f}", mb, f"{per_cpu:,.0f}", f"{one['s']:.2f}", f"{one['cpu_s']:.2f}"])
    return lines


def show(done: dict[str, Any], part: str) -> None:
    """Print a part."""
    print(f"{part:30}{'records/s':>12}{'MB/s':>7}{'rec./CPU-s':>13}{'s':>8}{'CPU s':>8}")
    for name, *cells in table(done, part):
        widths = (12, 7, 13, 8, 8)
        print(f"{name:30}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    sys.stdout.flush()


def archive_lines(one: dict[str, Any]) -> list[str]:
    """What the archive took, in words."""
    lines = [
        f"archive of {one['records']:,} messages in one run: {one['s']:.0f} s,"
        f" {one['records'] / one['s']:,.0f} a second, {one['cpu_s']:.0f} CPU s"
    ]
    for mark in one["marks"]:
        lines.append(
            f"until {mark['part']:4.0%}: JVM at most {mark['jvm_bytes'] / MB:,.0f} MB,"
            f" Python workers together at most {mark['workers_bytes'] / MB:,.0f} MB"
        )
    return lines


def goals(done: dict[str, Any]) -> list[str]:
    """Each goal of the issue that was measured, and whether it is met."""

    def verdict(text: str, value: float, goal: float) -> str:
        return f"{text}: {value:,.2f} (goal ≥ {goal:,.0f}: {'met' if value >= goal else 'missed'})"

    def speed(part: str, name: str, key: str = "s") -> float:
        return float(done[part][name]["records"] / done[part][name][key])

    lines = []
    if "log" in done:
        for more in ("", ", 4 columns"):
            found = speed("log", f"perseid-log{more}") / 1e6
            lines.append(verdict(f"`perseid-log`{more}: million records a second", found, 1))
        ratio = speed("log", "perseid-log") / speed("log", "json lines")
        lines.append(verdict("`perseid-log` beside JSON lines: times as fast", ratio, 1))
    if "source" in done:
        plain = speed("source", "plain Java consumer", "cpu_s")
        for more in ("", ", 4 columns"):
            ratio = speed("source", f"perseid{more}", "cpu_s") / plain
            lines.append(verdict(f"`perseid`{more}: records a CPU-second beside the Java consumer's", ratio, 3))
    if "sink" in done:
        lines.append(verdict("the sink: thousand messages a second", speed("sink", "sink") / 1e3, 100))
    return lines


def page(done: dict[str, Any], command: str) -> str:
    """The part of docs/benchmarks.md."""
    text = [f"## Spark\n`python {command}` on {describe_machine()['date']}.\n"]
    for part in ("log", "source", "sink"):
        if part in done:
            text.append(f"| {part} | records/s | MB/s | records/CPU-s | s | CPU s |")
            text.append("| --- | ---: | ---: | ---: | ---: | ---: |")
            text += ["| " + " | ".join(cells) + " |" for cells in table(done, part)]
            text.append("")
    if "archive" in done:
        text += [f"- {line}" for line in archive_lines(done["archive"])] + [""]
    text += [f"- {line}" for line in goals(done)] + [""]
    text.append(
        f"Records of {done['bytes']} bytes in the log; messages of {spark_broker.VALUE_BYTES} bytes with a tag and a"
        f" key in topics of {spark_broker.QUEUES} queues. All columns unless said otherwise. What it means:"
        " [performance.md](performance.md).\n"
    )
    return "\n".join(text)


def main() -> None:
    """Run it, print it, and write it down."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", default=",".join(PARTS))
    options.add_argument("--records", type=int, default=4_000_000, help="in the log")
    options.add_argument("--bytes", type=int, default=256, help="of one record in the log")
    options.add_argument("--messages", type=int, default=2_000_000, help="in the topics that are read")
    options.add_argument("--archive", type=int, default=10_000_000, help="messages in the topic that is archived")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--short", action="store_true", help="to try it out")
    options.add_argument("--folder", type=Path, help="where the files go: empty, or not there yet; kept afterwards")
    options.add_argument("--json", type=Path, help="the figures, for scripts")
    options.add_argument("--keep", action="store_true", help="for docs/benchmarks.md, by commit (bench/kept.py)")
    given = options.parse_args()
    kept = Kept(clean_commit()) if given.keep else None
    if given.short:
        vars(given).update(SHORT)
    parts = given.parts.split(",")
    with tempfile.TemporaryDirectory(prefix="perseid-bench-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        done = run(folder, parts, given)
    for line in goals(done):
        print(line)
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))
    if kept is not None:
        kept.keep_text("spark", page(done, " ".join(["bench/spark.py", *sys.argv[1:]])))


if __name__ == "__main__":
    main()
