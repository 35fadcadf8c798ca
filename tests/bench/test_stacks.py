"""What `make profile` makes of the samples of py-spy and perf, and the picture of it."""

import sys
import xml.dom.minidom
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import flame
import stacks

PY_SPY = """\
thread (7): MainThread;<module> (perseid:6);Runner.run (asyncio/runners.py:118);Loop__run (loop.c:9);uv_run (core.c:4);\
handle (perseid/broker/node.py:10);take (perseid/core/batch.py:5) 6
thread (7): MainThread;<module> (perseid:6);Runner.run (asyncio/runners.py:118);Loop__run (loop.c:9);uv_run (core.c:4);\
handle (perseid/broker/node.py:12);take (perseid/core/batch.py:8) 2
thread (8): io;Thread.run (threading.py:982);IOThread._run (perseid/net/iothread.py:76);wait (threading.py:3) 90
"""


def test_samples_of_py_spy_share_the_cpu_of_their_thread() -> None:
    found = stacks.of_py_spy(PY_SPY, {7: 90, 8: 10}, us=10.0)
    call = ("uv_run (core.c)", "handle (perseid/broker/node.py)", "take (perseid/core/batch.py)")
    assert found == {("MainThread", *call): pytest.approx(9.0), ("io", "wait (threading.py)"): pytest.approx(1.0)}


def test_a_thread_that_took_no_cpu_counts_nothing() -> None:
    found = stacks.of_py_spy(PY_SPY, {7: 90}, us=10.0)
    assert found["io", "wait (threading.py)"] == 0.0 and sum(found.values()) == pytest.approx(10.0)
    assert sum(stacks.of_py_spy(PY_SPY, {}, us=10.0).values()) == 0.0


def test_output_without_threads_is_not_read_as_if_it_had_some() -> None:
    with pytest.raises(ValueError, match="where a thread should be"):
        stacks.of_py_spy("main (a.py:1);f (a.py:2) 3\n", {7: 1}, us=1.0)


def test_what_leads_to_the_event_loop_is_left_out_but_never_all() -> None:
    assert stacks.inner_calls(["main (a)", "Runner.run (b)", "Loop__run (c)", "f (d)"]) == ("f (d)",)
    assert stacks.inner_calls(["main (a)", "f (d)"]) == ("main (a)", "f (d)")
    assert stacks.inner_calls(["main (a)", "Runner.run (b)"]) == ("main (a)", "Runner.run (b)")


PERF = """\
perseid 16437 36256.298289:
\t          251570 _PyEval_SliceIndex (/usr/lib/libpython3.11.so.1.0)
\t    7fdd38c5bc00 [unknown] ([unknown])

perseid io 1 16438 36256.299039:
\tffffffff817ad77c tcp_sendmsg+0x1f ([kernel.kallsyms])
\tffffffff817ad9d7 ksys_write ([kernel.kallsyms])
\tffffffff821ef691 do_syscall_64 ([kernel.kallsyms])
\tffffffff81000130 entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])
\t           f7f37 write (/usr/lib/libc.so.6)
\t    7fdd38c61860 caller (/usr/lib/libc.so.6)

perseid 16437 36256.299140:
\t           1234 __pyx_take (/work/src/perseid/core/batch.cpython-311-x86_64-linux-gnu.so)

perseid 16437 36256.299141:
\t           1234 __pyx_take (/work/src/perseid/core/batch.cpython-311-x86_64-linux-gnu.so)
"""


def test_samples_of_perf_end_at_the_innermost_native_function() -> None:
    core = "perseid/core/batch.cpython-311-x86_64-linux-gnu.so"
    write = ("libc.so.6", "write (libc.so.6)", "ksys_write [kernel]", "tcp_sendmsg [kernel]")
    found = stacks.of_perf(PERF, us=8.0)
    assert found == {
        ("libpython3.11.so.1.0", "_PyEval_SliceIndex (libpython3.11.so.1.0)"): 2.0,
        write: 2.0,
        (core, f"__pyx_take ({core})"): 4.0,
    }
    assert stacks.ways_in(found) == {"ksys_write [kernel]": 2.0}
    assert [flame.kind(frame) for frame in (write[-1], core, "f (a.py)", "write (libc.so.6)")] == [
        *("kernel", "compiled core", "Python", "C (interpreter, libraries)")
    ]
    assert stacks.of_perf("", us=8.0) == {}


def test_sums() -> None:
    found = {("a (x.py)", "b (y.py)", "a (x.py)"): 3.0, ("a (x.py)", "c (y.py)"): 1.0}
    assert stacks.own(found) == {"a (x.py)": 3.0, "c (y.py)": 1.0}
    assert stacks.by_file(stacks.own(found)) == {"x.py": 3.0, "y.py": 1.0}
    assert stacks.whole(found) == {"a (x.py)": 4.0, "b (y.py)": 3.0, "c (y.py)": 1.0}


def test_the_picture_has_a_box_for_each_call_as_wide_as_its_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "flame.svg"
    flame.draw(path, "a <title>", "a note", {("a (x.py)", "b & c (y.c)"): 3.0, ("a (x.py)",): 1.0, ("d (z.py)",): 4.0})
    boxes = {
        box.getElementsByTagName("title")[0].firstChild.data: float(box.getAttribute("data-w"))
        for box in xml.dom.minidom.parse(str(path)).getElementsByTagName("g")
    }
    assert boxes == {
        "all: 8.00 µs, 100.0 %": flame.WIDTH,
        "a (x.py): 4.00 µs, 50.0 %": flame.WIDTH / 2,
        "b & c (y.c): 3.00 µs, 37.5 %": flame.WIDTH * 3 / 8,
        "d (z.py): 4.00 µs, 50.0 %": flame.WIDTH / 2,
    }
    flame.draw(path, "nothing", "", {})
    assert not xml.dom.minidom.parse(str(path)).getElementsByTagName("g")


def test_all_of_a_message_is_in_one_part_or_another() -> None:
    found = stacks.parts(stacks.of_perf(PERF, us=6.0))
    assert sum(found.values()) == pytest.approx(6.0)
    assert {"Python", "the compiled core", "kernel: writes to sockets, wake-ups"} <= set(found)


@pytest.mark.parametrize(
    ("way_in", "part"),
    [
        ("__x64_sys_pwrite64", "kernel: files written, pages touched"),
        ("ksys_write", "kernel: writes to sockets, wake-ups"),
        ("__x64_sys_epoll_pwait", "kernel: polls"),
        ("__x64_sys_fdatasync", "kernel: fdatasync, fsync"),
        ("asm_sysvec_reschedule_ipi", stacks.OTHER_KERNEL),
    ],
)
def test_a_system_call_is_in_the_part_that_its_name_says(way_in: str, part: str) -> None:
    stack = ("libc.so.6", "call (libc.so.6)", f"{way_in} [kernel]", "deeper [kernel]")
    assert stacks.parts({stack: 1.0}) == {part: 1.0}
