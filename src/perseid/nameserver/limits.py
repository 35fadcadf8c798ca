"""Every bound of the tables, by name: a registration beyond one is refused, and changes nothing.

The original has none of them: whoever reaches its port fills its memory. What a broker has registered it may always say
again, also when a table is full.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sized
from typing import Protocol

from perseid.base.errors import RequestRefused
from perseid.wire.bodies import MAX_REGISTERED_TOPICS
from perseid.wire.codes import ResponseCode

MAX_BROKERS = 4_096
"""Broker names."""
MAX_PROCESSES = 8_192
"""Broker processes: masters and slaves."""
MAX_CLUSTERS = 1_024
MAX_IDS = 128
"""Of one broker name: a master and its slaves."""
MAX_NAMES_OF_PROCESS = 4
"""Broker names under which one process (cluster and address) stands: an honest one has one."""
MAX_PROCESSES_OF_CONNECTION = 256
"""A container of brokers registers all of its brokers over one connection."""
MAX_ROWS = 2_000_000
"""Topics of all broker names together: 200 brokers with 10,000 topics each."""
MAX_MAPPINGS = 100_000
"""Static topics of all broker names together; they outlive their brokers."""
MAX_NAME_CHARS = 255
"""Of a broker, a cluster, an address, a zone."""
MAX_TOPIC_CHARS = 1_024
"""A retry topic of POP has the names of a group and a topic in it."""
MAX_FILTERS = 64
"""Filter servers of one broker."""
SPARE_DEADLINES = 64
"""So many entries more than two for each process the heap of deadlines may have, before it is made anew."""
MAX_SETTINGS_CHARS = 4 * 1024 * 1024
"""Of all namespaces, keys and values (codes 100 to 102, 219) together: each change writes them all."""


class _Group(Container[object], Sized, Protocol):
    """What has members."""


def refuse(text: str) -> RequestRefused:
    """The error for what goes beyond a limit."""
    return RequestRefused(ResponseCode.SYSTEM_ERROR, text)


def check_count(what: str, known: _Group, member: object, limit: int) -> None:
    """RequestRefused when a new member would be one too many."""
    if member not in known and len(known) >= limit:
        raise refuse(f"this name server has {len(known)} {what}, and takes no more than {limit}")


def check_total(what: str, present: int, more: int, limit: int) -> None:
    """RequestRefused when so many more would be too many."""
    if present + more > limit:
        raise refuse(f"this name server has {present} {what}, and takes no more than {limit}: {more} more are too many")


def check_said(
    name: str,
    cluster: str,
    address: str,
    ha_address: str,
    zone: str | None,
    filters: Iterable[str],
    topics: Iterable[str],
) -> None:
    """RequestRefused when a registration has a text that is too long, or too many of a kind."""
    for field, text in (
        ("brokerName", name),
        ("clusterName", cluster),
        ("brokerAddr", address),
        ("haServerAddr", ha_address),
        ("zoneName", zone or ""),
    ):
        if len(text) > MAX_NAME_CHARS:
            raise refuse(f"{field} has {len(text)} characters: {MAX_NAME_CHARS} is the limit")
    listed, named = list(filters), list(topics)
    if len(listed) > MAX_FILTERS or any(len(each) > MAX_NAME_CHARS for each in listed):
        raise refuse(f"more than {MAX_FILTERS} filter servers, or an address of more than {MAX_NAME_CHARS} characters")
    if len(named) > MAX_REGISTERED_TOPICS:
        raise refuse(f"{len(named)} topics in one registration: {MAX_REGISTERED_TOPICS} is the limit")
    for topic in named:
        check_topic(topic)


def check_topic(topic: str) -> None:
    """RequestRefused when a topic's name is too long."""
    if len(topic) > MAX_TOPIC_CHARS:
        raise refuse(f"the topic {topic[:64]}… has a name of {len(topic)} characters: {MAX_TOPIC_CHARS} is the limit")
