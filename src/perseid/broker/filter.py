"""Tag subscriptions: `*`, or tags joined by `||`, compared by Java's hash of the tag.

Different tags may share a hash; the client looks at the tag itself (broker.md §6.5).
"""

from __future__ import annotations

from functools import lru_cache

from perseid.base.errors import RequestRefused
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code

TAG = "TAG"
ALL = "*"
MAX_CACHED = 4096


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression type means tags: it does when none is named."""
    return not expression_type or expression_type == TAG


def tags(expression: str) -> list[str]:
    """The tags that an expression names."""
    return [tag for piece in expression.split("||") if (tag := piece.strip())]


@lru_cache(maxsize=MAX_CACHED)
def tag_codes(expression: str | None) -> frozenset[int] | None:
    """The codes of the tags that an expression names; None: all messages. Refused when it names none."""
    if not expression or expression == ALL:
        return None
    codes = frozenset(map(tag_code, tags(expression)))
    if not codes:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {expression!r}"
        )
    return codes
