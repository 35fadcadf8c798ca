"""A name server and a broker as processes of their own, as an operator would run them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

START_DEADLINE_S = 30
STOP_DEADLINE_S = 30


class Server:
    """One `perseid` process with a configuration file; can be killed and started again on the same data."""

    def __init__(self, role: str, folder: Path, port: int, settings: dict[str, object]) -> None:
        """`role`: namesrv or broker. `folder`: where its configuration and log go."""
        self.role = role
        self.port = port
        self._log = folder / f"{role}.log"
        self._config = folder / f"{role}.conf"
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text("".join(f"{key}={value}\n" for key, value in {"listenPort": port, **settings}.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it is not waited for."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perseid.cli.main", self.role, "-c", str(self._config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL: no farewell, nothing flushed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_DEADLINE_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def check(self) -> None:
        """SystemExit with the end of the log when the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            code = self._process.returncode
            raise SystemExit(f"the {self.role} ended with {code}; its log {self._log} ends with:\n{tail}")
