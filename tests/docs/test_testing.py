"""The tutorial that tests the order service: its tests pass as a reader runs them."""

from pathlib import Path

from tests.docs.pages import Reader


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    with Reader("tutorials/testing.md", tmp_path) as reader:
        reader.save_files("tutorials/orders.md")
        assert reader.follow() == 1
