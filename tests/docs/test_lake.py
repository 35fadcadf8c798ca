"""The tutorial of a lake, and the how-to pages for data teams: command by command, with Spark."""

from pathlib import Path

import pytest
from tests.docs.pages import Reader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("page", ["tutorials/lake", "how-to/dead-broker"])
def test_the_page_is_what_happens(page: str, tmp_path: Path) -> None:
    with Reader(f"{page}.md", tmp_path) as reader:
        assert reader.follow() >= 3
