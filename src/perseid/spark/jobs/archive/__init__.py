"""Land a topic as a table (Parquet, Delta, Iceberg), each message once, restartable at any point; and read it back.

`job` is what is asked for, `run` the run, `resuming` where it goes on, `contents` which rows a table holds, `table` the
reading of what it made, `folder` says what lies where and why that is exactly once, `formats`, `delta` and `iceberg`
how each format commits, `files` what Spark's tasks do, `bodies` how bodies decode.
"""

from perseid.spark.jobs.archive.compaction import Compacted, compact
from perseid.spark.jobs.archive.job import archive
from perseid.spark.jobs.archive.run import Archived
from perseid.spark.jobs.archive.table import read
from perseid.spark.jobs.options import ArchiveOptions

__all__ = ["ArchiveOptions", "Archived", "Compacted", "archive", "compact", "read"]
