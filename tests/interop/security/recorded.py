"""The files of what Java said: one case a line, so that a change of one shows as one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "recorded"
POLICIES, VERDICTS = FOLDER / "policies.json", FOLDER / "verdicts.json"


def text(head: dict[str, Any], cases: Iterable[dict[str, Any]]) -> str:
    """The file of these cases."""
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    opening = json.dumps(head, indent=1)[:-2]
    return f'{opening},\n "cases": [\n{lines}\n]}}\n'


def read(path: Path) -> list[dict[str, Any]]:
    """The cases of a file."""
    cases: list[dict[str, Any]] = json.loads(path.read_text())["cases"]
    return cases
