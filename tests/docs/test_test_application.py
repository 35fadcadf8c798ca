"""The how-to page about tests of applications: its code passes as a reader runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS

CODE = DOCS / "how-to" / "code" / "test_application.py"


def test_the_code_of_the_page_passes(tmp_path: Path) -> None:
    """With no plugin but Perseid's own, though others may be installed."""
    shutil.copy(CODE, tmp_path)
    alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:randomly"]
    done = subprocess.run([*alone, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout
