"""docs/spark-cluster.md, as it stands there: a standalone cluster, spark-submit, and Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest

from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.net.ports import free_port
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("cluster of Spark"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "spark-cluster.md"
COUNT, CARRIERS = 1200, ("AA", "B6", "UA")
WORKERS_S, CONNECT_S, RUN_S = 120.0, 180.0, 400.0
WHERE = """
import perseid.spark

spark = perseid.spark.session("where")

def where(batches):
    import pyarrow as pa
    from perseid import core
    import perseid
    yield pa.RecordBatch.from_pydict({"path": [perseid.__file__], "core": [core.compiled is not None]})

for row in spark.range(0, 2, 1, 2).mapInArrow(where, "path string, core boolean").collect():
    print("executor", row.path, row.core)
"""


class Guide:
    """The guide's commands, each in a shell that has what the first one exported; what they start ends with this."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        text = GUIDE.read_text()
        self.ports = {"7077": str(free_port()), "15002": str(free_port())}
        for was, now in {"127.0.0.1:9876": namesrv, **self.ports}.items():
            assert was in text, f"{GUIDE} does not name {was}"
            text = text.replace(was, now)
        self.shell = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        (self.python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self._folder = folder
        self._begun: list[subprocess.Popen[str]] = []
        bin_folder = Path(sys.executable).parent
        self.env = {
            **os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "SPARK_LOG_DIR": str(folder / "logs"), "SPARK_LOCAL_DIRS": str(folder / "local"),
        }  # fmt: skip

    def export(self) -> str:
        """The lines that set variables."""
        lines = [line for block in self.shell for line in block.splitlines()]
        return "\n".join(line for line in lines if re.match(r"(export )?[A-Z_]+=(?!.*start-connect)", line)) + "\n"

    def run(self, text: str, **more: str) -> str:
        """Run commands to their end; what they say on stdout."""
        done = subprocess.run(
            ["bash", "-e", "-c", self.export() + text], cwd=self._folder, env={**self.env, **more},
            capture_output=True, text=True, timeout=RUN_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout

    def start(self, text: str, said: str, times: int, seconds: float) -> subprocess.Popen[str]:
        """Run commands that stay, and wait until they have said something so many times."""
        process = subprocess.Popen(
            ["bash", "-e", "-c", self.export() + text + "wait\n"], cwd=self._folder, env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._begun.append(process)
        assert process.stdout is not None
        heard: list[str] = []
        ready = threading.Event()
        threading.Thread(target=_listen, args=(process.stdout, heard, said, times, ready), daemon=True).start()
        assert ready.wait(seconds), f"{said!r} was not said {times} times:\n" + "".join(heard)[-5000:]
        return process

    def stop(self, process: subprocess.Popen[str]) -> None:
        self._begun.remove(process)
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self) -> None:
        for process in self._begun[::-1]:
            self.stop(process)


def _listen(lines: IO[str], heard: list[str], said: str, times: int, ready: threading.Event) -> None:
    for line in lines:
        heard.append(line)
        if sum(said in one for one in heard) >= times:
            ready.set()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        running.create_topic("flights", 4)
        running.create_topic("united", 2)
        with BlockingProducer(running.namesrv) as producer:
            for first in range(0, COUNT, 100):
                numbers = range(first, first + 100)
                producer.send_batch([Message("flights", b"flight %d" % n, tag=CARRIERS[n % 3]) for n in numbers])
        yield running


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker) -> Iterator[Guide]:
    found = Guide(tmp_path_factory.mktemp("cluster"), broker.namesrv)
    try:
        found.start(found.shell[0], "Successfully registered with master", 2, WORKERS_S)
        found.run(found.shell[1])
        yield found
    finally:
        found.end()


@pytest.mark.long
def test_executors_take_perseid_from_what_was_shipped(guide: Guide) -> None:
    (guide._folder / "where.py").write_text(WHERE)
    said = guide.run('spark-submit --master "$CLUSTER" $SHIPPED --conf spark.executor.memory=600m where.py')
    found = [line.split() for line in said.splitlines() if line.startswith("executor ")]
    assert len(found) == 2
    for _, path, compiled in found:
        assert "perseid-env/perseid/__init__.py" in path and "worker-" in path, path
        assert compiled == "True"


@pytest.mark.long
def test_a_job_runs_through_spark_submit(guide: Guide) -> None:
    said = guide.run(guide.shell[2])
    done = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
    assert (done["event"], done["rows"]) == ("done", COUNT)
    files = [path for path in (guide._folder / "flights-table").rglob("*.parquet") if "_perseid" not in path.parts]
    assert sum(pq.read_metadata(path).num_rows for path in files) == COUNT


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs pip install 'perseid[connect]'")
def test_the_sources_and_the_sink_work_over_connect(guide: Guide) -> None:
    server = guide.start(guide.shell[3], "Spark Connect server started", 1, CONNECT_S)
    try:
        (guide._folder / "over_connect.py").write_text(guide.python)
        said = guide.run("python over_connect.py", SPARK_REMOTE=f"sc://127.0.0.1:{guide.ports['15002']}")
    finally:
        guide.stop(server)  # it has the cluster's cores for as long as it lives
    assert f"flights {COUNT} of carriers {len(CARRIERS)}" in said
    assert f"united {COUNT // 3}" in said
