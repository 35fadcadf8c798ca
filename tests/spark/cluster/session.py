"""A driver on the cluster (`driver`), as its tests see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pyspark
from tests.spark.cluster.standalone import Standalone

from perseid.spark.package import ENVIRONMENT

ROOT = Path(__file__).parents[3]
ANSWER_S, END_S = 200.0, 60.0
TAIL_CHARS = 4000


class Driver:
    """A driver that runs on the cluster, and has all its cores."""

    def __init__(self, cluster: Standalone, packaged: Path, folder: Path, settings: dict[str, str]) -> None:
        settings = {
            "spark.archives": f"{packaged}#{ENVIRONMENT}", "spark.executorEnv.PYTHONPATH": ENVIRONMENT,
            "spark.executor.memory": "600m", "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(folder / "local"), **settings,
        }  # fmt: skip
        own = [str(ROOT), str(ROOT / "src"), str(Path(pyspark.__path__[0]).parent)]
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster.driver", cluster.master, json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
                env={
                    **os.environ, "JAVA_HOME": cluster.environment["JAVA_HOME"], "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": str(cluster.python), "PYTHONPATH": os.pathsep.join(own),
                },
            )  # fmt: skip
        self._heard: Queue[dict[str, Any]] = Queue()
        self._listener = threading.Thread(target=self._listen, name="driver on a cluster")
        self._listener.start()

    def begin(self, **asked: Any) -> None:
        """Have it do something; what comes of it is the next `answer`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What came of it. AssertionError when it failed, or does not answer."""
        try:
            told = self._heard.get(timeout=ANSWER_S)
        except Empty:
            raise AssertionError(f"the driver did not answer within {ANSWER_S:.0f} s: {self._tail()}") from None
        assert "failed" not in told, f"{told['failed']}\n{self._tail()}"
        return told

    def archive(self, *words: object) -> None:
        """Begin `perseid spark archive …`."""
        self.begin(words=["archive", *map(str, words)])

    def copy(self, namesrv: str, source: str, target: str, checkpoint: Path, most: int, at_once: int) -> None:
        """Begin a stream from topic to topic, with batches of so many rows, of which so many are sent at once."""
        told = {"namesrv": namesrv, "source": source, "target": target, "checkpoint": str(checkpoint)}
        self.begin(copy={**told, "most": most, "at_once": at_once})

    def end(self) -> None:
        """End it, and with it its executors."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(json.loads(line))
        self._heard.put({"failed": f"the driver ended with {self._process.wait()}"})

    def _tail(self) -> str:
        return f"{self._log} ends with:\n{self._log.read_text(errors='replace')[-TAIL_CHARS:]}"
