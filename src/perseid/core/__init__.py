"""The compiled core, where there is one.

    layout ← scan (a frame's bytes) ← signers (who signed a request) ← texts (JSON's escapes, UTF-8) ← headers (a send's
    header) ← sends (a send's properties) ← batch (the plain sends of a turn)
    scan ← properties (of stored records, by name) ← conditions (what SQL92 expressions are made of)
    scan ← pulls (which pull it is)
    properties, pulls ← pull_answers (the answers to the pulls of a read)
    scan ← pops (which request of POP it is, and acknowledgements of one checkpoint)
    batch ← records (the records that a slave was sent)
    batch ← redirects (sends with a time of their own, and halves, too) and deliveries (those whose time has come)
    redirects ← edits (sends whose properties change) ← levels (sends with a delay level or a priority)
    levels ← retries (sends to retry topics)
    deliveries ← delays (messages whose delay is over)
    deliveries ← commits (halves that their producers commit)
    scan ← entries (the entries of a Raft group, on disk and in a push)
    scan ← stored (where a record's parts stand) ← columns (the records of a segment, or of a pull's answer, as columns)
    and messages (those of a pull's answer, as the objects that a client hands out)
    items (rows of columns as the items of batch sends)

`compiled` is this core when it was compiled; None when there was no C compiler at the installation, or when
PERSEID_CORE=off asks for plain Python. Everything works without it, slower. In a checkout, a compiled module that is
older than its source stops the import: half of an old core and half of a new one would look like a broker's defect.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from perseid.base.machine import Buffer
from perseid.core import (  # noqa: F401  # by their names, below
    batch,
    columns,
    commits,
    conditions,
    delays,
    deliveries,
    edits,
    entries,
    headers,
    items,
    levels,
    messages,
    pops,
    properties,
    pull_answers,
    pulls,
    records,
    redirects,
    retries,
    scan,
    sends,
    signers,
    stored,
    texts,
)
from perseid.wire import frame

SWITCH = "PERSEID_CORE"


class Core(NamedTuple):
    """The compiled modules, each behind those that it needs: whoever builds, loads or packs the core goes by this list
    (`setup.py` by the `.pxd` that each of them has)."""

    scan: ModuleType
    signers: ModuleType
    texts: ModuleType
    headers: ModuleType
    sends: ModuleType
    batch: ModuleType
    redirects: ModuleType
    edits: ModuleType
    levels: ModuleType
    retries: ModuleType
    deliveries: ModuleType
    delays: ModuleType
    commits: ModuleType
    properties: ModuleType
    conditions: ModuleType
    pulls: ModuleType
    pull_answers: ModuleType
    pops: ModuleType
    records: ModuleType
    entries: ModuleType
    stored: ModuleType
    columns: ModuleType
    messages: ModuleType
    items: ModuleType


installed = Core(*[sys.modules[f"{__name__}.{name}"] for name in Core._fields])


def older_than_its_source(modules: Iterable[ModuleType], checkout: Path) -> str:
    """What an import of these compiled modules has to say, or nothing: one line that names a file that was changed
    since, and the way out. Asked where there is a setup.py alone: an installed wheel's files have the times of their
    installation."""
    if not (checkout / "setup.py").exists():
        return ""
    for module in modules:
        built = Path(module.__file__ or "")
        source = built.parent / f"{module.__name__.rpartition('.')[2]}.py"
        for path in (source, *built.parent.glob("*.pxd")):
            if path.exists() and path.stat().st_mtime_ns > built.stat().st_mtime_ns:
                return f"{built.name} is older than {path}: `make setup` compiles it again"
    return ""


is_compiled: bool = all(module.compiled for module in installed)
if is_compiled and (stale := older_than_its_source(installed, Path(__file__).parents[3])):
    raise ImportError(stale)
compiled = installed if is_compiled and os.environ.get(SWITCH) != "off" else None

complete: Callable[[Buffer], int] = frame.complete if compiled is None else scan.complete
"""The end of the last whole frame of a read (`wire.frame.complete`), by the quicker way that there is."""
