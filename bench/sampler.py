"""Runs `perseid` under a sampling profiler: `python bench/sampler.py OUT broker -c FILE`.

SIGUSR1 begins, SIGUSR2 ends and writes OUT: one line of JSON for each different stack, `[count, [[file,
function, line], …]]`, the innermost call first. A sample is taken each tick of the kernel's clock (1 to 10 ms)
of CPU (ITIMER_PROF). Python runs the handler when the C call at hand returns, so time in C and in the kernel
counts for the line that called; what the event loop itself spends counts for the first line of the callback
that follows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from types import CodeType, FrameType

INTERVAL_S = 0.001
MAX_DEPTH = 40

Stack = tuple[tuple[CodeType, int], ...]


class Sampler:
    """Counts the stacks of the main thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stacks: Counter[Stack] = Counter()

    def install(self) -> None:
        signal.signal(signal.SIGPROF, self.sample)
        signal.signal(signal.SIGUSR1, self.begin)
        signal.signal(signal.SIGUSR2, self.end)

    def begin(self, _number: int, _frame: FrameType | None) -> None:
        self.stacks.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def sample(self, _number: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None and len(stack) < MAX_DEPTH:
            stack.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        self.stacks[tuple(stack)] += 1

    def end(self, _number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with open(self.path + ".part", "w") as file:
            for stack, count in self.stacks.most_common():
                frames = [[code.co_filename, code.co_qualname, line] for code, line in stack]
                file.write(json.dumps([count, frames]) + "\n")
        os.rename(self.path + ".part", self.path)


if __name__ == "__main__":
    del sys.path[0]
    Sampler(sys.argv[1]).install()
    sys.argv[:2] = ["perseid"]
    from perseid.cli.main import main

    main()
