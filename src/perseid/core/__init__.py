"""The compiled core, where there is one.

`batch` is the module `perseid.core.batch` when it was compiled; None when there was no C compiler at the installation,
or when PERSEID_CORE=off asks for plain Python. Everything works without it, slower.
"""

from __future__ import annotations

import os

from perseid.core import batch as _batch

SWITCH = "PERSEID_CORE"

batch = _batch if _batch.compiled and os.environ.get(SWITCH) != "off" else None
