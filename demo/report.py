"""A page with the figures and the plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from demo.produce import Produced
from demo.steady import Steady
from perseid.spark.report import Page, save_png

COLOURS = {
    "detection": "#d9a400", "election": "#a04fb5", "role change": "#2aa1b3", "route": "#2a6fc9",
    "first acknowledgement": "#2e9e4f",
}  # fmt: skip
KILLED = "#d64545"
RATE_STEP_S = 0.25
ROUND_S = 0.15
"""What is shown before and after the window, at least."""


def draw_failover(figure: Any, produced: Produced, steady: Steady) -> None:
    """Above, the flights a second around the kill; below, the window from near: each acknowledgement of `perseid verify
    run` a stroke, the parts of its outage in colour."""
    whole, near = figure.subplots(2, 1, height_ratios=(3, 2))
    times, rates = _rates(produced.timeline)
    whole.fill_between(times, rates, step="post", color="#5b9be0")
    whole.axvline(0, color=KILLED, linewidth=1.5)
    side = "left" if -times[0] < times[-1] else "right"
    whole.text(0, max(rates) * 1.04, "  SIGKILL to the master  ", color=KILLED, va="bottom", ha=side)
    whole.set_ylim(0, max(rates) * 1.15)
    whole.set_ylabel("flights acknowledged a second")
    whole.set_xlabel("seconds since the kill")
    whole.set_title(f"{produced.messages:,} flights; the master never comes back")
    outage = steady.outage or {"lengthMs": 0.0, "lastAcknowledgementMs": produced.killed_ms, "parts": []}
    window_ms, begin_ms = outage["lengthMs"], outage["lastAcknowledgementMs"] - produced.killed_ms
    side_ms = max(1000 * ROUND_S, window_ms / 4)
    strokes = [at - produced.killed_ms for at in steady.acknowledged_ms()]
    low, high = begin_ms - side_ms, begin_ms + window_ms + side_ms
    near.vlines([at for at in strokes if low <= at <= high], 0, 1, color="#7b8794", linewidth=0.8)
    near.axvline(0, color=KILLED, linewidth=1.5)
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
    near.grid(visible=False)


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
    end, count = timeline[-1]
    rest = (count - last_count) / max(end - last_at, RATE_STEP_S)  # of a short rest alone it would be a spike
    return [*times, last_at, end], [*rates, rest, rest]


def draw_delays(figure: Any, delays: list[tuple[str, int, float]]) -> None:
    """A heat map: hours across, carriers down, minutes of delay as colour."""
    carriers = sorted({carrier for carrier, _, _ in delays})
    hours = sorted({hour for _, hour, _ in delays})
    cells = [[float("nan")] * len(hours) for _ in carriers]
    for carrier, hour, delay in delays:
        cells[carriers.index(carrier)][hours.index(hour)] = delay
    axes = figure.subplots()
    image = axes.imshow(cells, aspect="auto", cmap="viridis", vmin=0, vmax=40)
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("carrier")
    axes.set_title("New York, 2013: departures get later as the day goes on")
    axes.grid(visible=False)
    figure.colorbar(image, label="mean departure delay, minutes\n(clipped at 0 and 40)")


def write(
    folder: Path,
    figures: list[tuple[str, str]],
    faults: list[str],
    produced: Produced,
    steady: Steady,
    delays: list[tuple[str, int, float]],
) -> Path:
    """The page, and its pictures as files of their own; the page's path."""
    outcome = "; ".join(faults) + "." if faults else "Nothing was lost."
    page = Page(
        "All flights arrived, once and in order" if not faults else "The demo failed",
        f"{produced.killed}, the master, was killed with SIGKILL half-way through, and never came back. The "
        f"controllers elected another one, and the stream went on by itself. {outcome}",
        good=not faults,
    )
    page.figures(figures)
    for heading, name, draw, size, description in (
        (
            "The master is killed", "failover.png", lambda figure: draw_failover(figure, produced, steady), (8, 5.6),
            "Acknowledged flights over time, and the parts of the window without acknowledgements",
        ),
        (
            "Mean departure delay by hour and carrier", "delays.png", lambda figure: draw_delays(figure, delays),
            (8, 4.6), "Heat map of the mean departure delay, hours across, carriers down",
        ),
    ):  # fmt: skip
        page.heading(heading)
        page.picture(draw, description, size=size)
        save_png(draw, folder / name, size=size)
    return page.write(folder / "report.html")
