"""Handles of popped messages: the usual ones are read by one pattern, all others part by part, to the same end."""

from __future__ import annotations

from random import Random

import pytest

from perseid.base.errors import RequestRefused
from perseid.wire import pop
from perseid.wire.pop import Handle, parse_handle

USUAL = Handle(100, 1_700_000_000_000, 60_000, 3, pop.NORMAL, "broker-a", 2, 117)
PARTS = ("", "0", "-1", "+7", "7", "1" * 18, "9" * 19, "9" * 20, "١", "x", "1.0", " ", "broker b", "ü")


def parsed(text: str) -> Handle | str:
    try:
        return parse_handle(text)
    except RequestRefused as refused:
        return refused.remark or ""


def test_a_handle_is_what_was_written() -> None:
    assert parse_handle(str(USUAL)) == USUAL
    assert parse_handle("0 1 2 3 0 b") == Handle(0, 1, 2, 3, "0", "b")


@pytest.mark.parametrize("seed", range(20))
def test_the_pattern_reads_what_the_parts_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    texts = []
    for _ in range(200):
        parts = str(USUAL).split(" ")
        for _ in range(random.randint(0, 3)):
            parts[random.randrange(len(parts))] = random.choice(PARTS)
        texts.append(" ".join(parts[: random.choice([8, 8, 8, 7, 6, 5])] + random.choice([[], [], ["more"]])))
    quick = [parsed(text) for text in texts]
    monkeypatch.setattr(pop, "_USUAL", lambda text: None)
    assert quick == [parsed(text) for text in texts]
    assert any(isinstance(one, Handle) for one in quick) and any(isinstance(one, str) for one in quick)
