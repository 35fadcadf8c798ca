"""Each worker has ports of its own, for itself and for what it starts. Drawn inputs are the same ones in each run
(`make fuzz` and `make sim` draw new ones), and have no deadlines: a busy machine is no defect."""

import os

import pytest
from hypothesis import settings

import times
from perseid.net import ports

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

FIRST_PORT, LAST_PORT = 10_100, 32_600
"""Below those that the system gives to clients."""
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""Of each JVM that a test starts, Spark's too: it lives for seconds, in which the second compiler only costs."""


def pytest_configure(config: pytest.Config) -> None:
    if recorder := times.plugin():
        config.pluginmanager.register(recorder)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and ports.PORTS not in os.environ:
        each = (LAST_PORT - FIRST_PORT) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        low = FIRST_PORT + int(worker.removeprefix("gw")) * each
        os.environ[ports.PORTS] = f"{low}-{low + each - 20}"


def limit_s(item: pytest.Item) -> float:
    """The time that a test has, which says how long it may last on a slow machine."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout"))
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On several workers those of the longest limits come first, so that none of them is left when all else is done;
    within a limit the order stays a random one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
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
