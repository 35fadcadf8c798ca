"""Topics of a running broker: the sink that fills them, the source and a plain Java consumer that read them, and the
archive of a long one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servers import HERE, JAVA_OPTIONS, BenchError, java_jars
from spark_machine import Memory, measured, not_counted

from perseid.client.blocking import BlockingAdmin
from perseid.spark.jobs.archive import archive
from perseid.spark.jobs.options import ArchiveOptions

QUEUES = 8
PLAIN, STAMPED, LONG = "bench-plain", "bench-stamped", "bench-long"
FEW = "queueOffset bigint, timestamp timestamp, tag string, value binary"
VALUE_BYTES = 100
ARCHIVE_OFFSETS = 500_000
PARTS = (0.1, 0.5, 1.0)
STOP_S = 60
JAVA_S = 1800


class Broker:
    """`perseid up` in a process of its own, which does not count."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.namesrv = ""

    def __enter__(self) -> Broker:
        log = (self._folder / "broker.log").open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "perseid.cli.main", "up", "--data", str(self._folder / "broker"), "--json",
                "--namesrv-port", "0", "--broker-port", "0",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        log.close()
        not_counted.add(self._process.pid)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the broker did not start: {(self._folder / 'broker.log').read_text()[-2000:]}")
        self.namesrv = json.loads(line)["namesrv"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def create(self, topic: str) -> None:
        """Make a topic."""
        with BlockingAdmin(self.namesrv) as admin:
            admin.create_topic(topic, QUEUES)


def rows(spark: Any, count: int, size: int) -> Any:
    """So many rows with a body of `size` bytes, a tag and a key, in eight partitions' order."""
    return spark.range(0, count, 1, 2).selectExpr(
        f"rpad(concat('message ', id, ' '), {size}, 'abcdefghijklmnopqrstuvwxyz') AS value",
        "concat('T', id % 4) AS tag", "concat('k', id) AS key",
    )  # fmt: skip


def sink(spark: Any, namesrv: str, topic: str, made: Any, *, stamps: bool) -> None:
    """Write rows to a topic."""
    writer = made.write.format("perseid").mode("append").option("nameserver", namesrv)
    writer.option("topic", topic).option("stamps", str(stamps).lower()).save()


def run_sinks(spark: Any, broker: Broker, count: int, rounds: int) -> dict[str, dict[str, float]]:
    """The sink with stamps and without, beside making the same rows for nobody. The topics hold the first round."""
    found: dict[str, list[dict[str, float]]] = {}
    made = rows(spark, count, VALUE_BYTES)
    for number in range(rounds):
        for name, topic, stamps in (("sink", STAMPED, True), ("sink, stamps=false", PLAIN, False)):
            own = topic if number == 0 else f"{topic}-{number}"
            broker.create(own)
            found.setdefault(name, []).append(
                measured(lambda own=own, stamps=stamps: sink(spark, broker.namesrv, own, made, stamps=stamps))
            )
        nobody = measured(lambda: made.write.format("noop").mode("overwrite").save())
        found.setdefault("the same rows to noop", []).append(nobody)
    return _best(found, count)


def run_sources(spark: Any, broker: Broker, count: int, rounds: int) -> dict[str, dict[str, float]]:
    """The source with all columns and with four, of a plain topic and of a stamped one; a plain Java consumer."""

    def read(topic: str, schema: str | None) -> Callable[[], Any]:
        def work() -> None:
            reader = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", topic)
            (reader.schema(schema) if schema else reader).load().write.format("noop").mode("overwrite").save()

        return work

    forms = {
        "perseid": read(PLAIN, None), "perseid, 4 columns": read(PLAIN, FEW),
        "perseid, stamped": read(STAMPED, None), "perseid, stamped, 4 columns": read(STAMPED, FEW),
    }  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, work in forms.items():
            found.setdefault(name, []).append(measured(work))
    found["plain Java consumer"] = java(broker.namesrv, PLAIN, count, rounds + 1)[1:]
    return _best(found, count)


def java(namesrv: str, topic: str, count: int, times: int) -> list[dict[str, float]]:
    """What a stock Java consumer takes to read a topic, each time in the same JVM: the first warms it up."""
    command = ["java", "-Xmx1g", *JAVA_OPTIONS, "-cp", f"{java_jars()}/*", str(HERE / "Consume.java")]
    done = subprocess.run(
        [*command, namesrv, topic, str(count), str(times), "bench_consume_"], capture_output=True, text=True,
        timeout=JAVA_S,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    found = [line for line in lines if len(line) == 4 and all(part.isdigit() for part in line)]
    if len(found) != times:
        raise BenchError(f"the Java consumer ended with {done.returncode}: {done.stderr[-2000:]}")
    return [{"s": int(nanos) / 1e9, "cpu_s": int(cpu) / 1e9} for _, nanos, cpu, _ in found]


def run_archive(spark: Any, broker: Broker, folder: Path, count: int) -> dict[str, Any]:
    """An archive of a long topic in one run: how fast, and what was in RAM until a tenth, half, and all of it."""
    broker.create(LONG)
    sink(spark, broker.namesrv, LONG, rows(spark, count, VALUE_BYTES), stamps=False)
    progress: list[tuple[float, int]] = []
    landed = 0
    with Memory() as memory:

        def on_batch(_: int, more: int, repeats: int) -> None:
            nonlocal landed
            landed += more
            progress.append((memory.elapsed(), landed))

        table = str(folder / "archive")
        times = measured(lambda: archive(
            spark, nameserver=broker.namesrv, topic=LONG, table=table,
            options=ArchiveOptions(batch_offsets=ARCHIVE_OFFSETS), on_batch=on_batch,
        ))  # fmt: skip
        end = memory.elapsed()
    if landed != count:
        raise BenchError(f"{landed} messages landed of {count}")
    marks = []
    for part in PARTS:
        at = next((seconds for seconds, there in progress if there >= part * count), end)
        jvm, workers = memory.until(at)
        marks.append({"part": part, "s": at, "jvm_bytes": jvm, "workers_bytes": workers})
    return {**times, "records": count, "marks": marks}


def _best(found: dict[str, list[dict[str, float]]], count: int) -> dict[str, dict[str, float]]:
    return {
        name: {**{key: min(one[key] for one in times) for key in ("s", "cpu_s")}, "records": float(count)}
        for name, times in found.items()
    }
