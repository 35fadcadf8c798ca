"""The two ways round of what several files test (folders that pass on, and slaves, between Java's brokers and ours)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import rig
from tests.combinations import Each as Each
from tests.combinations import in_ci as in_ci

T = TypeVar("T", bound=Callable[..., Any])
BOTH = [("java", "perseid"), ("perseid", "java")]
IDS = ["java_to_perseid", "perseid_to_java"]
ENDS = {"stopped": rig.Process.stop, "killed": rig.Process.kill}


FOLDERS = {f"{way}-{end}": Each((*both, how)) for end, how in ENDS.items() for way, both in zip(IDS, BOTH, strict=True)}


PAIRS = {way: Each(both) for way, both in zip(IDS, BOTH, strict=True)}


def _with(names: tuple[str, ...], kinds: Mapping[str, Any], ci: tuple[str, ...]) -> Callable[[T], T]:
    """Let a test have each of `kinds` as its arguments of these names, those of `ci` in CI, beside a Java cluster."""

    def marked(test: T) -> T:
        test = pytest.mark.parametrize("cluster", ["java"], indirect=True)(test)
        return pytest.mark.parametrize(names, in_ci(kinds, *ci))(test)

    return marked


def folders_pass_on(*ci: str) -> Callable[[T], T]:
    """Let a test have a folder pass from `writer` to `reader`, after `end`: a clean stop, or SIGKILL."""
    return _with(("writer", "reader", "end"), FOLDERS, ci)


def slaves_follow(*ci: str) -> Callable[[T], T]:
    """Let a test have a `master` of one kind, and a `slave` of the other."""
    return _with(("master", "slave"), PAIRS, ci)


def pass_on(*ci: str) -> Callable[[T], T]:
    """Let a test have something pass from `writer` to `reader`."""
    return _with(("writer", "reader"), PAIRS, ci)


@contextmanager
def master_and_slave(
    master: str, slave: str, folder: Path, namesrv: str, **properties: object
) -> Iterator[tuple[rig.Process, rig.Process]]:
    """A master that runs and is registered, and its slave, which is still to be started; both end with the block."""
    both = {"brokerName": folder.name, "slaveReadEnable": "true", **properties}
    first = rig.broker(master, folder / "master", namesrv, **both)
    second = rig.broker(slave, folder / "slave", namesrv, **{**both, "brokerRole": "SLAVE", "brokerId": 1})
    try:
        first.start()
        rig.await_registered(namesrv, folder.name)
        yield first, second
    finally:
        second.kill()
        first.kill()
