"""Rows and bytes a second that Spark reads: a store folder, and the same rows from Parquet and from JSON lines.

    python bench/spark.py [--records 4000000] [--bytes 256] [--rounds 3] [--folder DIR] [--json FILE]

All in one session, on two cores. A round reads each form once, in turn; the best round counts. What is read goes to
Spark's `noop` sink, so that every column of every row is made and nothing is written. CPU is that of Spark's JVM and
its Python workers, which says more than the clock on a machine that others use too. MB are those of the log.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perseid.spark
from perseid import core
from perseid.wire.host import host_from
from perseid.wire.record import Message, blank, encode, patch

SEGMENT_BYTES = 256 << 20
TOPICS = ("flights", "weather")
QUEUES = 8
T0 = 1_700_000_000_000
SCHEMA = "topic string, queueOffset bigint, storeTimestamp timestamp, tags string"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def fill(folder: Path, records: int, size: int) -> int:
    """Write a log of so many records of `size` bytes each; its bytes."""
    folder.mkdir(parents=True)
    heads = [_head(topic, size) for topic in TOPICS]
    number = place = 0
    while number < records:
        start, parts = place, []
        while number < records and place + size + 8 <= start + SEGMENT_BYTES:
            one = bytearray(heads[number & 1])
            one[15] = number % QUEUES
            patch(one, number // QUEUES, place, T0 + number // 100)
            parts.append(bytes(one))
            number += 1
            place += size
        left = start + SEGMENT_BYTES - place
        data = b"".join(parts)
        with (folder / f"{start:020d}").open("wb") as file:
            file.write(data)
            if number < records:
                file.write(blank(left))
            file.truncate(SEGMENT_BYTES)
        place = place if number == records else start + SEGMENT_BYTES
    return place


def _head(topic: str, size: int) -> bytearray:
    properties = b"UNIQ_KEY\x017F0000010A2B18B4AAC2000000000000\x02TAGS\x01TagA\x02KEYS\x01key1\x02WAIT\x01true\x02"
    message = Message(
        topic=topic, body=b"", properties=properties, born_timestamp=T0,
        born_host=host_from("10.0.0.7:50123"), store_host=host_from("10.0.0.9:10911"),
    )  # fmt: skip
    message.body = bytes(range(65, 91)) * 400
    message.body = message.body[: max(1, size - len(encode(message)) + len(message.body))]
    found = encode(message)
    assert len(found) == size, f"a record of {len(found)} bytes: --bytes is too small"
    return found


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended too."""
    parents, times = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(words[1])
            times[int(entry.name)] = sum(map(int, words[11:15])) / CLOCK_TICKS
    mine, more = {os.getpid()}, True
    while more:
        found = {pid for pid, parent in parents.items() if parent in mine} - mine
        mine |= found
        more = bool(found)
    return sum(times.get(pid, 0.0) for pid in mine)


def measured(read: Callable[[], Any]) -> dict[str, float]:
    """Read once: seconds, and CPU seconds."""
    cpu, begin = cpu_s(), time.perf_counter()
    read().write.format("noop").mode("overwrite").save()
    return {"s": time.perf_counter() - begin, "cpu_s": cpu_s() - cpu}


def forms(spark: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """What is compared. `perseid`, from a running broker, comes beside these."""
    log = spark.read.format("perseid-log").load(str(folder / "store"))
    schema = log.schema
    return {
        "perseid-log": lambda: spark.read.format("perseid-log").load(str(folder / "store")),
        "json lines": lambda: spark.read.schema(schema).json(str(folder / "json")),
        "parquet": lambda: spark.read.parquet(str(folder / "parquet")),
        "perseid-log, 4 columns": lambda: spark.read.format("perseid-log").schema(SCHEMA).load(str(folder / "store")),
        "json lines, 4 columns": lambda: spark.read.schema(SCHEMA).json(str(folder / "json")),
        "parquet, 4 columns": lambda: spark.read.schema(SCHEMA).parquet(str(folder / "parquet")),
        "perseid-log, damage only": lambda: (
            spark.read.format("perseid-log").load(str(folder / "store")).where("_corrupt is not null")
        ),
    }


def run(folder: Path, records: int, size: int, rounds: int) -> dict[str, Any]:
    """The figures of each form: the best of the rounds."""
    total = fill(folder / "store" / "commitlog", records, size)
    spark = perseid.spark.session("bench", master="local[2]", config={"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        every = forms(spark, folder)
        rows = every["perseid-log"]()
        rows.write.parquet(str(folder / "parquet"))
        rows.write.json(str(folder / "json"))
        counts = {name: read().count() for name, read in every.items() if "only" not in name}
        assert set(counts.values()) == {records}, counts
        found: dict[str, list[dict[str, float]]] = {name: [] for name in every}
        for _ in range(rounds):
            for name, read in every.items():
                found[name].append(measured(read))
    finally:
        spark.stop()
    best = {name: {key: min(one[key] for one in times) for key in ("s", "cpu_s")} for name, times in found.items()}
    return {
        "records": records,
        "bytes": total,
        "compiled": core.compiled is not None,
        "forms": {
            name: {
                **one,
                "rows_s": records / one["s"],
                "mb_s": total / one["s"] / 1e6,
                "rows_cpu_s": records / one["cpu_s"],
            }
            for name, one in best.items()
        },
    }


def main() -> None:
    """Run it and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=4_000_000)
    options.add_argument("--bytes", type=int, default=256, help="of one record")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, help="where the files go: empty, or not there yet; kept afterwards")
    options.add_argument("--json", type=Path, help="the figures, for scripts")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        done = run(given.folder or Path(temporary), given.records, given.bytes, given.rounds)
    print(f"{done['records']:,} records of {given.bytes} bytes, two cores, best of {given.rounds}")
    print(f"{'':26}{'rows/s':>12}{'MB/s':>9}{'rows/CPU-s':>13}{'s':>8}{'CPU s':>8}")
    for name, one in done["forms"].items():
        speeds = f"{one['rows_s']:12,.0f}{one['mb_s']:9.1f}{one['rows_cpu_s']:13,.0f}"
        print(f"{name:26}{speeds}{one['s']:8.2f}{one['cpu_s']:8.2f}")
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
