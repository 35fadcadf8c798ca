"""A driver on the cluster, in a process of its own: it does what it is told on stdin, one JSON object a line, and
answers so on stdout.

    python -m tests.spark.cluster.driver MASTER SETTINGS

`{"words": ["archive", …]}` is `perseid spark archive …` in this driver's session; `{"copy": {…}}` a stream from topic
to topic; `{"where": true}` tells where executors have perseid from.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from tests.spark.jobs.conftest import Kept
from typer.testing import CliRunner

import perseid.spark
from perseid.cli.main import app

STREAM_S = 300


def where(batches: Iterable[Any]) -> Iterator[Any]:
    """In a task: its Python, and its perseid."""
    import pyarrow as pa

    import perseid
    from perseid import core

    for _ in batches:
        yield pa.RecordBatch.from_pydict({
            "python": [sys.prefix], "perseid": [perseid.__file__], "compiled": [core.is_compiled],
        })  # fmt: skip


def copy(spark: Any, *, namesrv: str, source: str, target: str, checkpoint: str, most: int, at_once: int) -> None:
    """All that a topic holds, as a stream; each message tells where it came from."""
    read = spark.readStream.format("perseid").option("nameserver", namesrv).option("subscribe", source)
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(most)).load()
    rows = read.selectExpr("value", "keys", "keys AS orderingKey")
    write = rows.writeStream.format("perseid").option("nameserver", namesrv).option("topic", target)
    write = write.option("batchMessages", str(at_once)).option("checkpointLocation", checkpoint)
    query = write.trigger(availableNow=True).start()
    if not query.awaitTermination(STREAM_S):
        query.stop()
        raise TimeoutError(f"the stream did not end within {STREAM_S} s")


def answer(spark: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Do it."""
    if "words" in asked:
        done = CliRunner().invoke(app, ["spark", *asked["words"]])
        return {"status": done.exit_code, "out": done.stdout, "err": done.stderr}
    if "copy" in asked:
        copy(spark, **asked["copy"])
        return {}
    rows = spark.range(0, 8, 1, 8).mapInArrow(where, "python string, perseid string, compiled boolean").collect()
    return {"rows": [row.asDict() for row in rows]}


def main() -> None:
    """Serve until stdin ends."""
    spark = perseid.spark.session("on a cluster", master=sys.argv[1], config=json.loads(sys.argv[2]))
    spark.sparkContext.setLogLevel("ERROR")
    perseid.spark.session = lambda *_, **__: Kept(spark)
    print(json.dumps({"up": True}), flush=True)
    for line in sys.stdin:
        try:
            told = answer(spark, json.loads(line))
        except Exception:
            told = {"failed": traceback.format_exc()}
        print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
