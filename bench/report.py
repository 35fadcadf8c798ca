"""Shows a run's figures, and turns them into docs/benchmarks.md and docs/img/bench.png."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from figures import (
    COLUMN_TEXT,
    COLUMNS,
    QUIET_CORES,
    REST_COLUMNS,
    REST_TEXT,
    Summary,
    goals,
    load_share,
    load_words,
    others_busy,
    rest_rows,
    table_rows,
    verdicts,
)
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from servers import BROKER_CONF, CORE, JAVA, PLAIN, SHARDS

HERE = Path(__file__).resolve().parent
TEMPLATE, DOCS = HERE / "benchmarks.md.in", HERE.parent / "docs"
COLOURS = {JAVA: "#b0553a", CORE: "#2f6f9f", PLAIN: "#9fbdd3", SHARDS: "#5a8f5a"}
RANGES_WIDTH = 150
"""Columns of a terminal that has room for lowest and highest."""


def show(summary: Summary, console: Console) -> None:
    """The tables, the goals, and what speaks against the figures."""
    ranges = console.width >= RANGES_WIDTH
    tables = ((COLUMNS, table_rows, COLUMN_TEXT), (REST_COLUMNS, rest_rows, REST_TEXT))
    for columns, cells, text in tables:
        if found := list(cells(summary, ranges=ranges)):
            console.print(_table(columns, found))
            console.print(f"[dim]{text}[/dim]")
    for name, row in summary.items():
        console.print(f"[dim]{name}: {row['title']}[/dim]")
    for line in goals(summary):
        console.print(line.replace("**", ""))
    console.print(("[red]" if load_share(summary)[1] else "") + load_words(summary))
    if (busy := others_busy(summary)) > QUIET_CORES:
        console.print(f"[red]other processes kept up to {busy:.2f} cores busy: repeat this on a quiet machine[/red]")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title="Perseid beside Java RocketMQ 5.5.0, medians", box=SIMPLE_HEAD, padding=0)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*cells)
    return table


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * 2 + ["---:"] * (len(columns) - 2), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write_docs(report: dict[str, Any], goals: Sequence[str]) -> None:
    """Replace the page and the plot."""
    summary, machine = report["summary"], report["machine"]
    judged = list(verdicts(summary))
    text = Template(TEMPLATE.read_text()).substitute(
        date=machine["date"],
        command=report["command"],
        warm=f"{report['warm_seconds']:g}",
        table=markdown_table(COLUMNS, list(table_rows(summary, ranges=True))),
        columns=COLUMN_TEXT,
        rest=markdown_table(REST_COLUMNS, list(rest_rows(summary, ranges=True))),
        rest_columns=REST_TEXT,
        met=f"{sum(v.met for v in judged)} of {len(judged)}",
        goals="\n".join(f"- {g}" for g in goals),
        titles="; ".join(f"**{name}**: {row['title']}" for name, row in summary.items()),
        cold=_cold_words(summary),
        load=load_words(summary),
        machine="\n".join(f"- {k}: {v}" for k, v in machine.items() if k != "date"),
        conf=", ".join(f"`{k}={v}`" for k, v in BROKER_CONF.items()),
    )
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    (DOCS / "benchmarks.md").write_text(text)
    plot(summary, machine, DOCS / "img" / "bench.png")


def _cold_words(summary: Summary) -> str:
    """How fast the cold log was read in each row that reads one."""
    rates = [
        f"{server} {figures['read_mb_s'][0]:.0f} MB/s"
        for row in summary.values()
        for server, figures in row["servers"].items()
        if "read_mb_s" in figures
    ]
    return ", ".join(rates)


def plot(summary: Summary, machine: dict[str, str], path: Path) -> None:
    """Three panels, the rows with a load side by side: CPU a message, messages a second, p99."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("server_cpu_us", 1.0, "CPU a message, µs (less is better)"),
        ("per_second", 1e-3, "thousand messages a second"),
        ("p99_ms", 1.0, "latency p99, ms (less is better)"),
    )
    rows = {
        name: row["servers"] for name, row in summary.items() if any("per_second" in f for f in row["servers"].values())
    }
    figure, axes = pyplot.subplots(3, 1, figsize=(max(11, 1.1 * len(rows)), 12), layout="constrained")
    for axis, (key, scale, title) in zip(axes, panels, strict=True):
        for server, colour in COLOURS.items():
            found = [(x, servers) for x, servers in enumerate(rows.values()) if server in servers]
            values = [[v * scale for v in servers[server][key]] for _, servers in found]
            at = [x + (list(servers).index(server) - (len(servers) - 1) / 2) * 0.28 for x, servers in found]
            errors = [[m - low for m, low, _ in values], [high - m for m, _, high in values]]
            bars = axis.bar(at, [m for m, _, _ in values], 0.26, yerr=errors, color=colour, label=server, capsize=2)
            axis.bar_label(bars, fmt="{:,.3g}", fontsize=6, padding=2)
        axis.set_yscale("log")
        axis.set_ymargin(0.15)
        axis.set_xticks(range(len(rows)), list(rows), rotation=20)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.suptitle(f"Perseid beside Java RocketMQ 5.5.0, {machine['cores']} cores, {machine['date']}", fontsize=11)
    figure.savefig(path, dpi=110)
