"""Clusters that authenticate and authorize: one of each kind for the folder's tests, standing while none has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rig
import secured
from secured import IMPLS
from shared import Shared


@pytest.fixture(scope="session")
def secured_clusters(workshop: Path) -> Iterator[Shared]:
    made = Shared(lambda impl: secured.cluster(f"secured-{impl}", impl, workshop))
    yield made
    ends = made.end()
    assert not any(ends.values()), f"exit codes after SIGTERM: {ends}"


@pytest.fixture(params=IMPLS, ids=[f"on_{impl}" for impl in IMPLS])
def secured_cluster(request: pytest.FixtureRequest, secured_clusters: Shared) -> Iterator[rig.Cluster]:
    """The real thing, then ours, with users and policies."""
    with secured_clusters.lent(request.param) as cluster:
        yield cluster


@pytest.fixture
def java_secured(secured_clusters: Shared) -> Iterator[rig.Cluster]:
    """Java RocketMQ 5.5.0 with users and policies."""
    with secured_clusters.lent("java") as cluster:
        yield cluster
