"""Tag subscriptions: `*`, or tags joined by `||`, compared by Java's hash of the tag.

Different tags may share a hash; the client looks at the tag itself (broker.md §6.5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from perseid.base.errors import RequestRefused
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code

TAG = "TAG"
MAX_CACHED = 4096


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression type means tags: it does when none is named."""
    return not expression_type or expression_type == TAG


@lru_cache(maxsize=MAX_CACHED)
def tag_codes(expression: str | None) -> frozenset[int] | None:
    """The codes of the tags that an expression names; None: all messages. Refused when it names none."""
    if not expression or expression.strip() == "*":
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    codes = frozenset(tag_code(tag) for tag in tags if tag)
    if not codes:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"no tag in the subscription {expression!r}")
    return codes


def wanted(expression: str | None) -> Callable[[int], bool] | None:
    """What the store asks for each tag code; None: everything is wanted."""
    codes = tag_codes(expression)
    return None if codes is None else codes.__contains__
