"""A package for a cluster's executors: all that they need of Perseid, as one file that Spark ships to them.

Two forms. An environment (`.tar.gz`, for `--archives`): Perseid with its compiled core, and all it depends on, copied
from where this Python has them installed; executors have to have the same Python and the same kind of machine. Or a
`.zip` for `--py-files`: Perseid's own source, without the compiled core, for executors of any kind that have its
dependencies installed (the file REQUIREMENTS in it). Neither holds PySpark, pyarrow and pandas: a cluster for Python
has those.

The same files give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

import perseid
from perseid.base.errors import ConfigError

ENVIRONMENT = "perseid-env"
"""What executors unpack the environment as, and have on their path."""
NAME = "perseid"
ONLY_FOR_THE_COMMAND = frozenset({"typer", "rich"})
MANIFEST, REQUIREMENTS = "MANIFEST.json", "REQUIREMENTS"
COMPILED = (".so", ".pyd")
LEVEL = 4
"""Of compression: an eighth of the time that the highest takes, for 4 percent more bytes."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
File = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Packaged:
    """The file that was written."""

    path: Path
    bytes: int
    files: int
    distributions: dict[str, str]
    """Names and versions: of what is in it, or has to be there."""
    plain: bool

    @property
    def options(self) -> list[str]:
        """The options for spark-submit, or PYSPARK_SUBMIT_ARGS."""
        if self.plain:
            return ["--py-files", str(self.path)]
        return ["--archives", f"{self.path}#{ENVIRONMENT}", "--conf", f"spark.executorEnv.PYTHONPATH={ENVIRONMENT}"]


def package(path: Path, *, extra: Iterable[str] = ()) -> Packaged:
    """Write to `path`: an environment, or, where it ends in `.zip`, the source. `extra`: other distributions that the
    environment is to hold, with all that they depend on. ConfigError when one is not installed, or for another ending.
    """
    plain = path.suffix == ".zip"
    if not plain and not path.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(f"{path}: a name that ends in .tar.gz (an environment) or .zip (the source alone) is wanted")
    if plain and list(extra):
        raise ConfigError(f"{path}: a .zip holds Perseid alone; other distributions go into a .tar.gz")
    found = _closure(_requirements(NAME), extra)
    versions = {NAME: perseid.__version__, **{name: one.version for name, one in sorted(found.items())}}
    files = list(_own(plain=plain))
    if plain:
        needed = "".join(f"{name}=={version}\n" for name, version in versions.items() if name != NAME)
        files.append((REQUIREMENTS, needed.encode()))
    else:
        files += [file for one in found.values() for file in _installed(one)]
        told = {"python": platform.python_version(), "machine": f"{sys.platform} {platform.machine()}", **versions}
        files.append((MANIFEST, json.dumps(told, indent=1).encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_zip(files) if plain else _tar(files))
    return Packaged(path, path.stat().st_size, len(files), versions, plain)


def _requirements(name: str) -> list[str]:
    """The names of what a distribution depends on, whether it is needed here or not; extras aside."""
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError as error:
        raise ConfigError(f"{name} is not installed in this Python ({sys.executable})") from error
    names = []
    for line in required:
        found = _NAME.match(line)
        if found is not None and "extra ==" not in line:
            names.append(found[0].lower())
    return [found for found in names if found not in ONLY_FOR_THE_COMMAND]


def _closure(names: Iterable[str], extra: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Distributions, and all that they depend on, as far as it is installed (a marker may leave some out); those of
    `extra` have to be."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, False) for name in names] + [(name, True) for name in extra]
    while waiting:
        name, needed = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            if needed:
                raise ConfigError(f"{name} is not installed in this Python ({sys.executable})") from error
            continue
        waiting += [(below, False) for below in _requirements(name)]
    return found


def _own(*, plain: bool) -> Iterator[File]:
    """Perseid's own files."""
    root = Path(perseid.__file__).parent
    for path in sorted(root.rglob("*")):
        wanted = path.suffix == ".py" or path.name == "py.typed" or (not plain and path.suffix in COMPILED)
        if wanted and path.is_file():
            yield f"{NAME}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _installed(one: metadata.Distribution) -> Iterator[File]:
    """A distribution's files, but for those outside of the folder it is installed in, and what Python makes itself."""
    for file in sorted(one.files or []):
        place = PurePosixPath(file)
        if ".." in place.parts or place.is_absolute() or "__pycache__" in place.parts:
            continue
        path = Path(str(one.locate_file(file)))
        if path.is_file():
            yield str(place), path.read_bytes()


def _tar(files: Iterable[File]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), LEVEL, mtime=0)


def _zip(files: Iterable[File]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return raw.getvalue()
