"""The columns of an archive, and its rows as Spark's tasks make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from perseid.spark import plan, schema
from perseid.spark.jobs.archive.bodies import BodySchema, decoded
from perseid.spark.jobs.archive.folder import GENERATION, TableInfo
from perseid.spark.options import SourceOptions
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, RangeReport, read_range

COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tag", "keys", "value",
    "properties", "msgId", "flag", "sysFlag", "reconsumeTimes", "bornHost", "storeHost", "physicalOffset",
)  # fmt: skip
"""Of the source's columns those that say something of their own."""
PLACE = ("brokerName", "queueId", "queueOffset")
"""What each row has alone."""
PAYLOAD, CORRUPT = "payload", "_corrupt"
"""With a schema: the decoded body, and why a body did not decode."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """The shape of rows: with or without a decoded body. `keep_value`: the body as it was sent too, where it decoded.
    `generation`: what rows that are made have in the column of that name; None: there is none."""

    bodies: BodySchema | None = None
    keep_value: bool = True
    generation: int | None = None

    def arrow(self) -> Any:
        """The Arrow schema."""
        fields = list(schema.arrow_schema(COLUMNS))
        if self.generation is not None:
            fields.append(pa.field(GENERATION, pa.int32()))
        if self.bodies is not None:
            fields += [pa.field(PAYLOAD, self.bodies.decoder().kind), pa.field(CORRUPT, pa.string())]
        return pa.schema(fields)

    def spark(self) -> Any:
        """The same as Spark's."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.arrow())


class Shaper:
    """Makes rows of a shape of record batches with COLUMNS."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._decoder = None if shape.bodies is None else shape.bodies.decoder()
        self._schema = shape.arrow()

    def shaped(self, batch: Any) -> Any:
        """The rows with the number of their generation, and with their bodies decoded, if there is a schema."""
        if self._shape.generation is not None:
            number = pa.repeat(pa.scalar(self._shape.generation, pa.int32()), batch.num_rows)
            batch = batch.append_column(pa.field(GENERATION, pa.int32()), number)
        if self._decoder is None:
            return batch
        at = batch.schema.get_field_index("value")
        payload, reasons = decoded(self._decoder, batch.column(at).to_pylist())
        columns = list(batch.columns)
        corrupt = pa.array(reasons, pa.string())
        if not self._shape.keep_value:
            columns[at] = pc.if_else(corrupt.is_valid(), columns[at], pa.scalar(None, pa.binary()))
        return pa.RecordBatch.from_arrays([*columns, payload, corrupt], schema=self._schema)


def shape_of(info: TableInfo, generation: int = 1) -> RowShape:
    """The shape of a table's rows; new ones are of this generation."""
    return RowShape(info.schema, info.keep_value, generation if info.numbered else None)


def rows_of(
    options: SourceOptions, part: plan.Range, shaper: Shaper, report: RangeReport | None = None
) -> Iterator[Any]:
    """The rows of a range of a queue, as record batches. DataLost when messages of it are gone. `report` is told what
    is left out."""
    for batch in read_range(options, list(COLUMNS), QueueRange(part), Pushed(), report):
        yield shaper.shaped(batch)
