"""Finding a Java for Spark."""

from pathlib import Path

import pytest

from perseid.spark import java


def test_a_machine_without_java_gets_the_one_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    home = java.java_home(tmp_path)
    assert home == tmp_path / "java"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # the shim is a shell script
    found = java.version(str(home / "bin" / "java"))
    assert found is not None and found >= java.OLDEST


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert java.java_home(tmp_path) == tmp_path / "java"
