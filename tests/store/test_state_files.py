"""Small state files: which text counts, and what is kept beside a new one."""

from __future__ import annotations

from random import Random

import pytest

from perseid.sim.disk import SimDisk
from perseid.store import state_files

PATH = "config/topics.json"


@pytest.mark.parametrize(
    ("text", "backup", "read"),
    [
        (b'{"a":1}', b'{"a":0}', b'{"a":1}'),
        (b"{0:1,1:2}", None, b"{0:1,1:2}"),
        (None, b'{"a":0}', b'{"a":0}'),
        (b"", b'{"a":0}', b'{"a":0}'),
        (b" \n", b'{"a":0}', b'{"a":0}'),
        (b'{"a":', b'{"a":0}', b'{"a":0}'),
        (b"\0" * 9, b'{"a":0}', b'{"a":0}'),
        (b'{"a":', b'{"b":', None),
        (None, None, None),
    ],
)
def test_the_backup_is_read_when_the_file_is_of_no_use(
    text: bytes | None, backup: bytes | None, read: bytes | None
) -> None:
    disk = SimDisk(Random(0))
    for path, content in ((PATH, text), (PATH + ".bak", backup)):
        if content is not None:
            disk.write(path, content)
    assert state_files.read(disk, PATH) == read
