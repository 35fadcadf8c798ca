"""Each worker has ports of its own, for itself and for what it starts. Drawn inputs are the same ones in each run
(`make fuzz` and `make sim` draw new ones), and have no deadlines: a busy machine is no defect."""

import os

import pytest
from hypothesis import settings

from perseid.net import ports

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

FIRST_PORT, LAST_PORT = 10_100, 32_600
"""Below those that the system gives to clients."""


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and ports.PORTS not in os.environ:
        each = (LAST_PORT - FIRST_PORT) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        low = FIRST_PORT + int(worker.removeprefix("gw")) * each
        os.environ[ports.PORTS] = f"{low}-{low + each - 20}"
