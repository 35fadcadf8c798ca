"""What the parent of lite topics may be told."""

from pathlib import Path

import pytest

from broker.lites import new, parent


@pytest.mark.parametrize(("minutes", "code"), [(-2, 1), (-1, 0), (0, 0), (43_200, 0), (43_201, 1)])
def test_how_long_a_lite_topic_may_live(tmp_path: Path, minutes: int, code: int) -> None:
    """Thirty days at most; −1: for ever."""
    assert parent(new(tmp_path), "Q", f"+message.type=LITE,+lite.topic.expiration={minutes}").code == code
