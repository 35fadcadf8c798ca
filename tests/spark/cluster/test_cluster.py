"""A cluster whose workers have nothing of ours but what is shipped to them, do not share a folder, and are killed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.combinations import in_ci
from tests.spark.cluster.sending import BATCH_ROWS, BATCHES, bodies, fill_much, held, stop_one_that_sends
from tests.spark.cluster.session import Driver
from tests.spark.cluster.standalone import WORKERS, Standalone
from tests.spark.conftest import fill
from tests.spark.jobs.tables import FORMATS, places_outside

from perseid.spark.jobs.archive import formats
from perseid.spark.jobs.archive.folder import TableFolder
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark cluster"), pytest.mark.timeout(600)
]  # fmt: skip

SETTINGS: dict[str, str] = {}
"""Of Spark, for the driver of this module."""


def test_workers_have_perseid_from_what_was_shipped_alone(cluster: Standalone, driver: Driver) -> None:
    for module in ("perseid", "msgspec", "lz4"):
        found = subprocess.run(
            [cluster.python, "-c", f"import {module}"], env=cluster.environment, capture_output=True, text=True
        )  # fmt: skip
        assert found.returncode == 1 and f"No module named '{module}'" in found.stderr
    driver.begin(where=True)
    rows = driver.answer()["rows"]
    assert {row["python"] for row in rows} == {str(cluster.python.parents[1])}
    folders = {row["perseid"] for row in rows}
    assert all("/perseid-env/perseid/__init__.py" in folder and "/worker-" in folder for folder in folders), folders


@pytest.mark.parametrize("form", in_ci(FORMATS, "parquet"))
@pytest.mark.parametrize("hidden", [WORKERS, WORKERS[:1]], ids=["of all workers", "of one worker"])
def test_item_1_a_table_in_a_folder_of_which_workers_see_another_gets_nothing(
    cluster: Standalone, driver: Driver, broker: EmbeddedBroker, tmp_path: Path, form: str, hidden: tuple[int, ...]
) -> None:
    topic, table = f"apart-{form}-{len(hidden)}", tmp_path / "t"
    words = (topic, table, "-n", broker.namesrv, "--format", form, "--batch-offsets", 60, "--json")
    fill(broker, topic, 60)
    driver.archive(*words)
    assert driver.answer()["status"] == 0
    folder = TableFolder(table)
    before = formats.of(folder, folder.known()).snapshot()
    fill(broker, topic, 120, start=60)
    with cluster.another_folder(table, *hidden):
        driver.archive(*words)
        said = driver.answer()
    assert said["status"] == 1 and said["err"].count("\n") == 1, said
    assert re.search(r"\d of the \d files that Spark's tasks wrote are not here", said["err"])
    assert "put the table on a file system that all of them mount" in said["err"]
    assert formats.of(folder, folder.known()).snapshot() == before
    driver.archive(*words)
    said = driver.answer()
    assert said["status"] == 0, said
    assert json.loads(said["out"].splitlines()[-1])["rows"] == 120
    found = places_outside(table)
    assert len(found) == len(set(found)) == 180


def test_an_archive_whose_worker_is_killed_ends_well_on_the_other(
    cluster: Standalone, driver: Driver, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    count, table = 160_000, tmp_path / "t"  # sixteen batches of two files, one of which is to be caught open
    fill_much(broker, "worker-killed", count, 2)
    driver.archive("worker-killed", table, "-n", broker.namesrv, "--batch-offsets", 10_000, "--json")
    number, _, begun = cluster.stop_one_that_writes(".parquet")
    with cluster.killed(number):
        said = driver.answer()
    assert said["status"] == 0 and json.loads(said["out"].splitlines()[-1])["rows"] == count, said
    found = places_outside(table)
    assert len(found) == len(set(found)) == count
    assert begun.name not in {path.name for path in (table / "data").rglob("*.parquet")}, "it was cut off"


@pytest.mark.long
def test_a_sink_whose_worker_is_killed_has_each_row_once_for_its_readers(
    cluster: Standalone, driver: Driver, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    count, target = BATCHES * BATCH_ROWS, "copied-by-killed"
    fill_much(broker, "sink-killed", count, 2)
    broker.create_topic(target, 2)
    driver.copy(broker.namesrv, "sink-killed", target, tmp_path / "checkpoint", BATCH_ROWS, 2)
    number = stop_one_that_sends(cluster, broker, target)
    with cluster.killed(number):
        driver.answer()
    assert held(broker, target) > count, "what the killed one had sent was sent again"
    assert bodies(broker, target) == sorted(b"body %d" % i for i in range(count))
