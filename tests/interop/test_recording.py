"""Stock clients, recorded anew: what they send has the shapes of the frames that are kept (tests/traffic)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from recording import programs
from recording.record import record

import traffic
from perseid.wire import properties
from perseid.wire.command import decode

pytestmark = pytest.mark.interop

SENDS = {10, 310, 320}
KINDS = ("plain", "tag-and-keys", "chinese-key", "json-property", "delay-level", "batch", "commit")


def _shapes(frames: Sequence[tuple[str, bytes]]) -> set[tuple[object, ...]]:
    """Of the sends: what varies from one to the next is left out."""
    found: set[tuple[object, ...]] = set()
    for kind, data in frames:
        command = decode(data)
        if command.code in SENDS:
            ext = command.ext
            text = ext.get("i", ext.get("properties", ""))
            names = tuple(sorted(properties.decode(text)))
            found.add((kind, command.code, data[4], tuple(sorted(ext)), names, text.endswith("\x02")))
    return found


@pytest.mark.parametrize("client", ["java-4.9.2", "java-5.5.0-binary", "go-2.1.2"])
def test_stock_clients_still_send_what_is_kept(tmp_path: Path, client: str) -> None:
    rows = record(programs.of(client), tmp_path, KINDS)
    fresh = _shapes([(str(row["kind"]), bytes.fromhex(str(row["frame"]))) for row in rows])
    kept = _shapes([(one.kind, one.data) for one in traffic.frames(client) if one.kind in KINDS])
    assert fresh == kept
