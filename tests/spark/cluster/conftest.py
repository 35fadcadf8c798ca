"""One cluster for the tests of this folder, and a driver on it for each file of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.cluster.session import Driver
from tests.spark.cluster.standalone import Standalone

from perseid.spark.package import package


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="package")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `perseid spark package` ships."""
    return package(tmp_path_factory.mktemp("package") / "perseid-env.tar.gz").path


@pytest.fixture(scope="module")
def driver(
    cluster: Standalone, packaged: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Driver]:
    """One for a module, with the settings of Spark that it names (SETTINGS)."""
    running = Driver(cluster, packaged, tmp_path_factory.mktemp("driver"), request.module.SETTINGS)
    try:
        assert running.answer() == {"up": True}
        yield running
    finally:
        running.end()
