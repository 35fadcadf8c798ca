"""From what py-spy and perf print to stacks with µs of a message. Nothing is started here."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from flame import Stacks

OUTER = {
    *("Runner.run", "run_until_complete", "run_forever", "BaseEventLoop.run_forever", "Loop__run", "Loop__Loop__run"),
    *("Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run", "IOThread._run"),
}
"""Calls that are on the way to all others."""
ENTRY = {
    *("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "x64_sys_call"),
    *("el0t_64_sync", "el0t_64_sync_handler", "el0_svc", "do_el0_svc", "el0_svc_common.constprop.0", "invoke_syscall"),
}
"""The kernel's way into each system call."""
SYSTEM_CALLS = {
    "write": "kernel: writes to sockets, wake-ups",
    "sendmsg": "kernel: writes to sockets, wake-ups",
    "sendto": "kernel: writes to sockets, wake-ups",
    "read": "kernel: reads of sockets, wake-ups",
    "recv": "kernel: reads of sockets, wake-ups",
    "epoll": "kernel: polls",
    "pwrite": "kernel: files written, pages touched",
    "page_fault": "kernel: files written, pages touched",
    "fallocate": "kernel: files written, pages touched",
    "sync": "kernel: fdatasync, fsync",
    "futex": "kernel: threads wake one another",
    "nanosleep": "kernel: pauses",
}
"""What is in the name of the kernel's way in, and how it is called; the last that is counts."""
LIBRARIES = {"libpython": "Python", "perseid/core/": "the compiled core", "loop.cpython": "uvloop"}
"""The same of libraries."""
OTHER_KERNEL, OTHER_LIBRARIES = "kernel: interrupts, scheduling and others", "other libraries"
_LINE = re.compile(r":\d+\)$")
_THREAD = re.compile(r"^thread \((\d+)\)(?:: (.*))?$")
_SAMPLE = re.compile(r"^\S.*?\s(\d+)\s+[\d.]+:")
_OUTSIDE = re.compile(r"^.*?/(?=perseid/core/|[^/]*$)")
_FILE = re.compile(r"^.*\((.*)\)$")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$")


def of_py_spy(text: str, cpu: Mapping[int, float], us: float) -> Stacks:
    """Stacks out of py-spy's `raw` format with `--threads`: `outer;…;inner COUNT`.

    `cpu` is what each thread (by its system's id) took meanwhile, `us` what a message costs: a thread's samples share
    its part, so one that only waits does not count although py-spy saw it.
    """
    threads: dict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
    names: dict[int, str] = {}
    for line in text.splitlines():
        stack, _, samples = line.rpartition(" ")
        first, *frames = stack.split(";")
        if (found := _THREAD.match(first)) is None:
            raise ValueError(f"py-spy said {first!r} where a thread should be: is it the version of pyproject.toml?")
        number = int(found[1])
        names[number] = found[2] or first
        threads[number][inner_calls([_LINE.sub(")", frame) for frame in frames])] += int(samples)
    whole = sum(cpu.get(number, 0.0) for number in threads)
    stacks: dict[tuple[str, ...], float] = {}
    for number, counts in threads.items():
        scale = us * cpu.get(number, 0.0) / whole / sum(counts.values()) if whole else 0.0
        for inner, count in counts.items():
            stacks[(names[number], *inner)] = scale * count
    return stacks


def inner_calls(frames: Sequence[str]) -> tuple[str, ...]:
    """What runs in the event loop, or in a thread; without what led to it."""
    found = [i for i, frame in enumerate(frames[:-1]) if frame.split(" ")[0] in OUTER]
    return tuple(frames[found[-1] + 1 if found else 0 :])


def of_perf(text: str, us: float) -> Stacks:
    """Stacks out of `perf script -F comm,tid,time,ip,sym,dso`: library, its innermost function, the kernel below."""
    counts: Counter[tuple[str, ...]] = Counter()
    user: tuple[str, ...] = ()
    kernel: list[str] = []
    inside = False

    def finish() -> None:
        if inside:
            counts[(*user, *reversed(kernel))] += 1

    for line in text.splitlines():
        if _SAMPLE.match(line):
            finish()
            user, kernel, inside = (), [], True
        elif inside and not user and (found := _FRAME.match(line)):
            name, place = found[1], found[2]
            if place.startswith("[kernel") or place.endswith(".ko"):
                kernel += [f"{name} [kernel]"] if name not in ENTRY else []
            else:
                library = _OUTSIDE.sub("", place)
                user = (library, f"{name} ({library})")
    finish()
    samples = sum(counts.values())
    return {stack: us * count / samples for stack, count in counts.items()}


def own(stacks: Stacks) -> dict[str, float]:
    """µs in each function itself."""
    return _sums((stack[-1], us) for stack, us in stacks.items())


def by_file(functions: Mapping[str, float]) -> dict[str, float]:
    """µs in each file, of those in each function."""
    return _sums((_FILE.sub(r"\1", frame), us) for frame, us in functions.items())


def ways_in(stacks: Stacks) -> dict[str, float]:
    """µs in the kernel, by the system call or interrupt that led there."""
    entered = ((next((f for f in stack if f.endswith("[kernel]")), ""), us) for stack, us in stacks.items())
    return _sums((frame, us) for frame, us in entered if frame)


def parts(stacks: Stacks) -> dict[str, float]:
    """µs in each part of a process: kinds of system calls, Python, the core, the event loop. All of it is in one."""
    return _sums((_part(stack), us) for stack, us in stacks.items())


def _part(stack: Sequence[str]) -> str:
    """Of a stack as `of_perf` gives it."""
    way_in = next((frame for frame in stack if frame.endswith("[kernel]")), "")
    if way_in:
        return ([name for call, name in SYSTEM_CALLS.items() if call in way_in] or [OTHER_KERNEL])[-1]
    library = stack[0] if stack else ""
    return next((name for start, name in LIBRARIES.items() if library.startswith(start)), OTHER_LIBRARIES)


def whole(stacks: Stacks) -> dict[str, float]:
    """µs in each function and all that it calls; once for each stack, however often it calls itself."""
    return _sums((frame, us) for stack, us in stacks.items() for frame in set(stack))


def _sums(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, us in parts:
        sums[name] += us
    return sums
