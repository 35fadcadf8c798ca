"""Topics and consumer groups, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.broker.kernel.capability import Capability, Requests
from perseid.broker.kernel.saves import StateFile
from perseid.broker.metadata.groups import GROUPS_PATH, SubscriptionGroupTable
from perseid.broker.metadata.topics import TOPICS_PATH, TopicTable


def capability(
    topics: TopicTable, groups: SubscriptionGroupTable, requests: tuple[Requests, ...],
    changed: Callable[[set[str]], None],
) -> Capability:  # fmt: skip
    """`changed` hears which topics are about to be saved."""
    return Capability(
        name="metadata",
        requests=requests,
        files=(
            StateFile(path=GROUPS_PATH, table=groups, text=groups.to_json),
            StateFile(
                path=TOPICS_PATH, table=topics, text=topics.to_json, loaded_first=True,
                told=lambda: changed(topics.take_changed()),
            ),
        ),
        checks=(topics.validate, groups.validate),
    )
