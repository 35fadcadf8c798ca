"""However a job ends, its command says one line and leaves nothing behind: no JVM, no worker, no log of Spark's.

`Watch` is around a job: what Spark says is kept apart, signals end the job, a JVM that died is noticed, and when the
`with` is left, all of Spark is gone. `told` says what happened then, with the status of the command.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from perseid.base.errors import PerseidError
from perseid.spark.jvm import END_DEADLINE_S, SIGNALS, Jvm, Said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEATH_WAIT_S = 1
"""A connection that breaks is noticed a moment before the JVM's end is."""
_CAUSE = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]+(?:Error|Exception): .+)$", re.MULTILINE)
"""A line of a Java or Python trace that names what was raised."""


class StdoutClosed(PerseidError):
    """Nobody reads what a job says."""


class Watch:
    """`with Watch(log) as watch: watch.session = perseid.spark.session(…, jvm=watch.jvm); watch.started()`.

    A first signal ends the job, a second one also ends Spark at once. `log`: a file for all that Spark says.
    """

    def __init__(self, log: Path | None = None) -> None:
        self.said = Said(None if log is None else log.open("wb", buffering=0))
        self.jvm = Jvm(self.said, self._on_death)
        self.session: SparkSession | None = None
        self.signal: int | None = None
        """The one that ended the job."""
        self.death: str | None = None
        """How the JVM died, if that ended the job."""
        self.text = self.trace = ""
        """Of the error that ended it; taken before the JVM ends, which pyspark asks for them."""
        self._ending = False
        self._before: dict[int, Any] = {}
        self._stderr = sys.stderr
        self._warnings: logging.Handler = logging.StreamHandler(self._stderr)

    def __enter__(self) -> Self:
        self._take_signals()
        self._warnings.setLevel(logging.WARNING)
        self._warnings.setFormatter(logging.Formatter("perseid: %(message)s"))
        logging.getLogger("perseid.spark").addHandler(self._warnings)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit shows what its JVM says, and this with it
            sys.stderr = cast(TextIO, self.said)  # pyspark and py4j say what breaks with the JVM
        return self

    def started(self) -> None:
        """The session is there: pyspark has taken SIGINT, to ask the JVM for the end of its jobs, dead or not."""
        self._take_signals()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        unforeseen = isinstance(error, Exception) and not isinstance(error, PerseidError)
        self.death = self.death or self.jvm.death(DEATH_WAIT_S if unforeseen else 0)
        self._ending = True
        if error is not None:
            self.text, self.trace = _rendered(error)
        try:
            self._stop(error)
            self.jvm.end()
        finally:
            sys.stderr = self._stderr
            logging.getLogger("perseid.spark").removeHandler(self._warnings)
            for number, handler in self._before.items():
                signal.signal(number, handler)

    # ---- inside ----

    def _stop(self, error: BaseException | None) -> None:
        """The session ends; that one cannot be stopped is not told in place of what happened before. Where the job
        failed and the JVM is ours, its own end is enough, which has a deadline."""
        if self.session is None or (error is not None and self.jvm.is_ours):
            return
        late = threading.Timer(END_DEADLINE_S, self.jvm.kill)
        late.start()
        try:
            self.session.stop()
        except Exception as second:
            if error is None:
                raise
            self.trace += f"and Spark did not stop: {second}\n"
        finally:
            late.cancel()

    def _take_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, self._on_signal):  # nohup
                self._before.setdefault(number, handler)
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending or self.signal is not None:
            self.jvm.kill()
            return
        if self.death is None:
            self.signal = number
        raise KeyboardInterrupt

    def _on_death(self) -> None:
        """The JVM is dead, and the job waits for it: some calls into it wait for ever."""
        self.death = self.jvm.death()
        if self.death is not None and self._before:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)


def told(error: BaseException, watch: Watch) -> tuple[int, str]:
    """The status of a command whose job ended with an error, and what it says: one line."""
    if watch.signal is not None or (isinstance(error, KeyboardInterrupt) and watch.death is None):
        by = signal.Signals(watch.signal or signal.SIGINT)
        return 128 + by, "interrupted" if by == signal.SIGINT else f"ended by {by.name}"
    if isinstance(error, PerseidError):
        return 1, _flat(watch.text)
    if watch.death is not None:
        line = f"Spark's JVM ended in the middle of the job, {watch.death}: run it again (is memory short?)"
    else:
        causes = _CAUSE.findall(watch.text)
        line = _flat(causes[-1] if causes else f"{type(error).__name__}: {watch.text.strip().partition(chr(10))[0]}")
    return 1, _with_trace(line, watch.trace, watch.said.text())


def _rendered(error: BaseException) -> tuple[str, str]:
    """Its text and its trace."""
    try:
        return str(error), "".join(traceback.format_exception(error))
    except Exception as second:  # pyspark asks the JVM for the text of its errors, and that may be dead
        frames = "".join(traceback.format_tb(error.__traceback__))
        return f"its text can't be had: {second}", f"{frames}{type(error).__name__}\n"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _with_trace(line: str, trace: str, spark: str) -> str:
    """The line, and the file that has its trace and what Spark said."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="perseid-spark-", suffix=".trace", delete=False) as file:
            file.write(trace + (f"\nWhat Spark said:\n{spark}" if spark else ""))
    except OSError as refused:  # the disk that is full may be this one
        return f"{line} (its trace could not be written: {refused})"
    return f"{line} (the trace is in {file.name})"
