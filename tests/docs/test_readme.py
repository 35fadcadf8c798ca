"""The README: its first program and its test run as a reader runs them."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import NAMESRV_PORT, Block, blocks

from perseid.testing.embedded import EmbeddedBroker

README = Path(__file__).parents[2] / "README.md"
MOST_LINES = 120
DEADLINE_S = 120


def programs() -> list[Block]:
    return [block for block in blocks(README) if block.language == "python"]


def run(tmp_path: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_stays_a_front_door() -> None:
    assert len(README.read_text().splitlines()) < MOST_LINES


def test_the_first_program_sends_a_message_and_gets_it(tmp_path: Path, perseid_broker: EmbeddedBroker) -> None:
    (program,) = (one for one in programs() if "asyncio.run(main())" in one.text)
    file = tmp_path / "first.py"
    file.write_text(program.text.replace(f"127.0.0.1:{NAMESRV_PORT}", perseid_broker.namesrv))
    assert run(tmp_path, sys.executable, str(file)).splitlines()[-1] == "b'hello'"


def test_the_test_passes(tmp_path: Path) -> None:
    (program,) = (one for one in programs() if "perseid_virtual_cluster" in one.text)
    file = tmp_path / "test_orders.py"
    file.write_text(program.text)
    assert "1 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", str(file))
