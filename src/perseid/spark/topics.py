"""The names of topics, for errors and for patterns."""

from __future__ import annotations

import difflib
import logging
import re

from perseid.base.errors import PerseidError
from perseid.client.blocking import BlockingAdmin
from perseid.spark.keys import Link
from perseid.wire.names import is_of_group

log = logging.getLogger("perseid.spark")


def matching(nameserver: str, pattern: str, link: Link) -> list[str]:
    """The topics that a pattern matches as a whole; sorted.

    Never those of the system. Retry topics and dead letters, whose names begin with `%`, only by a pattern with a `%`
    in it: they hold copies of messages, which nobody wants who asks for all topics.
    """
    matches = re.compile(pattern).fullmatch
    with BlockingAdmin(nameserver, **link) as admin:
        names = admin.user_topics()
        if "%" in pattern:
            names += [name for name in admin.topic_list() if is_of_group(name)]
    return sorted(name for name in names if matches(name))


def like(nameserver: str, topic: str, link: Link) -> str:
    """`; did you mean 'x'?` for the end of an error about a topic that is not there; empty when nothing is like it."""
    try:
        with BlockingAdmin(nameserver, **link) as admin:
            close = difflib.get_close_matches(topic, admin.user_topics(), n=1)
    except PerseidError as error:
        log.info("no list of topics: %s", error)
        return ""
    return f"; did you mean {close[0]!r}?" if close else ""
