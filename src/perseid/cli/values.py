"""Times and pairs as people write them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime

import typer


def moment(text: str | None, option: str) -> int | None:
    """Milliseconds since 1970 of `2026-11-20T12:00:00`, of `2026-11-20` (UTC if no zone is given), or of a number of
    them. typer.BadParameter for anything else."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r}: write 2026-11-20T12:00:00, or milliseconds since 1970") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dict. typer.BadParameter for one that is not, or comes twice."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name or not value or name in found:
            raise typer.BadParameter(f"{option} {text!r}: write NAME=VALUE, each name once")
        found[name] = value
    return found
