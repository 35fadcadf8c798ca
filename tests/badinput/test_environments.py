"""Surroundings that Perseid was not written in: another locale, another time zone, a home that cannot be written, no
terminal, a processor without AVX, a Python without sqlite3. Server, command and client work, or say what to do."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.output import Output

DEADLINE_S = 120
UNWRITABLE = "/proc"
"""Nobody can make a file there, root neither."""
COMMAND = "import sys; from perseid.cli.entry import main; sys.argv[0] = 'perseid'; main()"
WORD, BODY = "clé", "Grüße, 世界"

SITE = """
import sys
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing)
"""
ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "a home that can't be written": {"HOME": UNWRITABLE},
    "an ASCII locale": ASCII,
    "the C locale as it comes": {"LANG": "C", "LC_ALL": "C"},
    "a zone 14 hours ahead": {"TZ": "Pacific/Kiritimati"},
    "a zone that isn't one": {"TZ": "No/Where"},
    "no sqlite3": {"MISSING": "sqlite3 _sqlite3"},
    "no isal": {"MISSING": "isal"},
}

CLIENT = f"""
import asyncio, sys
from perseid.client import Message, Producer, PullConsumer

async def main(namesrv):
    async with Producer(namesrv) as producer:
        (queue,) = await producer.queues("T")
        await producer.send(Message("T", {BODY!a}.encode(), tag={WORD!a}))
    async with PullConsumer(namesrv, "g") as consumer:
        found = [m async for some in consumer.read(queue, 0, 2) for m in some]
    assert [m.body.decode() for m in found] == [{BODY!a}] * 2, found
    assert [m.tag for m in found] == [{WORD!a}] * 2, found
    print("isal" in sys.modules, "sqlite3" in sys.modules)

asyncio.run(main(sys.argv[1]))
"""

BROADCAST = """
import asyncio, sys
from perseid.client import ClientError, ConsumeMode, PushConsumer

async def main(namesrv):
    async def handle(message): pass
    try:
        async with PushConsumer(namesrv, "g", {"T": "*"}, handle, mode=ConsumeMode.BROADCAST) as consumer:
            pass
    except ClientError as error:
        print(error)

asyncio.run(main(sys.argv[1]))
"""


class Surroundings:
    """A process of ours begins here: with these variables, without these packages, without a terminal."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        changed = dict(settings)
        missing = changed.pop("MISSING", "").split()
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE.format(missing=tuple(missing)))
        path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
        self.environment = {**os.environ, "PYTHONPATH": path, **changed}

    def run(self, *words: str, status: int = 0) -> str:
        """What a program prints."""
        done = subprocess.run(
            [sys.executable, *words], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == status, done.stderr.decode()
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return (done.stdout if status == 0 else done.stderr).decode()

    def perseid(self, *words: str, status: int = 0) -> str:
        return self.run("-c", COMMAND, *words, status=status)

    @contextmanager
    def up(self, folder: Path) -> Iterator[str]:
        """The address of the name server of a `perseid up` that ends well."""
        words = ["up", "--data", str(folder / "däta"), "--namesrv-port", "0", "--broker-port", "0", "--json"]
        log = folder / "up.log"
        with log.open("w") as errors:
            server = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *words], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            ready = json.loads(Output(server, log).line(DEADLINE_S))
            assert ready["data"] == str(folder / "däta")
            yield ready["namesrv"]
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE_S) == 0 and "Traceback" not in log.read_text(), log.read_text()
        finally:
            server.kill()
            server.communicate()


@pytest.mark.parametrize("settings", SURROUNDINGS.values(), ids=SURROUNDINGS.keys())
def test_server_command_and_client_work_in_it(tmp_path: Path, settings: dict[str, str]) -> None:
    here = Surroundings(tmp_path, settings)
    with here.up(tmp_path) as namesrv:
        assert "T is ready on broker-a" in here.perseid("topic", "create", "T", "-q", "1", "-n", namesrv)
        assert "T/broker-a/0@0" in here.perseid("send", "T", BODY, "--tag", WORD, "-n", namesrv)
        isal, sqlite = here.run("-c", CLIENT, namesrv).split()
        read = ["consume", "T", "--count", "2", "-n", namesrv]
        assert here.perseid(*read).splitlines() == [BODY, BODY]
        rows = [json.loads(line) for line in here.perseid(*read, "--json").splitlines()]
        assert [row["tag"] for row in rows] == [WORD, WORD]
    missing = settings.get("MISSING", "")
    assert (isal, sqlite) == (str("isal" not in missing), "False")
    assert (tmp_path / "däta").is_dir()


def test_a_broadcasting_consumer_names_the_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Path(UNWRITABLE, ".perseid").mkdir()
    here = Surroundings(tmp_path, {"HOME": UNWRITABLE})
    with here.up(tmp_path) as namesrv:
        told = here.run("-c", BROADCAST, namesrv)
    assert told.startswith(f"{UNWRITABLE}/.perseid/offsets/") and "offsets_folder=" in told


def test_a_word_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    here = Surroundings(tmp_path, {})
    told = here.perseid("send", "T", os.fsdecode(b"\xff"), status=2)
    assert told == "perseid: '\\udcff' is not UTF-8: write it in UTF-8\n"


WITHOUT_AVX = """
import sys, zlib
from isal import isal_zlib
from perseid import core
from perseid.core import scan
from perseid.wire.compression import LZ4, ZSTD, compress, decompress, flag_of
data = bytes(range(256)) * 400
assert isal_zlib.crc32(data) == zlib.crc32(data)
for kind in (LZ4, ZSTD):
    assert decompress(compress(data, kind), flag_of(kind)) == data
assert scan.complete(memoryview(bytes((0, 0, 0, 4, 0, 0, 0, 0)))) == 8
import msgspec, uvloop
print("works")
"""
EMULATOR = "qemu-x86_64"


@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason="apt-get install qemu-user")
def test_it_runs_on_a_processor_without_avx() -> None:
    """Nehalem, of 2008, is the oldest that has CRC instructions; a wheel built for newer ones ends with SIGILL."""
    packages = [path for path in sys.path if path]
    program = f"import sys; sys.path[:] = {packages!r}\n{WITHOUT_AVX}"
    python = str(Path(sys.executable).resolve())
    done = subprocess.run(
        [EMULATOR, "-cpu", "Nehalem", python, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout) == (0, "works\n"), done.stderr
