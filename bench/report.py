"""Turns a run's figures into docs/benchmarks.md and docs/img/bench.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from servers import BROKER_CONF, CORE, JAVA, PLAIN

HERE = Path(__file__).resolve().parent
TEMPLATE, DOCS = HERE / "benchmarks.md.in", HERE.parent / "docs"
COLOURS = {JAVA: "#b0553a", CORE: "#2f6f9f", PLAIN: "#9fbdd3"}


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * 2 + ["---:"] * (len(columns) - 2), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write_docs(
    report: dict[str, Any],
    columns: Sequence[str],
    column_text: str,
    rows: Sequence[Sequence[str]],
    goals: Sequence[str],
) -> None:
    """Replace the page and the plot."""
    summary, machine = report["summary"], report["machine"]
    last = list(summary.values())[-1]["servers"]
    template = Template(TEMPLATE.read_text())
    text = template.substitute(
        date=machine["date"],
        command=report["command"],
        warm=f"{report['warm_seconds']:g}",
        table=markdown_table(columns, rows),
        columns=column_text,
        goals="\n".join(f"- {g}" for g in goals),
        titles="; ".join(f"**{name}**: {row['title']}" for name, row in summary.items()),
        memory=", ".join(f"{name} {f['memory_mb'][0]:.0f} MB" for name, f in last.items()),
        machine="\n".join(f"- {k}: {v}" for k, v in machine.items() if k != "date"),
        conf=", ".join(f"`{k}={v}`" for k, v in BROKER_CONF.items()),
    )
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    (DOCS / "benchmarks.md").write_text(text)
    plot(summary, machine, DOCS / "img" / "bench.png")


def plot(summary: dict[str, Any], machine: dict[str, str], path: Path) -> None:
    """Three panels, the rows side by side: CPU a message, messages a second, p99."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("server_cpu_us", 1.0, "CPU a message, µs (less is better)"),
        ("per_second", 1e-3, "thousand messages a second"),
        ("p99_ms", 1.0, "latency p99, ms (less is better)"),
    )
    figure, axes = pyplot.subplots(3, 1, figsize=(11, 10), layout="constrained")
    for axis, (key, scale, title) in zip(axes, panels, strict=True):
        for i, (server, colour) in enumerate(COLOURS.items()):
            found = [[v * scale for v in row["servers"][server][key]] for row in summary.values()]
            at = [x + (i - 1) * 0.28 for x in range(len(found))]
            errors = [[m - low for m, low, _ in found], [high - m for m, _, high in found]]
            bars = axis.bar(at, [m for m, _, _ in found], 0.26, yerr=errors, color=colour, label=server, capsize=2)
            axis.bar_label(bars, fmt="{:,.3g}", fontsize=6, padding=2)
        axis.set_yscale("log")
        axis.set_ymargin(0.15)
        axis.set_xticks(range(len(summary)), list(summary))
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.suptitle(f"Perseid beside Java RocketMQ 5.5.0, {machine['cores']} cores, {machine['date']}", fontsize=11)
    figure.savefig(path, dpi=110)
