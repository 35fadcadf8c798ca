"""The tables of settings in docs/compatibility.md, made from what becomes of the original's other keys.

    python tests/tidy/settings_table.py     writes them anew
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perseid.app import broker, dledger
from perseid.base.config import Foreign
from perseid.controller import config as controller
from perseid.nameserver import config as name_server

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- settings: python tests/tidy/settings_table.py -->\n", "<!-- end of settings -->\n"

FOREIGN = {
    "broker": broker.FOREIGN,
    "name server": name_server.FOREIGN,
    "controller": controller.FOREIGN,
    "`perseid dledger`": dledger.FOREIGN,
}

def refused() -> str:
    """What stops the start."""
    lines = ["| key that stops the start | of | but for | it would |", "|---|---|---|---|"]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for process, foreign in FOREIGN.items():
        for one in foreign.refused:
            rows.setdefault((one.key, ", ".join(one.allowed) or "–", one.why), []).append(process)
    lines += [f"| `{key}` | {', '.join(of)} | {allowed} | {why} |" for (key, allowed, why), of in sorted(rows.items())]
    return _text(lines)


def ignored() -> str:
    """What has an effect there and none here."""
    lines = ["| key without an effect here | of | told of, but for | here |", "|---|---|---|---|"]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for process, foreign in FOREIGN.items():
        for one in foreign.ignored:
            rows.setdefault((one.key, ", ".join(one.usual) or "–", one.why), []).append(process)
    lines += [f"| `{key}` | {', '.join(of)} | {usual} | {why} |" for (key, usual, why), of in sorted(rows.items())]
    return _text(lines)


def meaningless() -> str:
    """What has no meaning here, all processes together."""
    keys = sorted({key for foreign in FOREIGN.values() for key in _of_nothing(foreign)})
    return f"Without a meaning here, and passed over: {', '.join(f'`{key}`' for key in keys)}.\n"


def _of_nothing(foreign: Foreign) -> Iterable[str]:
    return foreign.meaningless


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def tables() -> str:
    return "\n".join((refused(), ignored(), meaningless()))


def written() -> str:
    """The document with the tables as they are now."""
    text = DOCUMENT.read_text()
    before, found, rest = text.partition(BEGIN)
    _, also, after = rest.partition(END)
    assert found and also, f"{DOCUMENT} has no place {BEGIN!r}"
    return f"{before}{BEGIN}{tables()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written())
