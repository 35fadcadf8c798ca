"""The programs of stock clients, each fetched and built once into the interop tests' folder (`parts.store`)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parts import OPENED, digest, install, locked, store, tool

HERE = Path(__file__).resolve().parent
JAVA_VERSIONS = ("4.3.0", "4.9.2", "4.9.7", "5.1.4", "5.5.0")
UNSIGNED, SIGNS_ITSELF = ("4.3.0",), ("5.5.0",)
"""The others sign with a jar of their own."""
BINARY = "binary"
"""Behind a Java client's name: its headers are binary."""
NAMES = (
    *(f"java-{version}" for version in JAVA_VERSIONS),
    f"java-4.9.2-{BINARY}",
    f"java-5.5.0-{BINARY}",
    "go-2.1.2",
    "node-3.12.0",
    "rust-1.0.0",
)
OPENS = [f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in ("sun.nio.ch", *(f"java.{p}" for p in OPENED))]


@dataclass(frozen=True)
class Program:
    """How a client's program is started: with the name server's address, and a folder to write to."""

    command: Callable[[str, Path], Sequence[str]]


def _jars(version: str) -> Path:
    """The client's, of this version."""
    pom = HERE / "pom.xml"
    lib = store() / f"client-{version}-{digest([pom])}"
    with locked("client"):
        if not lib.exists():
            fresh = lib.with_suffix(".part")
            shutil.rmtree(fresh, ignore_errors=True)
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
            signing = [] if version in UNSIGNED or version in SIGNS_ITSELF else ["-Pacl"]
            install([tool("mvn", "maven"), "-q", "-B", "-f", str(pom), f"-Drocketmq={version}", *signing, *copy], HERE)
            fresh.rename(lib)
    return lib


def _java(version: str, *, binary: bool) -> Program:
    options = [
        *OPENS,
        "-Xmx256m",
        "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
        f"-Drocketmq.serialize.type={'ROCKETMQ' if binary else 'JSON'}",
        "-Drocketmq.client.rebalance.waitInterval=2000",
    ]

    def command(namesrv: str, folder: Path) -> Sequence[str]:
        homes = [f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}"]
        java = tool("java", "default-jdk-headless")
        return [java, *options, *homes, "-cp", f"{_jars(version)}/*", str(HERE / "Kinds.java"), namesrv]

    return Program(command)


def _go() -> Program:
    """The Go client's, of the version in go/go.mod."""
    go = tool("go", "golang-go")
    sources = sorted((HERE / "go").glob("*.*"))
    binary = store() / f"kinds-go-{digest(sources)}"
    with locked("client"):
        if not binary.exists():
            fresh = binary.with_suffix(".part")
            install([go, "build", "-buildvcs=false", "-o", str(fresh), "."], HERE / "go")
            fresh.rename(binary)
    return Program(lambda namesrv, _: [str(binary), namesrv])


def _node() -> Program:
    """ali-ons, which speaks the protocol in plain JavaScript, of the version in node/package.json."""
    sources = sorted((HERE / "node").glob("*.js*"))
    folder = store() / f"kinds-node-{digest(sources)}"
    with locked("client"):
        if not folder.exists():
            fresh = folder.with_suffix(".part")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            for source in sources:
                shutil.copy(source, fresh)
            install([tool("npm", "npm"), "install", "--silent", "--no-audit", "--no-fund"], fresh)
            fresh.rename(folder)
    return Program(lambda namesrv, _: [tool("node", "nodejs"), str(folder / "kinds.js"), namesrv])


def _rust() -> Program:
    """The Rust client's, of the version in rust/Cargo.toml. Its 361 packages are compiled for minutes."""
    sources = sorted([HERE / "rust" / "Cargo.toml", *(HERE / "rust" / "src").iterdir()])
    binary = store() / f"kinds-rust-{digest(sources)}"
    with locked("client"):
        if not binary.exists():
            target = store() / "kinds-rust.part"
            build = ["build", "--quiet", "--manifest-path", str(sources[0]), "--target-dir", str(target)]
            install([tool("cargo", "cargo"), *build], target.parent)
            (target / "debug" / "kinds").rename(binary)
            shutil.rmtree(target)
    return Program(lambda namesrv, _: [str(binary), namesrv])


def of(name: str) -> Program:
    """The program of one of `NAMES`."""
    client, version, *more = name.split("-")
    if client == "java":
        return _java(version, binary=BINARY in more)
    if client == "go":
        return _go()
    if client == "node":
        return _node()
    if client == "rust":
        return _rust()
    raise ValueError(f"no such client: {name}; there are {', '.join(NAMES)}")
