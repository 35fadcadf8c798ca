"""Shows a run's figures, and turns them into docs/benchmarks.md and docs/img/bench.png."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from figures import (
    CATCH_UP_COLUMNS,
    CATCH_UP_TEXT,
    COLUMN_TEXT,
    COLUMNS,
    FAIL_COLUMNS,
    FAIL_TEXT,
    GROW_COLUMNS,
    GROW_TEXT,
    LAG_COLUMNS,
    LAG_TEXT,
    OUTAGE_COLUMNS,
    OUTAGE_TEXT,
    QUIET_CORES,
    REFILL_COLUMNS,
    REFILL_TEXT,
    REST_COLUMNS,
    REST_TEXT,
    SWITCH_COLUMNS,
    SWITCH_TEXT,
    Summary,
    catch_up_rows,
    fail_rows,
    goals,
    grow_rows,
    lag_rows,
    load_share,
    load_words,
    others_busy,
    outage_rows,
    refill_rows,
    rest_rows,
    switch_rows,
    table_rows,
    verdicts,
)
from kept import Kept
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rows import Row
from servers import BROKER_CONF, CORE, JAVA, PLAIN, SHARDS, TUNED, UNSYNCED

HERE = Path(__file__).resolve().parent
TEMPLATE, PART, DOCS = HERE / "benchmarks.md.in", HERE / "part.md.in", HERE.parent / "docs"
PART_TITLES = {
    "broker": "One broker",
    "sends": "Sends of all kinds",
    "shapes": "Sends that come at random",
    "kinds": "Timers, transactions, POP and SQL",
    "crowd": "Thousands of connections, topics and groups",
    "secured": "TLS, users and permissions",
    "replication": "Master and slave",
    "dledger": "A DLedger group",
    "failover": "A broker set under controllers",
}
OTHER_PARTS = {
    "growth": '`make bench ROWS=growth ARGS="--full --keep --resume"`',
    "client": "`make bench ROWS=client ARGS=--keep`",
    "spark": "`make bench-spark ARGS=--keep`",
}
"""Parts that other programs measure and keep, and how."""
COLOURS = {JAVA: "#b0553a", CORE: "#2f6f9f", PLAIN: "#9fbdd3", SHARDS: "#5a8f5a", UNSYNCED: "#8a6fae", TUNED: "#c9a227"}
TABLES = {
    "table": (COLUMNS, table_rows, COLUMN_TEXT),
    "fail": (FAIL_COLUMNS, fail_rows, FAIL_TEXT),
    "switch": (SWITCH_COLUMNS, switch_rows, SWITCH_TEXT),
    "outage": (OUTAGE_COLUMNS, outage_rows, OUTAGE_TEXT),
    "grow": (GROW_COLUMNS, grow_rows, GROW_TEXT),
    "catching": (CATCH_UP_COLUMNS, catch_up_rows, CATCH_UP_TEXT),
    "refill": (REFILL_COLUMNS, refill_rows, REFILL_TEXT),
    "lag": (LAG_COLUMNS, lag_rows, LAG_TEXT),
    "rest": (REST_COLUMNS, rest_rows, REST_TEXT),
}
"""Each with its columns, what makes its cells, and what has to be said about it."""
RANGES_WIDTH = 150
"""Columns of a terminal that has room for lowest and highest."""


def show(summary: Summary, console: Console) -> None:
    """The tables, the goals, and what speaks against the figures."""
    ranges = console.width >= RANGES_WIDTH
    for columns, cells, text in TABLES.values():
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


def part_text(summary: Summary, part: str, date: str) -> str:
    """What the page says of the rows that stand together."""
    judged = list(verdicts(summary))
    tables = []
    for columns, cells, text in TABLES.values():
        if found := list(cells(summary, ranges=True)):
            tables.append(f"{markdown_table(columns, found)}\n\n{text}")
    return Template(PART.read_text()).substitute(
        title=PART_TITLES[part],
        part=part,
        date=date,
        tables="\n\n".join(tables),
        met=f"{sum(v.met for v in judged)} of {len(judged)}",
        goals="\n".join(f"- {line}" for line in goals(summary)),
        titles="; ".join(f"**{name}**: {row['title']}" for name, row in summary.items()),
        cold=_cold_words(summary),
        busy=_busy_words(summary),
        load=load_words(summary),
    )


def missing(kept: Kept, names: Sequence[str]) -> list[str]:
    """What this commit lacks for a page of these rows, in words; nothing, when it is all there."""
    rows = [name for name in names if kept.row(name) is None]
    found = [f"{len(rows)} rows are not measured at commit {kept.commit}: {', '.join(rows)}"] if rows else []
    lacking = [part for part in OTHER_PARTS if kept.text(part) is None]
    return found + [f"{part} is not measured at commit {kept.commit}: {OTHER_PARTS[part]}" for part in lacking]


def write_docs(kept: Kept, rows: Sequence[Row]) -> None:
    """The page and its plots, of one commit."""
    parts: dict[str, str | None] = {part: kept.text(part) for part in OTHER_PARTS}
    for part in PART_TITLES:
        names = [row.name for row in rows if row.part == part]
        parts[part] = part_text(kept.summary(names), part, kept.machine(names)["date"]).strip()
    conf = ", ".join(f"`{k}={v}`" for k, v in BROKER_CONF.items())
    machine = kept.machine(row.name for row in rows)
    date = machine.pop("date")
    about = "; ".join(f"{k}: {v}" for k, v in machine.items())
    page = Template(TEMPLATE.read_text()).substitute(parts, conf=conf, commit=kept.commit, date=date, machine=about)
    (DOCS / "benchmarks.md").write_text(page)
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    broker = kept.summary(row.name for row in rows if row.part == "broker")
    plot(broker, {**machine, "date": date}, DOCS / "img" / "bench.png")
    for picture in kept.folder.glob("*.png"):
        shutil.copy(picture, DOCS / "img" / picture.name)


def _cold_words(summary: Summary) -> str:
    """How fast the cold log was read in each row that reads one."""
    rates = [
        f"{server} {figures['read_mb_s'][0]:.0f} MB/s"
        for row in summary.values()
        for server, figures in row["servers"].items()
        if "read_mb_s" in figures
    ]
    return f" The cold log was read with {', '.join(rates)}." if rates else ""


def _busy_words(summary: Summary) -> str:
    """What speaks against figures that were written all the same."""
    busy = others_busy(summary)
    return f" Other processes kept up to {busy:.2f} of the cores busy meanwhile." if busy > QUIET_CORES else ""


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
