"""The sink's batches by the core, as it was compiled and as plain Python: the same bytes as without it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from perseid import core
from perseid.client.model import MAX_PROPERTIES_BYTES, MessageQueue
from perseid.spark import sink_options
from perseid.spark.encode import BatchPartition, Encoder, Layout
from perseid.spark.sink_options import SinkError
from perseid.testing.cores import core_from

QUEUES = tuple(MessageQueue("t", "a", n) for n in range(3))
SOURCE = core_from(Path(core.__file__).parent).items
WAYS = [pytest.param(SOURCE, id="source")]
if core.is_compiled:
    WAYS.append(pytest.param(core.installed.items, id="compiled"))


def emitted(module: Any, batches: list[Any], **options: str) -> list[tuple[MessageQueue, bytes, str]]:
    parsed = sink_options.parse({"nameserver": "h:1", "topic": "t", **options})
    columns = {"value": "value", **{name: name for name in ("tag", "key", "delay") if name in batches[0].schema.names}}
    found: list[tuple[MessageQueue, bytes, str]] = []
    encoder = Encoder(
        parsed, columns, BatchPartition("q", 7, 2), lambda topic: Layout(QUEUES, (5, 6, 7)),
        lambda queue, packed: found.append((queue, packed.body, packed.properties)), module,
    )  # fmt: skip
    for batch in batches:
        encoder.add(batch)
    encoder.finish()
    return found


def drawn(random: Random, rows: int, *, delays: bool) -> Any:
    columns: dict[str, Any] = {
        "value": [random.randbytes(random.choice([1, 7, 200, 256, 257, 5000])) for _ in range(rows)],
        "tag": [random.choice(["", "a", "ä", None]) for _ in range(rows)],
        "key": [f"k{random.randrange(9)}" for _ in range(rows)],
    }
    if delays:
        columns["delay"] = pa.array([random.choice([0, 0, 3]) for _ in range(rows)], pa.int32())
    return pa.record_batch(columns)


@pytest.mark.parametrize("module", WAYS)
@pytest.mark.parametrize("options", [{}, {"stamps": "false"}, {"batchMessages": "7"}, {"batchBytes": "6000"}])
def test_the_core_makes_the_same_batches(module: Any, options: dict[str, str]) -> None:
    random = Random(str(options))
    batches = [drawn(random, rows, delays=rows == 40).slice(rows // 5) for rows in (90, 1, 40, 120)]
    batches = [batch.select(["value", "tag", "key"]) for batch in batches]
    assert emitted(module, batches, **options) == emitted(None, batches, **options)
    delayed = [drawn(random, 60, delays=True)]
    assert emitted(module, delayed, **options) == emitted(None, delayed, **options)
    bare = [batch.select(["value"]) for batch in batches]
    assert emitted(module, bare, **options) == emitted(None, bare, **options)


@pytest.mark.parametrize("module", [None, *WAYS])
def test_properties_that_are_too_long_fail_by_name(module: Any) -> None:
    batch = pa.record_batch({"value": ["a", "b", "c"], "tag": ["x", "y" * MAX_PROPERTIES_BYTES, "z"]})
    with pytest.raises(SinkError, match=f"the limit is {MAX_PROPERTIES_BYTES}"):
        emitted(module, [batch])
