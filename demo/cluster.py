"""The cluster of the demo: `perseid up --ha` as an operator would run it, and the master in it that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_DEADLINE_S = 90
CLIENTS_NEED = ("ca", "cert", "key", "credentials")
"""Files of a cluster with TLS and users; the environment names them for clients."""


@dataclass
class Cluster:
    """A running cluster."""

    process: subprocess.Popen[str]
    told: dict[str, Any]
    log: Path

    @classmethod
    def start(cls, folder: Path, *, secure: bool = False) -> Cluster:
        """Start it below `folder`, on free ports, and wait until all replicas are in sync. `secure`: with TLS and
        users; the clients of this process, and of those that it starts, then have what they need."""
        log = folder / "cluster.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "perseid.cli.main", "up", "--ha", "--data", str(folder / "cluster"), "--json",
                    "--namesrv-port", "0", "--broker-port", "0", "--controller-port", "0",
                    *(["--secure"] if secure else []),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise SystemExit(f"the cluster did not start; {log} says:\n{log.read_text(errors='replace')[-2000:]}")
        told = json.loads(line)
        files = told.get("security", {})
        os.environ.update({f"PERSEID_{what.upper()}": files[what] for what in CLIENTS_NEED if what in files})
        return cls(process, told, log)

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server."""
        return str(self.told["namesrv"])

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """Name, address and process of each replica."""
        return [member for member in self.told["members"] if member["role"] == "broker"]

    def kill(self, address: str) -> str:
        """SIGKILL to the broker at an address, for good: no farewell, nothing flushed. Its name."""
        (victim,) = (member for member in self.brokers if member["address"] == address)
        os.kill(victim["pid"], signal.SIGKILL)
        return str(victim["name"])

    def check(self) -> None:
        """SystemExit with the end of the log when the cluster has ended by itself."""
        if self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the cluster ended with {self.process.returncode}; its log {self.log} ends with:\n{tail}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long; what it started ends with it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
