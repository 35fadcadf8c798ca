"""Pages: one file, whole, with pictures for light and dark."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from perseid.base.errors import ConfigError
from perseid.spark.report import MAX_ROWS, Page, bytes_text, ms_text, save_png

VOID = {"meta", "img", "source", "br", "link"}


class Balanced(HTMLParser):
    """Raises unless each tag is closed by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: Page) -> Balanced:
    found = Balanced()
    found.feed(page.html())
    assert found.open == []
    return found


def line(figure: Any) -> None:
    figure.subplots().plot([1, 2, 3], label="<b>")


def test_a_page_needs_nothing_but_itself() -> None:
    page = Page("Title", "All is well.", good=True, verdict="Good.")
    page.heading("Part")
    page.table(["name", "count"], [["a", 1], ["b", 2_000]])
    page.figures([("one", "1"), ("two", "2")])
    page.picture(line, "a line")
    found = parsed(page)
    tags = [tag for tag, _ in found.seen]
    assert "script" not in tags and "link" not in tags
    (source,) = (attributes["srcset"] for tag, attributes in found.seen if tag == "source")
    (image,) = (attributes for tag, attributes in found.seen if tag == "img")
    assert image["alt"] == "a line" and source != image["src"], "one for the dark, one for the light"
    for uri in (source, image["src"]):
        assert uri is not None
        head, _, data = uri.partition(",")
        assert head == "data:image/svg+xml;base64" and ET.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert not re.search(r'(src|href)="(?!data:)', page.html()) and "http" not in re.sub(r"base64,\S+", "", page.html())
    assert 'name="viewport"' in page.html() and "prefers-color-scheme: dark" in page.html()
    assert page.html() == page.html()


def test_what_people_wrote_is_only_text() -> None:
    evil = '<script>alert("x")</script>&'
    page = Page(evil, evil, verdict=evil)
    page.heading(evil)
    page.text(evil)
    page.table([evil, "n"], [[evil, 1]])
    page.figures([(evil, evil)])
    page.picture(line, evil)
    assert "script" not in [tag for tag, _ in parsed(page).seen]
    assert [a["alt"] for tag, a in parsed(page).seen if tag == "img"] == [evil]


def test_numbers_stand_to_the_right_and_long_tables_end() -> None:
    page = Page("t", "s")
    page.table(["name", "count"], [["a", 1234567], ["b", None]])
    page.table([], [["x", 1.25]])
    page.table(["n"], [[n] for n in range(MAX_ROWS + 5)])
    page.table(["n"], [])
    text = page.html()
    assert '<td>a</td><td class="number">1,234,567</td>' in text and '<td class="number">–</td>' in text
    assert '<td class="number">1.2</td>' in text and "5 more rows are left out." in text and "None." in text
    assert f">{MAX_ROWS - 1:,}</td>" in text and f">{MAX_ROWS:,}</td>" not in text
    parsed(page)


@pytest.mark.parametrize(("good", "tone"), [(True, "good"), (False, "bad"), (None, "neutral")])
def test_the_summary_has_the_colour_of_the_verdict(good: bool | None, tone: str) -> None:
    assert f"border-left: .3rem solid var(--{tone})" in Page("t", "s", good=good).html()


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    assert Page("t", "s").write(tmp_path / "r.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ConfigError, match=r"the report can't be written: .*nowhere"):
        Page("t", "s").write(tmp_path / "nowhere" / "r.html")


def test_a_picture_of_its_own(tmp_path: Path) -> None:
    save_png(line, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_words_for_sizes_and_times() -> None:
    sizes = (0, 1023, 1536, 5 << 30, 3 << 50)
    assert [bytes_text(n) for n in sizes] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3072.0 TiB"]
    assert [ms_text(n) for n in (None, 0, 999, 1500, 90_000, 5_400_000, 172_800_000, -2000)] == [
        "–", "0 ms", "999 ms", "1.5 s", "1.5 min", "1.5 h", "2.0 d", "-2.0 s",
    ]  # fmt: skip
