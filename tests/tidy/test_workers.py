"""What tests/conftest.py sees to for all tests and what they start."""

import subprocess
import sys


def test_what_was_compiled_is_kept_here_and_in_what_tests_start() -> None:
    command = [sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"]
    begun = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (sys.dont_write_bytecode, begun.stdout.strip()) == (False, "False")
