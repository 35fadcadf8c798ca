"""Draws stacks as a flame graph: an SVG to open in a browser. Click a box to make it as wide as the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

Stacks = Mapping[tuple[str, ...], float]
"""{(outermost call, …, innermost): µs}"""

WIDTH, ROW, TOP = 1600, 17, 70
CHARACTER = 6.9
"""Its width at the size of the letters in the boxes."""
NARROWEST = 0.0005
"""Boxes that are a smaller part of the whole are left out."""
KINDS = {
    "Python": "#7fa8c9",
    "compiled core": "#e0a458",
    "C (interpreter, libraries)": "#b9b4a7",
    "kernel": "#c97b6b",
}


@dataclass
class Box:
    """A call, with all that was called by it."""

    us: float = 0.0
    inner: dict[str, Box] = field(default_factory=dict)


def kind(frame: str) -> str:
    """One of KINDS: a frame is `function (file)`, the kernel's are `function [kernel]`."""
    if frame.endswith("[kernel]"):
        return "kernel"
    if "perseid/core/" in frame:
        return "compiled core"
    return "Python" if frame.endswith((".py)", "(perseid)")) else "C (interpreter, libraries)"


def tree(stacks: Stacks) -> Box:
    """What was called by what: one box for the same calls in the same place."""
    root = Box()
    for stack, us in stacks.items():
        at = root
        at.us += us
        for frame in stack:
            at = at.inner.setdefault(frame, Box())
            at.us += us
    return root


def _boxes(name: str, box: Box, x: float, depth: int, whole: float) -> Iterator[tuple[str, float, float, int]]:
    """(name, from, to, depth) of a box and of what is in it; x is in µs."""
    yield name, x, box.us, depth
    for inner_name, inner in sorted(box.inner.items(), key=lambda item: -item[1].us):
        if inner.us >= NARROWEST * whole:
            yield from _boxes(inner_name, inner, x, depth + 1, whole)
        x += inner.us


def draw(path: Path, title: str, note: str, stacks: Stacks) -> None:
    """Write the picture; the outermost calls are at the top, widths are µs of a message."""
    root = tree(stacks)
    boxes = list(_boxes("all", root, 0.0, 0, root.us)) if root.us else []
    height = TOP + ROW * (2 + max((depth for *_, depth in boxes), default=0))
    parts = [_head(height, title, note)]
    for name, x, us, depth in boxes:
        left, width = x / root.us * WIDTH, us / root.us * WIDTH
        label = f"{name}: {us:.2f} µs, {100 * us / root.us:.1f} %"
        parts.append(
            f'<g data-x="{left:.2f}" data-w="{width:.2f}"><title>{escape(label)}</title>'
            f'<rect x="{left:.2f}" y="{TOP + ROW * depth}" width="{width:.2f}" height="{ROW - 1}" '
            f'fill="{KINDS[kind(name)] if depth else "#dddddd"}"/>'
            f'<text x="{left + 3:.2f}" y="{TOP + ROW * depth + 12}">{escape(_cut(label, width))}</text></g>'
        )
    parts.append(f"<script><![CDATA[{_SCRIPT}]]></script></svg>\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))


def _cut(label: str, width: float) -> str:
    room = int((width - 4) / CHARACTER)
    return label if len(label) <= room else label[: max(0, room - 1)] + "…" if room > 2 else ""


def _head(height: int, title: str, note: str) -> str:
    legend = "".join(
        f'<rect x="{10 + 230 * i}" y="50" width="12" height="12" fill="{colour}"/>'
        f'<text x="{27 + 230 * i}" y="60">{escape(name)}</text>'
        for i, (name, colour) in enumerate(KINDS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        "<style>text{font:11px monospace;pointer-events:none} g{cursor:pointer} g:hover rect{stroke:#000}"
        ".title{font:bold 15px sans-serif} .note{font:12px sans-serif}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text class="title" x="10" y="20">{escape(title)}</text>'
        f'<text class="note" x="10" y="38">{escape(note)}</text>'
        f"{legend}"
    )


_SCRIPT = f"""
const boxes = [...document.querySelectorAll("g")];
function zoom(x0, w0) {{
  for (const box of boxes) {{
    const x = +box.dataset.x, w = +box.dataset.w, end = Math.min(x + w, x0 + w0), from = Math.max(x, x0);
    const width = (end - from) / w0 * {WIDTH}, left = (from - x0) / w0 * {WIDTH};
    box.style.display = width > 0.3 ? "" : "none";
    const [label, rect, text] = box.children, room = Math.floor((width - 4) / {CHARACTER});
    rect.setAttribute("x", left); rect.setAttribute("width", Math.max(0, width));
    text.setAttribute("x", left + 3);
    const whole = label.textContent;
    text.textContent = whole.length <= room ? whole : room > 2 ? whole.slice(0, room - 1) + "…" : "";
  }}
}}
for (const box of boxes) box.onclick = () => zoom(+box.dataset.x, +box.dataset.w);
"""
