"""A shared cluster's Java broker stands while no test has it; no Java is needed to see that."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
import shared


class Standing(rig.Process):
    """Any process in the place of a server."""

    def _start(self) -> rig.Process:
        self._child = subprocess.Popen(["sleep", "600"])
        return self

    @property
    def stands(self) -> bool:
        assert self._child is not None
        return Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _cluster(kind: str, folder: Path) -> rig.Cluster:
    of = [Standing(role, kind, folder / role, {"listenPort": 1}) for role in ("namesrv", "broker")]
    for process in of:
        process.start()
    return rig.Cluster(kind, of[0].address, of[1].address, kind, folder, *of)


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[shared.Shared]:
    made = shared.Shared(lambda kind: _cluster(kind, tmp_path))
    yield made
    made.end()


def stands(process: rig.Process) -> bool:
    assert isinstance(process, Standing)
    return process.stands


def test_a_java_broker_runs_while_its_cluster_is_lent_and_stands_afterwards(clusters: shared.Shared) -> None:
    with clusters.lent("java") as first:
        broker, names = first.broker_process, first.namesrv_process
        with clusters.lent("java") as again:
            assert again is first
        rig.until("both run", lambda: not stands(broker) and not stands(names))
    rig.until("the broker stands", lambda: stands(broker))
    assert not stands(names)
    with clusters.lent("java"):
        rig.until("it runs again", lambda: not stands(broker))
    clusters.end()
    assert not broker.running and not names.running


def test_it_breathes_before_its_name_server_forgets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared.REST_S + shared.BREATH_S + 10 < 120 / 2, "two breaths may fail"
    monkeypatch.setattr(shared, "REST_S", 0.2)
    monkeypatch.setattr(shared, "BREATH_S", 0.2)
    made = shared.Shared(lambda kind: _cluster(kind, tmp_path))
    with made.lent("java") as cluster:
        broker = cluster.broker_process
    try:
        for _ in range(2):
            rig.until("it stands", lambda: stands(broker))
            rig.until("it breathes", lambda: not stands(broker))
    finally:
        made.end()


def test_our_broker_never_stands(clusters: shared.Shared) -> None:
    with clusters.lent("perseid") as cluster:
        pass
    assert not stands(cluster.broker_process)
