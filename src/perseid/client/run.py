"""Run clients until the process gets a signal to end, then let them finish.

    producer = Producer("host:9876")
    consumer = PushConsumer("host:9876", "billing", {"orders": "*"}, charge)
    sys.exit(asyncio.run(run_until_signal(producer, consumer)))

    starting --all started--> running --SIGINT, SIGTERM, or `work` has ended--> draining --> over
                                          a second signal, or `drain_ms` is over: ended at once
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any

from perseid.client.errors import UsageError

log = logging.getLogger("perseid.client")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
DRAIN_MS = 30_000
WORK_PATIENCE_MS = 1000
"""How long `work` may take to notice that the last client was stopped, before it is cancelled."""
CANCELS = 20
CANCEL_PATIENCE_MS = 100
"""What does not end when it is cancelled is cancelled again after this time, so many times: a client that stops has
several waits."""

Clients = Sequence[AbstractAsyncContextManager[object]]
Work = Coroutine[Any, Any, object]


async def run_until_signal(
    *clients: AbstractAsyncContextManager[object], work: Work | None = None, drain_ms: int = DRAIN_MS
) -> int:
    """Start the clients, wait for SIGINT or SIGTERM, and stop them; the exit code for the process.

    Clients, or other async contexts, are started in their order and stopped in the opposite one: name a consumer after
    the producer that its handler uses. `work` is a coroutine that runs meanwhile. A loop over a `Consumer` ends by
    itself when that is the last client; other work is cancelled once the last client is stopped. When `work` has ended,
    the clients are stopped, too.

    Exit codes: 0 if everything finished, 1 if not within `drain_ms` after the signal, 128 + n after a second signal
    with number n. Handlers in threads can't be ended: the process waits for them. An exception of a client or of `work`
    is raised when the others are stopped. `UsageError` outside of the main thread, because only that gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        if work is not None:
            work.close()
        raise UsageError(
            "run_until_signal() has to run in the main thread, which alone gets signals: elsewhere use"
            " `async with` and stop the clients yourself"
        )
    told, late = asyncio.Event(), asyncio.Event()
    received: list[int] = []
    loop = asyncio.get_running_loop()

    def tell(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            late.set()
            return
        name = signal.Signals(number).name
        log.info("%s: clients may finish within %d ms; a second signal ends them at once", name, drain_ms)
        told.set()
        loop.call_later(drain_ms / 1000, late.set)

    with _handlers(tell):
        serving = asyncio.create_task(_serve(clients, work, told), name="run until signal")
        too_late = asyncio.create_task(late.wait())
        try:
            await asyncio.wait((serving, too_late), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # whoever cancels this run wants the clients stopped, too
            serving.cancel()
            await asyncio.wait((serving,), timeout=drain_ms / 1000)
            raise
        finally:
            too_late.cancel()
            ended = not serving.done()
            if ended:
                await _end(serving)
        if ended:
            log.warning("clients were ended before they had finished")
            return 128 + received[1] if len(received) > 1 else 1
        await serving
        return 0


async def _serve(clients: Clients, work: Work | None, told: asyncio.Event) -> None:
    """Start all, wait, and stop all."""
    working: list[asyncio.Task[object]] = []
    waiting: asyncio.Task[object] = asyncio.create_task(told.wait())
    try:
        async with AsyncExitStack() as stack:
            for client in clients[:-1]:
                await stack.enter_async_context(client)
            stack.push_async_callback(_finish, working)
            for client in clients[-1:]:
                await stack.enter_async_context(client)
            if work is not None:
                working.append(asyncio.create_task(_as_task(work), name="work"))
            await asyncio.wait((waiting, *working), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if work is not None and not working:
            work.close()


async def _as_task(work: Work) -> object:
    return await work


async def _finish(working: list[asyncio.Task[object]]) -> None:
    """Let the work end, or cancel it; what it raised is raised."""
    for task in working:
        await asyncio.wait((task,), timeout=WORK_PATIENCE_MS / 1000)
        if not task.done():
            await _end(task)
        if task.done() and not task.cancelled():
            task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended."""
    for _ in range(CANCELS):
        task.cancel()
        await asyncio.wait((task,), timeout=CANCEL_PATIENCE_MS / 1000)
        if task.done():
            return
    log.warning("%s goes on although it was cancelled", task.get_name())


@contextmanager
def _handlers(tell: Callable[[int], None]) -> Iterator[None]:
    """Have SIGNALS told to the event loop; what handled them before does so again afterwards."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            try:
                loop.add_signal_handler(number, tell, number)
            except NotImplementedError:  # Windows' event loop
                signal.signal(number, lambda got, _: loop.call_soon_threadsafe(tell, got))
        yield
    finally:
        for number, handler in before.items():
            try:
                loop.remove_signal_handler(number)
            except NotImplementedError:
                pass
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
