"""A moving picture of the failover, in slow motion: an SVG that a page shows without any script.

The brokers stand above. Below, each stroke is a message that was acknowledged at that moment, and the coloured part is
the time without one. A line sweeps over it; what it has not passed yet is pale. Where no motion is wanted, all of
it is shown at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, LEGEND = 880, 320, 40, 840, 150
CYCLE_S = 10.0
SWEPT = 70.0
"""Percent of a cycle in which the line sweeps; all is shown for the rest."""
SIDE_MS = 100.0
"""What is shown before and after the time without an acknowledgement, at least."""
STEPS_MS = (10, 20, 50, 100, 200, 500, 1000, 5000, 20_000, 100_000, 1 << 30)
"""Between two marks below: as small as at most ten allow."""
COLOURS = {
    "detection": "#d9a400", "election": "#a04fb5", "role change": "#2aa1b3", "route": "#2a6fc9",
    "first acknowledgement": "#2e9e4f",
}  # fmt: skip
STYLE = """
svg { font: 14px system-ui, sans-serif; color-scheme: light dark }
.ink { fill: #1f2933 } .dim { fill: #7b8794; font-size: 12px } .box { fill: #eef3f8; stroke: #9fb3c8 }
.master { fill: #5b9be0 } .dead { fill: #d64545 } .on { fill: #fff; font-weight: 600 }
.ack { stroke: #2a6fc9; stroke-width: 2 } .kill { stroke: #d64545; stroke-width: 2 } .sweep { stroke: #7b8794 }
@media (prefers-color-scheme: dark) {
 .ink { fill: #e4e7eb } .dim { fill: #9aa5b1 } .box { fill: #243b53; stroke: #486581 } .ack { stroke: #7db4f0 } }
"""


@dataclass(frozen=True)
class Part:
    """A part of the time without an acknowledgement, in milliseconds since the kill."""

    name: str
    begin_ms: float
    length_ms: float


@dataclass(frozen=True)
class Failover:
    """What happened, in milliseconds since the kill."""

    brokers: list[str]
    killed: str
    new_master: str
    begin_ms: float
    """The last acknowledgement before the gap."""
    length_ms: float
    """Without an acknowledgement."""
    parts: list[Part]
    acknowledged_ms: list[float]
    summary: str


def draw(failover: Failover) -> str:
    """The SVG's text."""
    side = max(SIDE_MS, failover.length_ms)
    low, high = failover.begin_ms - side, failover.begin_ms + failover.length_ms + side
    clock = _Clock(low, high)
    end = failover.begin_ms + failover.length_ms
    drawn = [
        *_brokers(failover, clock),
        _middle(130, f"{failover.length_ms:,.0f} ms without an acknowledgement"),
        *_parts(failover, clock),
        *_acknowledgements(clock, [at for at in failover.acknowledged_ms if low <= at <= high]),
        clock.appear(0, _upright("kill", clock.x(0), 176, 252)),
        f'<line class="sweep" x1="{LEFT}" x2="{RIGHT}" y1="252" y2="252"/>',
        *_axis(clock, low, high),
        _upright("sweep moving", LEFT, 176, 252),
        clock.appear(end, _middle(310, escape(failover.summary))),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    style = f"<style>{STYLE}{clock.style()}</style>"
    return "\n".join([f'{head} aria-label="{escape(_told(failover))}">', style, *drawn, "</svg>"]) + "\n"


def write(folder: Path, failover: Failover) -> Path:
    """Into `failover.svg`; its path."""
    path = folder / "failover.svg"
    path.write_text(draw(failover), encoding="utf-8")
    return path


class _Clock:
    """Where a moment is drawn, and when the line that sweeps comes there."""

    def __init__(self, low_ms: float, high_ms: float) -> None:
        self._low_ms, self._span_ms = low_ms, high_ms - low_ms
        self._rules: list[str] = []

    def x(self, at_ms: float) -> float:
        return LEFT + (RIGHT - LEFT) * (at_ms - self._low_ms) / self._span_ms

    def appear(self, at_ms: float, drawn: str, *, before: float = 0.12) -> str:
        """`drawn`, pale until the line comes there."""
        share, name = SWEPT * (at_ms - self._low_ms) / self._span_ms, f"at{len(self._rules)}"
        self._rules.append(
            f"@keyframes {name} {{ 0% {{ opacity: {before} }} {max(share, 0):.2f}%, 100% {{ opacity: 1 }} }} "
            f".{name} {{ animation: {name} {CYCLE_S}s step-end infinite }}"
        )
        return f'<g class="{name}">{drawn}</g>'

    def style(self) -> str:
        """What moves, where motion is wanted."""
        sweep = f"@keyframes sweep {{ {SWEPT:.2f}%, 100% {{ transform: translateX({RIGHT - LEFT}px) }} }}"
        moving = f".moving {{ display: inline; animation: sweep {CYCLE_S}s linear infinite }}"
        rules = "\n".join([sweep, moving, *self._rules])
        return f".moving {{ display: none }}\n@media (prefers-reduced-motion: no-preference) {{\n{rules}\n}}\n"


def _told(failover: Failover) -> str:
    return (
        f"{failover.killed}, the master, is killed; {failover.new_master} acknowledges the next message "
        f"{failover.length_ms:,.0f} ms after the last one. {failover.summary}"
    )


def _brokers(failover: Failover, clock: _Clock) -> list[str]:
    """A box each: the master's blue, then red; the new one's blue from its first acknowledgement on."""
    drawn, width, end = [], 200, failover.begin_ms + failover.length_ms
    gap = (RIGHT - LEFT - width * len(failover.brokers)) / max(1, len(failover.brokers) - 1)
    for number, name in enumerate(failover.brokers):
        x = LEFT + number * (width + gap)

        def box(kind: str, said: str, text: str, x: float = x, name: str = name) -> str:
            return (
                f'<rect class="{kind}" x="{x:.0f}" y="30" width="{width}" height="56" rx="8"/>'
                f'<text class="{text}" x="{x + width / 2:.0f}" y="54" text-anchor="middle">{escape(name)}</text>'
                f'<text class="{text}" x="{x + width / 2:.0f}" y="74" text-anchor="middle">{said}</text>'
            )

        if name == failover.killed:
            drawn += [box("master", "master", "on"), clock.appear(0, box("dead", "SIGKILL, for good", "on"), before=0)]
        else:
            drawn.append(box("box", "slave", "ink"))
            if name == failover.new_master:
                drawn.append(clock.appear(end, box("master", "the new master", "on"), before=0))
    return drawn


def _parts(failover: Failover, clock: _Clock) -> list[str]:
    drawn = []
    for number, part in enumerate(failover.parts):
        x, width = clock.x(part.begin_ms), clock.x(part.begin_ms + part.length_ms) - clock.x(part.begin_ms)
        colour = COLOURS.get(part.name, "#888888")
        row = (
            f'<rect x="{x:.1f}" y="205" width="{max(width, 1):.1f}" height="40" fill="{colour}" opacity="0.55"/>'
            f'<rect x="{LEFT + number * LEGEND}" y="152" width="10" height="10" rx="2" fill="{colour}"/>'
            f'<text class="dim" x="{LEFT + number * LEGEND + 15}" y="161">{part.name}: {part.length_ms:,.0f} ms</text>'
        )
        drawn.append(clock.appear(part.begin_ms, row))
    return drawn


def _acknowledgements(clock: _Clock, at_ms: list[float]) -> list[str]:
    return [clock.appear(at, _upright("ack", clock.x(at), 205, 245)) for at in at_ms]


def _middle(y: int, text: str) -> str:
    return f'<text x="{WIDTH / 2}" y="{y}" text-anchor="middle" class="ink">{text}</text>'


def _upright(kind: str, x: float, top: int, bottom: int) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def _axis(clock: _Clock, low_ms: float, high_ms: float) -> list[str]:
    step = next(one for one in STEPS_MS if (high_ms - low_ms) / one <= 10)
    marks = [at for at in range(-step * 20, step * 21, step) if low_ms <= at <= high_ms]
    return [
        f'<text class="dim" x="{clock.x(at):.1f}" y="270" text-anchor="middle">{f"{at:+,} ms" if at else "kill"}</text>'
        for at in marks
    ]
