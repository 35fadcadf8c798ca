"""Another build of the core than the installed one: its source as plain Python, or one with bounds checks."""

import importlib.util
import sys
from pathlib import Path

from perseid.base.errors import PerseidError
from perseid.core import Core


def core_from(folder: Path, ending: str = ".py") -> Core:
    """The core whose modules lie in `folder` as files with this ending; PerseidError when one is missing."""
    names = [f"perseid.core.{part}" for part in Core._fields]
    before = {name: sys.modules.get(name) for name in names}
    try:
        for part, name in zip(Core._fields, names, strict=True):
            found = sorted(folder.glob(f"{part}*{ending}"))
            if not found:
                raise PerseidError(f"{folder}: no {part}*{ending}; build the core there, or name another folder")
            spec = importlib.util.spec_from_file_location(name, found[0])
            assert spec is not None and spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)  # the next one imports it by its name
            spec.loader.exec_module(module)
        return Core(*(sys.modules[name] for name in names))
    finally:
        for name, module_before in before.items():
            if module_before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module_before
