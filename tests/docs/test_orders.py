"""The tutorial of the order service: its page."""

from pathlib import Path

from tests.docs.pages import Reader


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    with Reader("tutorials/orders.md", tmp_path) as reader:
        assert reader.follow() >= 9
