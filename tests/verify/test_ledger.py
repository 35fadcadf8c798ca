"""The ledger's file, and the comparison of a ledger with what a cluster holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.base.errors import PerseidError
from perseid.client import MessageQueue
from perseid.verify import Entry, Ledger, compare

Q0, Q1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


def entries(*rows: tuple[str, MessageQueue, int, int]) -> list[Entry]:
    return [Entry(key, queue, offset, 1_700_000_000_000, sends, "") for key, queue, offset, sends in rows]


def numbers(findings: object) -> dict[str, int]:
    names = ("lost", "moved", "invented", "reordered", "doubled", "unacknowledged")
    return {name: getattr(findings, name) for name in names if getattr(findings, name)}


def test_nothing_is_wrong_when_all_is_where_it_was_acknowledged() -> None:
    book = entries(("r-0-0", Q0, 0, 1), ("r-1-0", Q1, 5, 1), ("r-0-1", Q0, 1, 1))
    found = compare(book, {Q0: [(0, "r-0-0"), (1, "r-0-1")], Q1: [(5, "r-1-0")]})
    assert (found.kept, found.acknowledged, found.stored, numbers(found)) == (True, 3, 3, {})


@pytest.mark.parametrize(
    ("found", "wrong", "kept"),
    [
        ({Q0: [(0, "r-0-0")]}, {"lost": 1}, False),
        ({Q0: [(0, "r-0-0"), (2, "r-0-1")]}, {"moved": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-0")]}, {"invented": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-1")]}, {"doubled": 1}, True),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-1"), (3, "r-0-1")]}, {"doubled": 1, "invented": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-2")]}, {"unacknowledged": 1}, True),
        ({Q0: [(0, "r-0-1"), (1, "r-0-0")]}, {"moved": 2, "reordered": 1}, False),
        ({Q0: [(0, "r-0-0")], Q1: [(1, "r-0-1")]}, {"moved": 1}, False),
    ],
    ids=["lost", "moved", "invented", "doubled", "more copies than sends", "not heard of", "reordered", "other queue"],
)
def test_what_is_wrong_is_counted_and_named(
    found: dict[MessageQueue, list[tuple[int, str]]], wrong: dict[str, int], kept: bool
) -> None:
    findings = compare(entries(("r-0-0", Q0, 0, 1), ("r-0-1", Q0, 1, 2)), found)
    assert (numbers(findings), findings.kept) == (wrong, kept)
    for kind in wrong.keys() - {"doubled", "unacknowledged"}:
        assert "r-0-" in findings.named[kind][0]


def test_a_ledger_comes_back_from_its_file_without_its_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    book = entries(("r-0-0", Q0, 0, 1), ("r-1-0", Q1, 5, 3))
    with Ledger("t", "r", path) as ledger:
        for entry in book:
            ledger.add(entry)
        assert Ledger.load(path).entries == book, "each line is in the file at once"
    with path.open("a") as file:
        file.write("r-0-1 a/0 1")
    loaded = Ledger.load(path)
    assert (loaded.topic, loaded.run, loaded.entries) == ("t", "r", book)


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(PerseidError, match="can't be read"):
        Ledger.load(path)
    for text in ("", "hello\n", "# perseid ledger 1 topic=t\n"):
        path.write_text(text)
        with pytest.raises(PerseidError, match="is no ledger"):
            Ledger.load(path)
    for line in ("r-0-0 a/0 0 1", "r-0-0 a 0 1 1 -", "r-0-0 a/x 0 1 1 -"):
        path.write_text(f"# perseid ledger 1 topic=t run=r\n{line}\n")
        with pytest.raises(PerseidError, match=r"ledger:2: is no line"):
            Ledger.load(path)
    with pytest.raises(PerseidError, match="is there already"):
        Ledger("t", "r", path)
