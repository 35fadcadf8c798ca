"""Topics and consumer groups, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.broker.kernel.capability import Capability, Requests
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.saves import StateFile
from perseid.broker.metadata.groups import GROUPS_PATH, SubscriptionGroupTable
from perseid.broker.metadata.topics import TOPICS_PATH, TopicTable


def capability(
    topics: TopicTable, groups: SubscriptionGroupTable, requests: tuple[Requests, ...],
    changed: Callable[[set[str]], None], complete: Callable[[], None], new_version: Callable[[], None],
) -> Capability:  # fmt: skip
    """`changed` hears which topics are about to be saved; a new master completes the table, and gives it a version."""
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
        hooks=(RoleHook("topics", complete), RoleHook("version of the topics", new_version)),
        checks=(topics.validate, groups.validate),
    )
