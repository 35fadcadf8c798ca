"""The real parts as a machine has them, and how a JVM starts with them.

What a new machine lacks is fetched once into `$PERSEID_CACHE` (default `~/.cache/perseid`): the jars by
Maven (java/pom.xml), the Go client by Go itself (go/go.mod). Whatever is missing stops the suite with a
line that says what to install; nothing is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "5.5.0"
NEWER_DLEDGER = "0.3.3.4"
"""RocketMQ 5.5.0 comes with 0.3.2; this one mends defects of it, and writes its JSON by another library."""
INSTALL_SECONDS = 900.0
LOG_TAIL_BYTES = 3000
OPENED = ("lang", "util", "util.concurrent", "util.concurrent.atomic", "math", "text", "net", "io", "nio")
JVM = [
    "-XX:MaxDirectMemorySize=512m",
    "-Dtls.server.mode=disabled",
    *(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in ("sun.nio.ch", *(f"java.{p}" for p in OPENED))),
]
"""A server makes a key for TLS at its start, by a library larger than itself: seconds of CPU, and nobody here speaks
TLS."""


class RigError(RuntimeError):
    """A part of the rig is missing, didn't start, or didn't answer in time."""


def tool(name: str, package: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/local/go/bin:/usr/lib/go/bin")
    if not path:
        raise RigError(f"`{name}` is not installed, and make interop needs it: apt-get install {package}")
    return path


def store() -> Path:
    """The folder of what was fetched and built."""
    path = Path(os.environ.get("PERSEID_CACHE") or Path.home() / ".cache" / "perseid").expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time installs a thing."""
    with open(store() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(files: Sequence[Path], *more: bytes) -> str:
    return hashlib.sha256(b"\0".join([*(f.read_bytes() for f in files), *more])).hexdigest()[:12]


def install(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise RigError(
            f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-LOG_TAIL_BYTES:]}{done.stderr}"
        )


def _jars() -> Path:
    """RocketMQ's, and what they need."""
    pom = HERE / "java" / "pom.xml"
    lib = store() / f"java-{VERSION}-{digest([pom])}"
    if not lib.exists():
        fresh = lib.with_suffix(".part")
        shutil.rmtree(fresh, ignore_errors=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        install([tool("mvn", "maven"), "-q", "-B", "-f", str(pom), *copy], HERE)
        fresh.rename(lib)
    return lib


def _sources() -> list[Path]:
    return [HERE / "java" / "pom.xml", *sorted((HERE / "java" / "src").rglob("*.java"))]


def _agent(lib: Path) -> Path:
    """Our agent's classes, built from java/src; a jar, since a JVM archives no classes from folders."""
    jar = store() / f"agent-java-{digest(_sources())}.jar"
    if not jar.exists():
        classes, fresh = jar.with_suffix(".part"), jar.with_suffix(".new")
        shutil.rmtree(classes, ignore_errors=True)
        compiler, archiver = tool("javac", "default-jdk-headless"), tool("jar", "default-jdk-headless")
        install([compiler, "-nowarn", "-d", str(classes), "-cp", f"{lib}/*", *map(str, _sources()[1:])], HERE)
        install([archiver, "--create", "--file", str(fresh), "-C", str(classes), "."], HERE)
        shutil.rmtree(classes)
        fresh.rename(jar)
    return jar


@cache
def classpath() -> str:
    """The jars of RocketMQ 5.5.0 and of our agent."""
    tool("java", "default-jdk-headless")
    with locked("java"):
        lib = _jars()
        return f"{_agent(lib)}:{lib}/*"


@cache
def newer_dledger() -> Path:
    """The jar of DLedger 0.3.3.4; ahead of the others its classes take the place of theirs."""
    folder = store() / f"dledger-{NEWER_DLEDGER}"
    with locked("dledger"):
        if not folder.exists():
            fresh = folder.with_suffix(".part")
            shutil.rmtree(fresh, ignore_errors=True)
            artifact = f"-Dartifact=io.openmessaging.storage:dledger:{NEWER_DLEDGER}"
            copy = ["dependency:copy", artifact, f"-DoutputDirectory={fresh}"]
            install([tool("mvn", "maven"), "-q", "-B", *copy], HERE)
            fresh.rename(folder)
    (jar,) = folder.glob("*.jar")
    return jar


@cache
def archive() -> Path:
    """Where the classes of all parts stand as this machine's JVM maps them, once `rehearsal` has made it: with it a
    server starts in a third of the time, since no class is read from a jar and verified."""
    java = tool("java", "default-jdk-headless")
    version = subprocess.run([java, "-version"], capture_output=True, check=True, timeout=INSTALL_SECONDS)
    return store() / f"classes-{digest(_sources(), version.stderr, classpath().encode())}.jsa"


def jvm(home: Path, *options: str, ahead: Sequence[Path] = ()) -> list[str]:
    """The command of a JVM with the parts' classes, but for what it is to run; `options` after the usual ones, classes
    of the jars `ahead` before all others."""
    mapped = [f"-XX:SharedArchiveFile={archive()}"] if archive().exists() and not ahead else []
    classes = os.pathsep.join([*map(str, ahead), classpath()])
    homes = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return [tool("java", "default-jdk-headless"), "-Xmx512m", *JVM, *mapped, *options, *homes, "-cp", classes]


@cache
def go_agent() -> Path:
    """The Go agent's binary."""
    go = tool("go", "golang-go")
    with locked("go"):
        sources = sorted((HERE / "go").glob("*.*"))
        binary = store() / f"agent-go-{digest(sources)}"
        if not binary.exists():
            fresh = binary.with_suffix(".part")
            install([go, "build", "-buildvcs=false", "-o", str(fresh), "."], HERE / "go")
            fresh.rename(binary)
    return binary
