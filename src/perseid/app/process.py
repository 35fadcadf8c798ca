"""What all server processes share: settings from a file, logging, the event loop, signals, a clean end."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from perseid.app import about
from perseid.base import config
from perseid.base.config import Foreign, Setting
from perseid.base.errors import ConfigError
from perseid.disk.real import RealDisk
from perseid.net.driver import Driver

log = logging.getLogger("perseid")

OK = 0
FAILED = 1
LOOP_VARIABLE = "PERSEID_LOOP"
"""`asyncio` chooses the standard event loop where uvloop is installed too."""

WANTED_FILES = 655_350
"""Open files that a server asks for: a connection takes one, a file of a log or of a queue two (one is mmap's own)."""

Ready = Callable[[], Awaitable[None]]


# ---- settings ----


def read_settings(path: Path | None) -> dict[str, Setting]:
    """The settings of a file, none without one; ConfigError when it can't be read."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    return config.read(text, str(path))


def values(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Key → text, as a file has them."""
    return {key: setting.value for key, setting in settings.items()}


MAX_NAMED = 40
"""Settings that one line of the log names."""


def plain(settings: Mapping[str, Setting], *classes: type) -> dict[str, Setting]:
    """The settings, with what is around a number left out where only that number can be meant; told in one line."""
    found, meant = config.plain_numbers(settings, *classes)
    _tell(
        "settings of which RocketMQ would take its default, not what is meant",
        (f"{s.key}={config.shown(s.value)} is taken as {found[s.key].value} ({s.where})" for s in meant),
    )
    return found


def report(settings: Mapping[str, Setting], foreign: Foreign, *classes: type) -> None:
    """Name what has no effect here, each key once, in up to three lines: what matters, what has no meaning here, and
    what nobody knows."""
    ignored = {one.key: one for one in foreign.ignored}
    refused = {one.key for one in foreign.refused}
    matters, meaningless, strange = [], [], []
    known = [key for cls in classes for key in config.options(cls)]
    for s in config.unknown(settings, *classes):
        if s.key in ignored:
            one = ignored[s.key]
            if s.value.lower() not in one.usual:
                matters.append(f"{s.key}={config.shown(s.value)} ({s.where}): {one.why}")
        elif s.key in foreign.meaningless:
            meaningless.append(f"{s.key} ({s.where})")
        elif s.key not in refused:
            like = config.nearest(s.key, (*known, *foreign.keys))
            strange.append(f"{config.shown(s.key)} ({s.where}" + (f"; did you mean {like}?)" if like else ")"))
    _tell("settings that matter and that Perseid does not follow", matters)
    _tell("unknown settings, without effect (`perseid settings` lists all)", strange)
    _tell("settings without a meaning here", meaningless, logging.INFO)


def _tell(what: str, found: Iterable[str], level: int = logging.WARNING) -> None:
    texts = list(found)
    if texts:
        more = f", and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
        log.log(level, "%s: %s%s", what, ", ".join(texts[:MAX_NAMED]), more)


def home_folder() -> Path:
    """Where the original keeps its files by default (Java's user.home)."""
    return Path.home()


def own_ip() -> str:
    """An address of this machine that others can reach; 127.0.0.1 when it has none.

    The route to a far address tells which interface it would leave by; nothing is sent.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


# ---- running ----


def open_disk(folder: Path, elsewhere: Mapping[str, str] | None = None) -> RealDisk:
    """The disk of a folder, and of folders in it that are elsewhere; they are made when they are missing. ConfigError
    when one can't be."""
    try:
        return RealDisk(str(folder), elsewhere)
    except OSError as error:
        at = error.filename or folder
        raise ConfigError(f"{at}: can't be used as a folder: {error.strerror or error}; choose another") from None


def set_up_logging(level: int = logging.INFO) -> None:
    """Lines on stderr, with the time; the first says which Perseid it is."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    about.log_start()


def raise_file_limit() -> None:
    """As many open files as the system lets us have, up to `WANTED_FILES`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def say(line: str) -> None:
    """Print a line in one write: shards share their output, and two lines must not run into each other."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a server's coroutine to its end on the quickest event loop there is; its exit code. What the kernel ends (a
    SIGBUS, a SIGSEGV) says on stderr where it was."""
    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)
    raise_file_limit()
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if os.environ.get(LOOP_VARIABLE) != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class Watched(Protocol):
    """Files that a running process follows: the certificates'."""

    @property
    def files(self) -> Sequence[str]: ...

    def look(self, *, told: bool = False) -> None:
        """Take in what has changed; `told`: somebody says that something has."""

    async def watch(self) -> None:
        """Look again and again, until cancelled."""


def follow(watched: Watched) -> asyncio.Task[None] | None:
    """Look at files while the process runs, and at SIGHUP; None when there are none."""
    if not watched.files:
        return None
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, partial(watched.look, told=True))
    return asyncio.create_task(watched.watch(), name="files that are followed")


async def serve(drivers: Sequence[Driver], ready: Ready, watched: Watched | None = None) -> int:
    """Start nodes in order, call `ready`, run until SIGTERM or SIGINT or until one fails, end them in reverse.

    0 after a clean end, 1 when a node failed. ConfigError when an address can't be had.
    """
    told = told_to_end()
    following = follow(watched) if watched is not None else None
    started: list[Driver] = []
    try:
        for driver in drivers:
            await driver.start()
            started.append(driver)
            if driver.stopped.done():
                break
        else:
            announce = asyncio.ensure_future(ready())
            ends: set[asyncio.Future[Any]] = {told, *(driver.stopped for driver in started)}
            await asyncio.wait({announce, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if announce.done():
                announce.result()
                gc.collect()
                gc.freeze()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            announce.cancel()
    finally:
        if following is not None:
            following.cancel()
        reasons = [await driver.stop() for driver in reversed(started)]
    for reason in filter(None, reasons):
        print(f"perseid: {reason}", file=sys.stderr)  # noqa: T201
    return FAILED if any(reasons) else OK


def told_to_end() -> asyncio.Future[None]:
    """Done at the first signal; a second one ends the process the hard way."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def tell(number: int) -> None:
        log.info("%s: ending", signal.Signals(number).name)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        if not told.done():
            told.set_result(None)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, tell, each)
    return told
