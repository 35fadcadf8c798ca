"""What has to be true of the files in dist/ before they are published."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from release.build import the_sdist
from release.report import Report
from release.running import DIST, Failed, run

MAX_SDIST_BYTES = 2_000_000
MAX_WHEEL_BYTES = 4_500_000
MAX_UNPACKED_BYTES = 11_000_000
NEWEST_GLIBC = (2, 28)
"""A wheel that needs a newer one would not install on the systems that we name."""
SYMBOLS = (b".symtab", b".debug_info", b".debug_str")
"""Names of ELF sections that a stripped module has not."""
FOREIGN = re.compile(r"(^|/)(tests?|conftest\.py|test_[^/]*\.py|__pycache__)(/|$)")
"""What is for development alone."""
COMMIT = "perseid/commit.txt"


def check(report: Report) -> None:
    """All files in dist/. Failed with all that is wrong."""
    wheels = sorted(DIST.glob("perseid-*.whl"))
    if not wheels:
        raise Failed(f"{DIST}: no wheels: `python -m release wheels`")
    with report.timed("check", "metadata") as row:
        run([sys.executable, "-m", "twine", "check", "--strict", the_sdist(), *wheels], log="twine")
        row.result = "twine check --strict"
    wrong = []
    for path, look in [(the_sdist(), look_at_sdist), *((wheel, look_at_wheel) for wheel in wheels)]:
        with report.timed("check", path.name) as row:
            found = look(path)
            row.bytes = path.stat().st_size
            row.result = "; ".join(found) or "good"
            wrong += [f"{path.name}: {one}" for one in found]
    if wrong:
        raise Failed("\n".join(wrong))


def look_at_sdist(path: Path) -> list[str]:
    """What is wrong with it; nothing, usually."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        base = archive.getnames()[0].partition("/")[0]
        commit = archive.extractfile(f"{base}/src/{COMMIT}")
        written = commit.read().decode().strip() if commit is not None else ""
    return [
        *_too_large(path.stat().st_size, MAX_SDIST_BYTES, "MAX_SDIST_BYTES"),
        *_foreign(names),
        *_no_commit(written),
    ]


def look_at_wheel(path: Path) -> list[str]:
    """What is wrong with it; nothing, usually."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        modules = {name: archive.read(name) for name in names if name.endswith(".so")}
        written = archive.read(COMMIT).decode().strip() if COMMIT in names else ""
        unpacked = sum(info.file_size for info in archive.infolist())
    own = {f"{'-'.join(path.name.split('-')[:2])}.dist-info", "perseid"}
    return [
        *_too_large(path.stat().st_size, MAX_WHEEL_BYTES, "MAX_WHEEL_BYTES"),
        *_too_large(unpacked, MAX_UNPACKED_BYTES, "MAX_UNPACKED_BYTES"),
        *_foreign(names),
        *(f"{name} is not the package's" for name in names if name.partition("/")[0] not in own),
        *uncompiled(names),
        *(f"{name} has symbols: it is not stripped" for name in modules if has_symbols(modules[name])),
        *_no_commit(written),
        *wrong_tag(path.name),
    ]


def has_symbols(module: bytes) -> bool:
    """Is it a module with symbols or debug information?"""
    return any(section in module for section in SYMBOLS)


def uncompiled(names: Iterable[str]) -> list[str]:
    """Modules of the core that this wheel has no compiled form of."""
    told = list(names)
    compiled = {Path(name).name.partition(".")[0] for name in told if name.endswith(".so")}
    wanted = {Path(name).stem for name in told if name.endswith(".pxd")}
    return [f"perseid.core.{name} is not compiled" for name in sorted(wanted - compiled)]


def wrong_tag(name: str) -> list[str]:
    """A wheel for Linux has a tag of manylinux, of an old enough glibc, or of musllinux; others are not looked at."""
    platform = name.removesuffix(".whl").split("-")[-1]
    if "linux" not in platform or platform.startswith("musllinux_"):
        return []
    glibcs = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", platform)]
    if not glibcs:
        return [f"the tag {platform} is not one of manylinux: auditwheel has not repaired it"]
    major, minor = min(glibcs)
    return [] if (major, minor) <= NEWEST_GLIBC else [f"it needs glibc {major}.{minor}, newer than 2.28"]


def _too_large(count: int, limit: int, name: str) -> list[str]:
    return [] if count <= limit else [f"{count} bytes, and {name} is {limit}"]


def _foreign(names: Iterable[str]) -> list[str]:
    return [f"{name} is for development alone" for name in names if FOREIGN.search(name)]


def _no_commit(written: str) -> list[str]:
    return [] if re.fullmatch("[0-9a-f]{7,}(-dirty)?", written) else [f"{COMMIT} names no commit: {written!r}"]
