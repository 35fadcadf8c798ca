"""What `perseid spark package` writes is all that an executor needs."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perseid.base.errors import ConfigError
from perseid.cli.main import app
from perseid.spark.package import MANIFEST, REQUIREMENTS, package

READS = """
import perseid.client.blocking, perseid.wire.compression, perseid.core, perseid.spark.pulls
print(perseid.__file__)
print(perseid.core.is_compiled)
"""


def run(path: Path, *options: str) -> list[str]:
    """What READS says in a Python that finds Perseid there first."""
    done = subprocess.run(
        [sys.executable, *options, "-c", READS], env={**os.environ, "PYTHONPATH": str(path)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.once
def test_an_environment_is_all_that_a_bare_python_needs(tmp_path: Path) -> None:
    done = package(tmp_path / "env.tar.gz")
    with tarfile.open(done.path) as archive:
        archive.extractall(tmp_path / "env", filter="data")
    where, compiled = run(tmp_path / "env", "-S")
    assert Path(where) == tmp_path / "env" / "perseid" / "__init__.py"
    from perseid import core

    assert compiled == str(core.is_compiled)
    assert (tmp_path / "env" / MANIFEST).is_file()
    assert {"perseid", "msgspec", "isal", "lz4", "backports.zstd"} <= done.distributions.keys()
    assert not {"typer", "rich"} & done.distributions.keys()
    assert package(tmp_path / "again.tar.gz").path.read_bytes() == done.path.read_bytes()


def test_a_zip_is_the_source_alone(tmp_path: Path) -> None:
    done = package(tmp_path / "perseid.zip")
    with zipfile.ZipFile(done.path) as archive:
        names = archive.namelist()
        assert b"msgspec==" in archive.read(REQUIREMENTS)
    assert all(name.endswith(".py") or name in (REQUIREMENTS, "perseid/py.typed") for name in names)
    where, compiled = run(done.path)
    assert where == str(done.path / "perseid" / "__init__.py")
    assert compiled == "False"
    assert done.options == ["--py-files", str(done.path)]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-thing is not installed in this Python"):
        package(tmp_path / "env.tar.gz", extra=["no-such-thing"])
    with pytest.raises(ConfigError, match=r"ends in \.tar\.gz"):
        package(tmp_path / "env.rar")
    with pytest.raises(ConfigError, match="holds Perseid alone"):
        package(tmp_path / "env.zip", extra=["pyarrow"])


def test_the_command_says_how_it_is_used(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["spark", "package", str(tmp_path / "perseid.zip")])
    assert done.exit_code == 0, done.output
    assert f"--py-files {tmp_path / 'perseid.zip'}" in done.stdout
    assert "submit.py archive TOPIC TABLE" in done.stdout
    failed = CliRunner().invoke(app, ["spark", "package", str(tmp_path / "perseid.rar")])
    assert failed.exit_code == 1
