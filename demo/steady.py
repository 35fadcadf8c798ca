"""A sender beside the flights: `perseid verify run`, as anyone would run it to see how long nothing is acknowledged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseid.verify import Ledger

RATE = 200
BEGIN_DEADLINE_S = 180
END_DEADLINE_S = 240
PAUSE_S = 0.02


@dataclass
class Steady:
    """A running `perseid verify run`; `told` is what it said in the end."""

    process: subprocess.Popen[str]
    ledger: Path
    log: Path
    told: dict[str, Any]

    @classmethod
    def start(cls, folder: Path, namesrv: str) -> Steady:
        """Start it, and wait for its first acknowledgements."""
        ledger, log = folder / "ledger", folder / "verify.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "perseid.cli.main", "verify", "run", "steady", "--rate", str(RATE),
                    "--seconds", "0", "--queues", "4", "--ledger", str(ledger), "--json", "-n", namesrv,
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip
        started = cls(process, ledger, log, {})
        deadline = time.monotonic() + BEGIN_DEADLINE_S
        while not ledger.exists() or ledger.stat().st_size < 1000:
            if process.poll() is not None or time.monotonic() > deadline:
                started.kill()
                raise SystemExit(f"nothing was acknowledged to `perseid verify run`; {log}: {log.read_text()}")
            time.sleep(PAUSE_S)
        return started

    def stop(self) -> None:
        """End the sending, as Ctrl-C does; it then checks that all is there that was acknowledged."""
        self.process.send_signal(signal.SIGINT)
        try:
            out, _ = self.process.communicate(timeout=END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit(f"`perseid verify run` did not end within {END_DEADLINE_S} s; see {self.log}") from None
        self.told = json.loads(out)

    def kill(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def outage(self) -> dict[str, Any] | None:
        """The one that ended with another master."""
        switches = [one for one in self.told["outages"] if one["newMaster"] not in ("", one["oldMaster"])]
        return switches[0] if switches else None

    def acknowledged_ms(self) -> list[int]:
        """When each of its messages was acknowledged, since 1970."""
        return [entry.time_ms for entry in Ledger.load(self.ledger).entries]
