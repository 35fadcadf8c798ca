"""Assigning a topic's queues to the members of a group. Pure: every member computes the same assignment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perseid.client.model import MessageQueue


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> list[MessageQueue]:
    """This member's share: one contiguous run of the sorted queues, the first members get one more.

    Empty when there are more members than queues, or when `client_id` is no member.
    """
    everyone = sorted(set(members))
    if client_id not in everyone:
        return []
    ordered = sorted(set(queues))
    index, size = everyone.index(client_id), len(everyone)
    share, extra = divmod(len(ordered), size)
    start = index * share + min(index, extra)
    return ordered[start : start + share + (1 if index < extra else 0)]


def changes(
    held: Iterable[MessageQueue], wanted: Iterable[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """The queues to give up and the queues to take, sorted."""
    before, after = set(held), set(wanted)
    return sorted(before - after), sorted(after - before)


def stable_members(members: Sequence[str] | None) -> list[str]:
    """A broker's list of members without empties; an absent list is an empty one."""
    return [member for member in members or () if member]
