"""A page with the figures and the plot."""

from __future__ import annotations

import html
from pathlib import Path

PAGE = """<!doctype html>
<meta charset="utf-8"><title>Perseid: the flights demo</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
 table {{ border-collapse: collapse }} td {{ padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #d8dee6 }}
 td:last-child {{ font-variant-numeric: tabular-nums; text-align: right }} img {{ max-width: 100% }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
<table>{rows}</table>
<h2>Mean departure delay by hour and carrier</h2>
<img src="delays.png" alt="Heat map of the mean departure delay, hours across, carriers down">
"""


def plot(delays: list[tuple[str, int, float]], path: Path) -> None:
    """A heat map: hours across, carriers down, minutes of delay as colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    carriers = sorted({carrier for carrier, _, _ in delays})
    hours = sorted({hour for _, hour, _ in delays})
    cells = [[float("nan")] * len(hours) for _ in carriers]
    for carrier, hour, delay in delays:
        cells[carriers.index(carrier)][hours.index(hour)] = delay
    figure, axes = plt.subplots(figsize=(10, 5.5), layout="constrained")
    image = axes.imshow(cells, aspect="auto", cmap="viridis", vmin=0, vmax=40)
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("carrier")
    axes.set_title("New York, 2013: departures get later as the day goes on")
    figure.colorbar(image, label="mean departure delay, minutes (clipped at 0 and 40)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write(folder: Path, figures: list[tuple[str, str]], faults: list[str]) -> Path:
    """The page; its path."""
    rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in figures)
    title = "All flights arrived, once and in order" if not faults else "The demo failed"
    outcome = "; ".join(faults) + "." if faults else "Nothing was lost."
    summary = f"The master was killed with SIGKILL half-way through, and its slave was read meanwhile. {outcome}"
    page = folder / "report.html"
    page.write_text(PAGE.format(title=title, summary=html.escape(summary), rows=rows))
    return page
