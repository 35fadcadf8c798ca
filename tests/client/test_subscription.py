"""Filters, as people write them and as heartbeats carry them."""

import pytest

from perseid.client.errors import ClientError
from perseid.client.subscription import Sql, Subscription


@pytest.mark.parametrize("text", ["*", "", None, "  * "])
def test_everything(text: str | None) -> None:
    subscription = Subscription.parse("t", text, 7)
    assert (subscription.text, subscription.tags) == ("*", frozenset())
    assert subscription.wants(None)
    assert subscription.wants("any")


def test_tags_are_split_and_hashed_as_java_does() -> None:
    data = Subscription.parse("t", "TagA || TagB", 7).data()
    assert (data.tags_set, data.code_set, data.sub_string) == (["TagA", "TagB"], [2598919, 2598920], "TagA || TagB")


def test_tags_with_the_same_code_are_told_apart() -> None:
    subscription = Subscription.parse("t", "Aa", 7)
    assert subscription.wants("Aa")
    assert not subscription.wants("BB")
    assert not subscription.wants(None)


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(ClientError, match="names no tag"):
        Subscription.parse("t", " || ", 7)


def test_sql_travels_as_it_is() -> None:
    data = Subscription.parse("t", Sql("a > 5"), 7).data()
    assert (data.expression_type, data.sub_string, data.tags_set) == ("SQL92", "a > 5", [])
