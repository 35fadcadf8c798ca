"""Subscriptions by tag."""

from __future__ import annotations

import pytest

from perseid.base.errors import RequestRefused
from perseid.broker.consume import filter as subscriptions
from perseid.wire.hashing import tag_code


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_all_messages(expression: str | None) -> None:
    assert subscriptions.tag_codes(expression) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", ["TagA"]),
        ("TagA||TagB", ["TagA", "TagB"]),
        (" TagA ||  TagB|| ", ["TagA", "TagB"]),
        ("||TagA", ["TagA"]),
        ("a|b", ["a|b"]),
        ("消息 || é", ["消息", "é"]),
        ("*||TagA", ["*", "TagA"]),
    ],
)
def test_some_messages(expression: str, tags: list[str]) -> None:
    codes = subscriptions.tag_codes(expression)
    assert codes is not None
    assert subscriptions.tags(expression) == tags
    assert codes == {tag_code(tag) for tag in tags}
    assert tag_code("Other") not in codes and 0 not in codes


def test_tags_with_the_same_hash_are_the_clients_to_tell_apart() -> None:
    codes = subscriptions.tag_codes("Aa")
    assert codes is not None and tag_code("BB") in codes


@pytest.mark.parametrize("expression", ["||", " ", " || ", "||||"])
def test_no_tag_at_all(expression: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        subscriptions.tag_codes(expression)
    assert refused.value.code == 23


def test_types() -> None:
    assert all(map(subscriptions.is_tag_type, (None, "", "TAG")))
    assert not any(map(subscriptions.is_tag_type, ("SQL92", "tag", " ")))
