"""A page with the figures and the plots."""

from __future__ import annotations

import html
from pathlib import Path

from demo.produce import Produced
from demo.steady import Steady

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
<h2>The master is killed</h2>
<img src="failover.png" alt="Acknowledged flights over time, and the parts of the window without acknowledgements">
<h2>Mean departure delay by hour and carrier</h2>
<img src="delays.png" alt="Heat map of the mean departure delay, hours across, carriers down">
"""
COLOURS = {
    "detection": "#d9a400", "election": "#a04fb5", "role change": "#2aa1b3", "route": "#2a6fc9",
    "first acknowledgement": "#2e9e4f",
}  # fmt: skip
RATE_STEP_S = 0.25
ROUND_S = 0.15
"""What is shown before and after the window, at least."""


def plot_failover(produced: Produced, steady: Steady, path: Path) -> None:
    """Above, the flights a second around the kill; below, the window from near: each acknowledgement of `perseid verify
    run` a stroke, the parts of its outage in colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (whole, near) = plt.subplots(2, 1, figsize=(10, 6.5), layout="constrained", height_ratios=(3, 2))
    times, rates = _rates(produced.timeline)
    whole.fill_between(times, rates, step="post", color="#9fc1e8")
    whole.axvline(0, color="#c0392b", linewidth=1.5)
    side = "left" if -times[0] < times[-1] else "right"
    whole.text(0, max(rates) * 1.04, "  SIGKILL to the master  ", color="#c0392b", va="bottom", ha=side)
    whole.set_ylim(0, max(rates) * 1.15)
    whole.set_ylabel("flights acknowledged a second")
    whole.set_xlabel("seconds since the kill")
    whole.set_title(f"{produced.messages:,} flights; the master never comes back")
    outage = steady.outage or {"lengthMs": 0.0, "lastAcknowledgementMs": produced.killed_ms, "parts": []}
    window_ms, begin_ms = outage["lengthMs"], outage["lastAcknowledgementMs"] - produced.killed_ms
    side_ms = max(1000 * ROUND_S, window_ms / 4)
    strokes = [at - produced.killed_ms for at in steady.acknowledged_ms()]
    low, high = begin_ms - side_ms, begin_ms + window_ms + side_ms
    near.vlines([at for at in strokes if low <= at <= high], 0, 1, color="#555555", linewidth=0.8)
    near.axvline(0, color="#c0392b", linewidth=1.5)
    parts = [part for part in outage["parts"] if part["seen"]]
    for number, part in enumerate(parts):
        start, ms = begin_ms + part["startMs"], part["ms"]
        near.axvspan(start, start + ms, color=COLOURS.get(part["name"], "#888888"), alpha=0.5, linewidth=0)
        label = f" {part['name']}: {ms:.0f} ms"
        near.text(start, 1.12 + 0.16 * (len(parts) - number), label, va="top", fontsize=9)
    near.set_xlim(low, high)
    near.set_ylim(0, 1.2 + 0.16 * max(1, len(parts)))
    near.set_yticks([])
    near.set_xlabel("milliseconds since the kill; each stroke is a message that `perseid verify run` had acknowledged")
    near.set_title(f"{window_ms:,.0f} ms without an acknowledgement")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _rates(timeline: list[tuple[float, int]]) -> tuple[list[float], list[float]]:
    """Acknowledged a second, in steps."""
    times: list[float] = []
    rates: list[float] = []
    last_at, last_count = timeline[0]
    for at, count in timeline:
        if at - last_at >= RATE_STEP_S:
            times.append(last_at)
            rates.append((count - last_count) / (at - last_at))
            last_at, last_count = at, count
    return [*times, last_at], [*rates, rates[-1] if rates else 0.0]


def plot_delays(delays: list[tuple[str, int, float]], path: Path) -> None:
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


def write(folder: Path, figures: list[tuple[str, str]], faults: list[str], produced: Produced) -> Path:
    """The page; its path."""
    rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in figures)
    title = "All flights arrived, once and in order" if not faults else "The demo failed"
    outcome = "; ".join(faults) + "." if faults else "Nothing was lost."
    summary = (
        f"{produced.killed}, the master, was killed with SIGKILL half-way through, and never came back. The "
        f"controllers elected another one, and the stream went on by itself. {outcome}"
    )
    page = folder / "report.html"
    page.write_text(PAGE.format(title=title, summary=html.escape(summary), rows=rows))
    return page
