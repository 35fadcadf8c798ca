"""The names of topics, for errors and for patterns."""

from __future__ import annotations

import difflib
import logging

from perseid.base.errors import PerseidError
from perseid.client.blocking import BlockingAdmin

log = logging.getLogger("perseid.spark")

SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_")


def names(nameserver: str) -> list[str]:
    """The topics of a cluster, without those of the brokers themselves; sorted."""
    with BlockingAdmin(nameserver) as admin:
        return sorted(name for name in admin.topic_list() if not name.startswith(SYSTEM_PREFIXES))


def like(nameserver: str, topic: str) -> str:
    """`; did you mean 'x'?` for the end of an error about a topic that is not there; empty when nothing is like it."""
    try:
        close = difflib.get_close_matches(topic, names(nameserver), n=1)
    except PerseidError as error:
        log.info("no list of topics: %s", error)
        return ""
    return f"; did you mean {close[0]!r}?" if close else ""
