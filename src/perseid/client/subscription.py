"""Subscriptions: a consumer gets all messages of a topic, those with some tags (`"a || b"`), or those that an SQL92
expression selects.

The broker filters tags by their hash code only, so the client looks at the tag itself again: `Aa` and
`BB` have the same code.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.client.errors import UsageError
from perseid.wire.bodies import SubscriptionData
from perseid.wire.hashing import java_hash

ALL = "*"


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over a message's properties. Brokers need `enablePropertyFilter=true`."""

    text: str
    """The expression, such as `amount > 100 AND region = 'EU'`. `TAGS` is the tag."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic's filter; `version` tells a broker which of two is newer."""

    topic: str
    text: str
    version: int
    tags: frozenset[str] = frozenset()
    kind: str = "TAG"

    @classmethod
    def parse(cls, topic: str, expression: str | Sql | None, version: int) -> Subscription:
        """From what people write; `ClientError` for an expression without any tag in it."""
        if isinstance(expression, Sql):
            return cls(topic, expression.text, version, kind="SQL92")
        text = (expression or "").strip()
        if text in ("", ALL):
            return cls(topic, ALL, version)
        tags = frozenset(tag for part in text.split("||") if (tag := part.strip()))
        if not tags:
            raise UsageError(f"subscription of {topic}: {text!r} names no tag; write 'a || b', or '*' for all")
        return cls(topic, text, version, tags)

    def wants(self, tag: str | None) -> bool:
        """The client's own look at a message's tag."""
        return not self.tags or tag in self.tags

    def data(self) -> SubscriptionData:
        """As heartbeats carry it."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.text,
            tags_set=sorted(self.tags),
            code_set=sorted(java_hash(tag) for tag in self.tags),
            sub_version=self.version,
            expression_type=self.kind,
        )
