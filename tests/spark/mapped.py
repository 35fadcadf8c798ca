"""The classes that Spark loads, as a JVM maps them: with such an archive Spark takes two thirds of the CPU to start.

`python -m tests.spark.mapped ARCHIVE` plays what an archive is to have, and has the JVM write it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from functools import cached_property
from pathlib import Path

import pyspark

import perseid.spark
from perseid.spark.java import java_home

ROOT = Path(__file__).parents[2]
OPTIONS = "JDK_JAVA_OPTIONS"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Of a JVM that maps an archive: that it has another classpath, and so does not, is no news."""
MAKE_S = 240.0
TAIL_CHARS = 500


class Mapped:
    """An archive in a folder, of which several processes make one and all use it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._used = folder, False

    @cached_property
    def archive(self) -> Path:
        """Where it is, once it is made."""
        return self._folder / f"spark-classes-{_digest()}.jsa"

    def use(self) -> None:
        """Have all JVMs map it that this process, and what it starts, starts from now on; if it is there by now."""
        if not self._used and self.archive.exists():
            os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} -XX:SharedArchiveFile={self.archive} {QUIET}".strip()
            self._used = True

    def make(self) -> None:
        """Make it, if it is not there and nobody else is at it. Where that can't be, a warning says why."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.archive.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if self.archive.exists():
                return
            fresh = self.archive.with_suffix(".part")
            fresh.unlink(missing_ok=True)
            command = [sys.executable, "-m", "tests.spark.mapped", str(fresh)]
            try:
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MAKE_S)
            except subprocess.TimeoutExpired as error:  # its JVM ends, too, as soon as nobody talks to it
                said = str(error)
            else:
                if not done.returncode and fresh.exists():
                    for old in self._folder.glob("spark-classes-*.jsa"):  # of another Java, or another Spark
                        old.unlink()
                    fresh.rename(self.archive)
                    return
                said = f"{done.stdout[-TAIL_CHARS:]}{done.stderr[-TAIL_CHARS:]}"
            warnings.warn(f"Spark starts slowly, without an archive of its classes: {said}", stacklevel=2)


def _digest() -> str:
    """Of the JVM, of Spark, and of where its jars are, all of which an archive is of."""
    java = str(java_home() / "bin" / "java")
    told = subprocess.run([java, "-version"], capture_output=True, check=True, timeout=60).stderr
    told = b"\n".join(line for line in told.splitlines() if not line.startswith(b"NOTE:"))
    where = f"{java} {pyspark.__path__[0]} {pyspark.__version__}"
    return hashlib.sha256(told + where.encode()).hexdigest()[:12]


def play(archive: str) -> None:
    """A session, a shuffle, tasks in Python, and files; then the JVM ends, which writes the archive."""
    options = f"-XX:ArchiveClassesAtExit={archive}"  # of this JVM, not of the one that makes up its command
    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": options}
    spark = perseid.spark.session("mapped", master="local[2]", config=config)
    spark.range(100).selectExpr("id * 2 AS n", "CAST(id AS string) AS text").groupBy("text").count().collect()
    spark.range(0, 8, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    with tempfile.TemporaryDirectory() as folder:
        spark.range(10).write.parquet(f"{folder}/table")
        assert spark.read.parquet(f"{folder}/table").count() == 10
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()
    jvm.wait(MAKE_S)


if __name__ == "__main__":
    play(sys.argv[1])
