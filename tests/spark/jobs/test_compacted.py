"""An archive of a compacted topic has what is there, and no gaps (issue 20, number 8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark import compacted as made
from tests.spark.compacted import TOPIC

from perseid.spark.jobs.archive import archive, read
from perseid.spark.jobs.archive.folder import TableFolder
from perseid.spark.jobs.options import ArchiveOptions
from perseid.spark.jobs.stats import stats
from perseid.spark.jobs.time_travel import time_travel

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def offsets_of(frame: Any) -> list[int]:
    return sorted(row.queueOffset for row in frame.select("queueOffset").collect())


@pytest.mark.parametrize("strict", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_item_8_an_archive_of_a_compacted_topic_lands_what_is_there(
    spark: Any, command: Callable[..., Any], tmp_path: Path, strict: bool
) -> None:
    table = str(tmp_path / "table")
    more = [] if strict else ["--no-fail-on-data-loss"]
    with made.broker_in(tmp_path / "broker") as broker:
        made.make(broker)
        made.send(broker, 3, 3, name="once")
        made.send(broker, 200, 7)
        first = made.compacted(broker, 60)
        broker.stop()  # retention: the log's beginning goes, and three messages are in the compacted queue alone
        sorted(broker.data.rglob("commitlog/0*"))[0].unlink()
        broker.start()
        given = {"nameserver": broker.namesrv, "topic": TOPIC}
        assert offsets_of(spark.read.format("perseid").option("nameserver", broker.namesrv).option(
            "subscribe", TOPIC).option("failOnDataLoss", str(strict).lower()).load()) == first  # fmt: skip
        run = ["archive", TOPIC, table, "--namesrv", broker.namesrv, "--batch-offsets", "50", *more]
        done = command(*run)
        assert done.exit_code == 0, done.output
        assert offsets_of(read(spark, table)) == first and first[:3] == [0, 1, 2]
        made.send(broker, 150, 7, first=200)
        second = [offset for offset in made.compacted(broker, 90) if offset >= 203]
        assert command(*run).exit_code == 0
        assert offsets_of(read(spark, table)) == [*first, *second], "what was landed stays"
        again = archive(spark, table=table, options=ArchiveOptions(fail_on_data_loss=strict), **given)
        assert (again.rows, again.gaps) == (0, ())
        assert [plan.gaps for plan in map(TableFolder(table).plan, TableFolder(table).plans())] == [()] * len(
            TableFolder(table).plans()
        )
        then = time_travel(spark, as_of=1 << 42, table=table, **given)
        assert offsets_of(then) == [*first, *second]
        assert stats(spark, nameserver=broker.namesrv, topics=[TOPIC]).topics[0].records == len(made.there(broker))
