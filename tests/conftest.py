"""Each worker has ports of its own, for itself and for what it starts. Drawn inputs are the same ones in each run
(`make fuzz` and `make sim` draw new ones), and have no deadlines: a busy machine is no defect."""

import os
import signal
import sys
from collections.abc import Iterator
from hashlib import sha256

import pytest
from hypothesis import settings

import times
from perseid.net import ports

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

FIRST_PORT, LAST_PORT = 10_100, 32_600
"""Below those that the system gives to clients."""
MAX_ID = 60
"""Characters of a value in a test's name."""
LONG = "PERSEID_LONG"
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""Of each JVM that a test starts, Spark's too: it lives for seconds, in which the second compiler only costs."""
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Containers often set it. Each worker then rewrites all tests at each run, and each server compiles its modules before
it starts: three quarters of what collecting takes, and half of what a start does."""


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if recorder := times.plugin():
        config.pluginmanager.register(recorder)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and ports.PORTS not in os.environ:
        each = (LAST_PORT - FIRST_PORT) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        low = FIRST_PORT + int(worker.removeprefix("gw")) * each
        os.environ[ports.PORTS] = f"{low}-{low + each - 20}"


def pytest_make_parametrize_id(val: object) -> str | None:
    """A short name of a value that is long: each worker tells the names of all tests first, and one had 20 MB."""
    if not isinstance(val, str | bytes) or len(val) <= MAX_ID:
        return None
    raw = val.encode(errors="surrogatepass") if isinstance(val, str) else val
    return f"{val[: MAX_ID // 2]!a}...{sha256(raw).hexdigest()[:8]}"


def limit_s(item: pytest.Item) -> float:
    """The time that a test has, which says how long it may last on a slow machine."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout"))
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


def is_long(item: pytest.Item) -> bool:
    """By a mark of its own, which can be taken off; one of its whole module can't."""
    return any(mark.name == "long" for mark in item.own_markers)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Some tests that are `long` are played as if they weren't: so many as `PERSEID_LONG=COUNT:WORD` says of those of
    real parts, and as many of the others, drawn from the word."""
    count, _, word = (os.environ.get(LONG) or "0:").partition(":")
    for real in (True, False):
        long = [item for item in items if is_long(item) and bool(item.get_closest_marker("interop")) == real]
        long.sort(key=lambda item: sha256(f"{word} {item.nodeid.partition('@')[0]}".encode()).digest())
        for item in long[: int(count)]:
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "long"]
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:  # of the longest limits first: none of them is left when all else is done
        items.sort(key=limit_s, reverse=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A group (one JVM, one built wheel) has to stay on one worker; a pytest and an xdist that don't fit part it in
    silence."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            raise pytest.UsageError(f"{item.nodeid} is not in its group: this pytest and this pytest-xdist don't fit")
