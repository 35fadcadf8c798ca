"""The extras of pyproject.toml: which one has a package that is missing."""

import tomllib
from pathlib import Path

import pytest

from perseid.base import extras
from perseid.base.errors import PerseidError

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {
    "yaml": "PyYAML",
    "google.protobuf": "protobuf",
    "opentelemetry": "opentelemetry-api",
    "py4j": "pyspark",
}
"""Packages whose distribution is named otherwise, or that come with one."""


def test_each_package_is_in_the_extra_that_is_named_for_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in extras.EXTRAS.items():
        wanted = project["optional-dependencies"][extra]
        if package == "grpc":
            assert any(line.startswith("pyspark[connect]") for line in wanted)
        else:
            assert any(line.startswith(DISTRIBUTIONS.get(package, package)) for line in wanted), package


def test_what_is_installed_is_not_complained_about() -> None:
    extras.require("a test", "json", "xml.etree")


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "perseid_is_not_there", "spark")
    with pytest.raises(extras.MissingExtra) as told:
        extras.require("a test", "json", "perseid_is_not_there")
    assert str(told.value) == "a test needs perseid_is_not_there: pip install 'perseid[spark]'"
    assert isinstance(told.value, PerseidError) and isinstance(told.value, ImportError)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pyspark", "x needs pyspark: pip install 'perseid[spark]'"),
        ("pyspark.sql", "x needs pyspark: pip install 'perseid[spark]'"),
        ("google", "x needs protobuf: pip install 'perseid[lake]'"),
        ("deltalake.transaction", "x needs deltalake: pip install 'perseid[lake]'"),
    ],
)
def test_an_import_that_failed_is_told_with_its_extra(name: str, told: str) -> None:
    assert str(extras.missing("x", ModuleNotFoundError("gone", name=name))) == told


@pytest.mark.parametrize("name", ["pysparkling", "json", "", None])
def test_an_import_of_something_else_is_told_as_it_is(name: str | None) -> None:
    error = ModuleNotFoundError("gone", name=name)
    assert extras.missing("x", error) is error
