"""Failures of Spark's tasks, with the texts of the errors that they raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from perseid.base.errors import PerseidError

_LINE = re.compile(r"^(?:[\w.]+: )?perseid(?:\.\w+)+: (.+)$", re.MULTILINE)
"""The last line of a traceback of ours."""


class TaskFailed(PerseidError):
    """A task of Spark's failed for a reason of ours."""


@contextmanager
def told() -> Iterator[None]:
    """Errors of ours that Spark wraps come out as TaskFailed with their own text; any other goes on as it is."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = _LINE.findall(str(error))
        if not found:
            raise
        raise TaskFailed(found[-1]) from error
