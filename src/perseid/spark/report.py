"""A page of tables and pictures, as one file that needs nothing else: for phones too, in the light and in the dark.

    page = Page("Two replicas", "They are equal.", good=True)
    page.table(["replica", "records"], [["/a", 100], ["/b", 100]])
    page.picture(lambda figure: figure.subplots().plot([1, 2]), "A line")
    page.write("report.html")

Pictures are SVG, drawn by matplotlib twice, for light and for dark, and stand in the page as data. What people wrote
(names of topics, paths) is escaped.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perseid.base.errors import ConfigError

Cell = str | int | float | None
WIDTH_IN, HEIGHT_IN = 7.6, 3.8
"""Of a picture: its letters are still read on a phone, where it is half as wide."""
MAX_ROWS = 1000
"""Of a table; more are left out, and the page says so."""
DARK = {
    "text.color": "#dde3ea", "axes.labelcolor": "#dde3ea", "axes.edgecolor": "#7b8794", "xtick.color": "#b6c0cb",
    "ytick.color": "#b6c0cb", "grid.color": "#3a434e", "axes.titlecolor": "#dde3ea", "legend.labelcolor": "#dde3ea",
}  # fmt: skip
LIGHT = {
    "text.color": "#1d2630", "axes.labelcolor": "#1d2630", "axes.edgecolor": "#7b8794", "xtick.color": "#4a5560",
    "ytick.color": "#4a5560", "grid.color": "#d8dee6", "axes.titlecolor": "#1d2630", "legend.labelcolor": "#1d2630",
}  # fmt: skip
BOTH = {
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "font.size": 10,
    "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "axes.grid": True, "axes.axisbelow": True, "svg.hashsalt": "perseid",
}  # fmt: skip
SHORT = 24
"""Letters of a cell that is one line."""
COLOURS = ("#2a7de1", "#e08a1e", "#2e9e6b", "#b453c6", "#d64545", "#17a2b8", "#8a7a22", "#7b8794")
"""Of lines and bars, seen on white and on black."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --text: #1d2630; --dim: #5b6875; --line: #d8dee6; --back: #ffffff; --card: #f4f6f9; --good: #1c7c45;
  --bad: #b3261e; --neutral: #2a6fc9 }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #dde3ea; --dim: #98a4b1; --line: #343d47; --back: #14181d;
  --card: #1d232a; --good: #5fcf8c; --bad: #ff8a80; --neutral: #7db3f2 }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--text);
  background: var(--back); max-width: 62rem; margin: 0 auto; padding: 1.25rem 1rem 3rem }}
h1 {{ font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 }}
h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .6rem }}
.summary {{ border-left: .3rem solid var(--{tone}); background: var(--card); padding: .8rem 1rem; margin: 1rem 0;
  border-radius: .3rem }}
.summary b {{ color: var(--{tone}) }}
.wide {{ overflow-x: auto; margin: .6rem 0 }}
table {{ border-collapse: collapse; min-width: min(100%, 24rem) }}
th, td {{ padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }}
th {{ font-weight: 600; color: var(--dim); white-space: nowrap }}
td.short {{ white-space: nowrap }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }}
.note {{ color: var(--dim); font-size: .92rem }}
figure {{ margin: 1rem 0; overflow-x: auto }} img {{ width: 100%; min-width: 29rem; height: auto; display: block }}
figcaption {{ color: var(--dim); font-size: .92rem }}
footer {{ margin-top: 3rem; color: var(--dim); font-size: .85rem }}
</style></head><body>
<h1>{title}</h1>
<p class="summary"><b>{verdict}</b>{summary}</p>
{parts}
<footer>{footer}</footer>
</body></html>
"""


class Page:
    """A page; what is added to it stands in it in that order. `good`: True or False colours the summary, and None
    says that there is nothing to be good or bad."""

    def __init__(self, title: str, summary: str, *, good: bool | None = None, verdict: str = "") -> None:
        self._title, self._summary, self._verdict = title, summary, verdict
        self._tone = {True: "good", False: "bad", None: "neutral"}[good]
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f'<p class="note">{html.escape(text)}</p>')

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows of cells; columns that have only numbers stand to the right. `headers` may be empty."""
        shown = rows[:MAX_ROWS]
        numeric = [
            bool(shown) and all(isinstance(row[column], int | float | None) for row in shown)
            for column in range(len(shown[0]) if shown else len(headers))
        ]
        kinds = [' class="number"' if is_number else "" for is_number in numeric]
        head = "".join(f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(headers, kinds, strict=False))
        body = "".join(
            f"<tr>{''.join(_td(cell, kind) for cell, kind in zip(row, kinds, strict=True))}</tr>" for row in shown
        )
        head = f"<thead><tr>{head}</tr></thead>" if headers else ""
        self._parts.append(f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>')
        if len(rows) > len(shown):
            self.text(f"{len(rows) - len(shown):,} more rows are left out.")
        if not rows:
            self.text("None.")

    def figures(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and their values, which stand to the right."""
        body = "".join(
            f'<tr><td>{html.escape(name)}</td><td class="number">{html.escape(value)}</td></tr>'
            for name, value in pairs
        )
        self._parts.append(f'<div class="wide"><table><tbody>{body}</tbody></table></div>')

    def picture(
        self, draw: Callable[[Any], None], description: str, *, size: tuple[float, float] = (WIDTH_IN, HEIGHT_IN)
    ) -> None:
        """Add the picture that `draw` draws on a matplotlib Figure. `description` is its text for screen readers."""
        light, dark = _svg(draw, size, LIGHT), _svg(draw, size, DARK)
        alt = html.escape(description, quote=True)
        self._parts.append(
            f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" alt="{alt}"></picture></figure>'
        )

    def html(self, footer: str = "Made by Perseid.") -> str:
        """The page's text."""
        verdict = f"{html.escape(self._verdict)} " if self._verdict else ""
        return _PAGE.format(
            title=html.escape(self._title), tone=self._tone, verdict=verdict, summary=html.escape(self._summary),
            parts="\n".join(self._parts), footer=html.escape(footer),
        )  # fmt: skip

    def write(self, path: str | Path) -> Path:
        """Write it; its path. ConfigError when that can't be."""
        found = Path(path)
        try:
            found.write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the report can't be written: {error}") from None
        return found


def save_png(draw: Callable[[Any], None], path: Path, *, size: tuple[float, float] = (WIDTH_IN, HEIGHT_IN)) -> None:
    """The same picture as a file of its own, on white."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**BOTH, **LIGHT, "savefig.facecolor": "white"}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(path, dpi=120)


def bytes_text(count: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def ms_text(ms: float | None) -> str:
    """`12 ms`, `3.4 s`, `2.1 h`."""
    if ms is None:
        return "–"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= length:
            return f"{ms / length:.1f} {unit}"
    return f"{ms:.0f} ms"


def time_axis(axes: Any) -> None:
    """Few and short marks for times (datetimes in UTC) on the axis across."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _td(value: Cell, kind: str) -> str:
    """A cell; a short one is not broken over lines."""
    if not kind and isinstance(value, str) and len(value) <= SHORT:
        kind = ' class="short"'
    return f"<td{kind}>{_cell(value)}</td>"


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(value)


def _svg(draw: Callable[[Any], None], size: tuple[float, float], colours: dict[str, str]) -> str:
    """A picture as a data URI."""
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**BOTH, **colours, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode()
