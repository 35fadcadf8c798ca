"""`make release-dry`: its checks find what is wrong, and the release workflow has the same steps."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import __main__ as command
from release import build, checks, pythons, running, trial
from release.pythons import Python
from release.report import Report

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/release.yml"
DEADLINE = 60
WHEEL = "perseid-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
INFO = "perseid-1.0.dist-info/METADATA"
GOOD = {
    "perseid/__init__.py": b"",
    "perseid/commit.txt": b"1ae3982\n",
    "perseid/core/scan.pxd": b"",
    "perseid/core/scan.cpython-311-x86_64-linux-gnu.so": b"\x7fELF.text\0.shstrtab\0",
    INFO: b"",
}


def wheel(folder: Path, files: dict[str, bytes], name: str = WHEEL) -> Path:
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return folder / name


def sdist(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "perseid-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"perseid-1.0/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_a_good_wheel_and_a_good_sdist_are_found_good(tmp_path: Path) -> None:
    assert checks.look_at_wheel(wheel(tmp_path, GOOD)) == []
    assert checks.look_at_sdist(sdist(tmp_path, {"src/perseid/commit.txt": b"1ae3982-dirty\n"})) == []


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"perseid/tests/test_scan.py": b""}, "perseid/tests/test_scan.py is for development alone"),
        ({"perseid/conftest.py": b""}, "perseid/conftest.py is for development alone"),
        ({"bench/run.py": b""}, "bench/run.py is not the package's"),
        ({"perseid/core/scan.so": b"\x7fELF.symtab\0"}, "perseid/core/scan.so has symbols: it is not stripped"),
        ({"perseid/core/scan.so": b"\x7fELF.debug_info\0"}, "perseid/core/scan.so has symbols: it is not stripped"),
        ({"perseid/core/batch.pxd": b""}, "perseid.core.batch is not compiled"),
        ({"perseid/commit.txt": b"unknown\n"}, "perseid/commit.txt names no commit: 'unknown'"),
        ({"perseid/data": bytes(checks.MAX_UNPACKED_BYTES)}, "bytes, and MAX_UNPACKED_BYTES is"),
        ({"perseid/data": os.urandom(checks.MAX_WHEEL_BYTES)}, "bytes, and MAX_WHEEL_BYTES is"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_each_defect_of_a_wheel_is_named(tmp_path: Path, changed: dict[str, bytes], said: str) -> None:
    (found,) = checks.look_at_wheel(wheel(tmp_path, GOOD | changed))
    assert said in found


@pytest.mark.parametrize(
    "platform, said",
    [
        ("manylinux_2_28_x86_64", ""),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", ""),
        ("manylinux2014_x86_64.manylinux_2_17_x86_64", ""),
        ("musllinux_1_2_aarch64", ""),
        ("macosx_11_0_arm64", ""),
        ("linux_x86_64", "auditwheel has not repaired it"),
        ("manylinux_2_34_x86_64", "it needs glibc 2.34, newer than 2.28"),
    ],
)
def test_a_wheel_says_what_it_can_be_installed_on(tmp_path: Path, platform: str, said: str) -> None:
    found = checks.look_at_wheel(wheel(tmp_path, GOOD, f"perseid-1.0-cp311-cp311-{platform}.whl"))
    assert len(found) == bool(said) and all(said in one for one in found)


def test_a_check_that_fails_tells_all_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checks, build):
        monkeypatch.setattr(module, "DIST", tmp_path)
    monkeypatch.setattr(checks, "run", lambda *_, **__: "")  # twine's part
    with pytest.raises(running.Failed, match="no wheels"):
        checks.check(Report())
    wheel(tmp_path, GOOD | {"perseid/commit.txt": b"", "bench/run.py": b""})
    with pytest.raises(running.Failed, match="0 sdists, one is wanted"):
        checks.check(Report())
    sdist(tmp_path, {"src/perseid/commit.txt": b""})
    with pytest.raises(running.Failed) as failed:
        checks.check(Report())
    assert len(str(failed.value).splitlines()) == 3


def test_a_wheel_is_the_one_for_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DIST", tmp_path)
    normal, free = Python(Path("p"), "3.14.0"), Python(Path("p"), "3.14.0", free_threaded=True)
    found = [wheel(tmp_path, GOOD, f"perseid-1.0-cp314-{abi}-linux_x86_64.whl") for abi in ("cp314", "cp314t")]
    assert [build.the_wheel(normal), build.the_wheel(free)] == found
    with pytest.raises(running.Failed, match="0 wheels for cp313, one is wanted"):
        build.the_wheel(Python(Path("p"), "3.13.0"))


def test_pythons_are_asked_and_chosen(tmp_path: Path) -> None:
    here = pythons.ask(Path(sys.executable))
    assert here is not None and here.version == ".".join(map(str, sys.version_info[:3]))
    broken = tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert pythons.ask(broken) is None and pythons.ask(tmp_path / "missing") is None
    three = [Python(Path(), version) for version in ("3.11.7", "3.12.1", "3.13.0")]
    assert command.chosen(three, []) == three and command.chosen(three, ["3.12", "3.11.7"]) == three[:2]
    with pytest.raises(running.Failed, match=r"no CPython 3\.1 on this machine; there are: 3\.11\.7, 3\.12\.1, 3\.13"):
        command.chosen(three, ["3.1"])


def test_a_tool_that_fails_is_one_error_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WORK", tmp_path)
    program = "import sys; print('line 1'); print('the reason', file=sys.stderr); sys.exit(3)"
    with pytest.raises(running.Failed, match=r"exit code 3; see .*tool\.log\n  line 1\n  the reason"):
        running.run([sys.executable, "-c", program], log="tool")
    with pytest.raises(running.Failed, match="No such file or directory; `make setup` installs the tools"):
        running.run([tmp_path / "no-tool"], log="tool")
    monkeypatch.setattr(running, "TIMEOUT_S", 0.1)
    with pytest.raises(running.Failed, match=r"no end within 0\.1 s"):
        running.run([sys.executable, "-c", "import signal; signal.pause()"], log="tool")


def test_a_report_has_a_row_for_each_thing_that_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with report.timed("build", "sdist") as row:
        row.bytes, row.result = 1_234_567, "good"
    with pytest.raises(running.Failed), report.timed("check", "broken"):
        raise running.Failed("why")
    assert re.search(r"^\| build \| sdist \| 1\.2 MB \| 0\.0 \| good \|$", report.table(), re.MULTILINE)
    (row_,) = json.loads(report.to_json())
    assert row_ == {"step": "build", "what": "sdist", "seconds": row.seconds, "bytes": 1_234_567, "result": "good"}
    assert capsys.readouterr().err == "build: sdist …\nbuild: sdist: 0.0 s, 1.2 MB, good\ncheck: broken …\n"


def test_the_first_message_of_a_user_goes_through(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, trial.FIRST_MESSAGE, tmp_path], capture_output=True, text=True, timeout=DEADLINE, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] in told["first_line"] and 0 < told["ready_s"] < told["read_s"]


def workflow() -> dict[str, Any]:
    return yaml.safe_load(WORKFLOW.read_text())  # type: ignore[no-any-return]


def runs(job: str) -> list[str]:
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_the_workflow_has_the_steps_of_release_dry() -> None:
    assert runs("dry") == ["make setup", *(f"make release-dry STEPS={step}" for step in command.STEPS)]
    steps = [run.removeprefix("python -m release ") for run in runs("publish") if "-m release" in run]
    assert steps and set(steps) <= set(command.STEPS)
    rule = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "release-dry", "STEPS=check"],
        cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert rule.stdout.split() == [".venv/bin/python", "-m", "release", "check"], rule.stderr


def test_only_a_tag_is_published_and_only_after_all_wheels() -> None:
    jobs = workflow()["jobs"]
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert (jobs["wheels"]["needs"], jobs["publish"]["needs"]) == ("dry", "wheels")
    assert all(job["timeout-minutes"] <= 120 for job in jobs.values())


@pytest.mark.parametrize("platform, kinds", [("linux", ("manylinux_x86_64", "musllinux_aarch64")), ("macos", ())])
def test_cibuildwheel_understands_its_configuration(platform: str, kinds: tuple[str, ...]) -> None:
    words = ["--print-build-identifiers", "--platform", platform, "--archs", "all", str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "cibuildwheel", *words], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert {f"cp31{minor}-{kind}" for minor in (1, 2, 3, 4) for kind in kinds} <= set(found)
    assert {name.partition("-")[0] for name in found} == {"cp311", "cp312", "cp313", "cp314"}


def test_the_pythons_that_are_named_are_those_that_are_tried() -> None:
    """Classifiers say what was tried: the workflow's list, and what cibuildwheel builds beyond it is no promise."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)}
    (setup,) = [step for step in workflow()["jobs"]["dry"]["steps"] if "setup-python" in step.get("uses", "")]
    assert named == set(setup["with"]["python-version"].split())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_release_of_this_checkout_passes(tmp_path: Path) -> None:
    """With one Python, in a copy: `make release-dry` tries all that there are."""
    copy = tmp_path / "perseid"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    words = ["-m", "release", "--json", "--python", f"{sys.version_info[0]}.{sys.version_info[1]}"]
    done = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["step"] for row in rows} >= {"build", "check", "sbom", "install", "first message", "uninstall"}
