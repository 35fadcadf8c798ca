"""The two ways round of what several files test (folders that pass on, and slaves, between Java's brokers and ours),
and which of many combinations CI runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import rig

T = TypeVar("T", bound=Callable[..., Any])
BOTH = [("java", "perseid"), ("perseid", "java")]
IDS = ["java_to_perseid", "perseid_to_java"]
ENDS = {"stopped": rig.Process.stop, "killed": rig.Process.kill}


class Each(tuple[Any, ...]):
    """Values of several arguments."""


def in_ci(kinds: Mapping[str, Any], *names: str) -> list[Any]:
    """All of `kinds` as parameters of a test, by their names; those that are not in `names` are `long`."""
    assert set(names) <= set(kinds), names
    found = []
    for name, kind in kinds.items():
        values = kind if isinstance(kind, Each) else (kind,)
        found.append(pytest.param(*values, id=name, marks=() if name in names else pytest.mark.long))
    return found


FOLDERS = {f"{way}-{end}": Each((*both, how)) for end, how in ENDS.items() for way, both in zip(IDS, BOTH, strict=True)}


def folders_pass_on(test: T) -> T:
    """Let a test have a folder pass from `writer` to `reader`, after `end`: a clean stop, or SIGKILL."""
    for mark in (
        pytest.mark.parametrize("cluster", ["java"], indirect=True),
        pytest.mark.parametrize(
            ("writer", "reader", "end"), in_ci(FOLDERS, "java_to_perseid-killed", "perseid_to_java-stopped")
        ),
    ):
        test = mark(test)
    return test


def slaves_follow(test: T) -> T:
    """Let a test have a `master` of one kind, and a `slave` of the other."""
    for mark in (
        pytest.mark.parametrize("cluster", ["java"], indirect=True),
        pytest.mark.parametrize(("master", "slave"), BOTH, ids=IDS),
    ):
        test = mark(test)
    return test


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
