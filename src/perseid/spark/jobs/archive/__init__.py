"""Land a topic as a table (Parquet, Delta, Iceberg), each message once, restartable at any point; and read it back.

`job` is the run, `table` the reading of what it made, `folder` says what lies where and why that is exactly once,
`formats`, `delta` and `iceberg` how each format commits, `files` what Spark's tasks do, `bodies` how bodies decode.
"""

from perseid.spark.jobs.archive.compaction import Compacted, compact
from perseid.spark.jobs.archive.job import Archived, archive
from perseid.spark.jobs.archive.table import read

__all__ = ["Archived", "Compacted", "archive", "compact", "read"]
