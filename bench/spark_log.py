"""A store folder read as a table, and the same rows from Parquet and from JSON lines, in one session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_machine import measured

from perseid.wire.host import host_from
from perseid.wire.record import Message, blank, encode, patch

SEGMENT_BYTES = 256 << 20
TOPICS = ("flights", "weather")
QUEUES = 8
T0 = 1_700_000_000_000
SCHEMA = "topic string, queueOffset bigint, storeTimestamp timestamp, tags string"


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


def forms(spark: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """What is compared."""
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
            spark.read.format("perseid-log").option("pushDown", True).load(str(folder / "store"))
            .where("_corrupt is not null")
        ),
    }


def run(spark: Any, folder: Path, records: int, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds and CPU seconds of each form, and its records and bytes: a round reads each once, the best one counts."""
    total = fill(folder / "store" / "commitlog", records, size)
    every = forms(spark, folder)
    rows = every["perseid-log"]()
    rows.write.parquet(str(folder / "parquet"))
    rows.write.json(str(folder / "json"))
    counts = {name: read().count() for name, read in every.items() if "only" not in name}
    assert set(counts.values()) == {records}, counts
    found: dict[str, list[dict[str, float]]] = {name: [] for name in every}
    for _ in range(rounds):
        for name, read in every.items():
            found[name].append(measured(lambda read=read: read().write.format("noop").mode("overwrite").save()))
    return {
        name: {
            **{key: min(one[key] for one in times) for key in ("s", "cpu_s")},
            "records": float(records), "bytes": float(total),
        }
        for name, times in found.items()
    }  # fmt: skip
