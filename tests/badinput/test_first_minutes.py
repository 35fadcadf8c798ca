"""Mistakes of the first minutes: each is told in one line that says what to do next."""

import json
import subprocess
import sys
from pathlib import Path

from perseid.base.extras import EXTRAS

DEADLINE_S = 120

BARE = f"""
import contextlib, io, json, sys

class Bare:
    "Finds no package of an extra, as after `pip install perseid` alone."
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{package}}.") for package in {tuple(EXTRAS)!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare)
told = {{}}
"""

COMMANDS = """
from perseid.cli import main
for words in {lines}:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = main.run(words)
    told[" ".join(words[:2])] = (code, err.getvalue())
print(json.dumps(told))
"""

CALLS = """
import importlib
import perseid.spark
for name, call in (
    ("session", perseid.spark.session),
    ("register", lambda: perseid.spark.register(None)),
    *((name, lambda name=name: importlib.import_module(name)) for name in {modules}),
):
    try:
        call()
    except Exception as error:
        told[name] = (type(error).__name__, str(error))
print(json.dumps(told))
"""


def without_extras(code: str) -> dict[str, list[str]]:
    """What a script told, with no package of an extra."""
    done = subprocess.run([sys.executable, "-c", BARE + code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_command_that_needs_spark_names_the_extra(tmp_path: Path) -> None:
    lines = [
        ["spark", "archive", "t", str(tmp_path / "table")],
        ["spark", "replay", str(tmp_path), "t"],
        ["spark", "stats", "-n", "127.0.0.1:1"],
        ["spark", "trace", "x"],
    ]
    told = without_extras(COMMANDS.format(lines=lines))
    text = "perseid: a job on Spark needs pyspark: pip install 'perseid[spark]'\n"
    assert told == {" ".join(words[:2]): [1, text] for words in lines}


def test_an_import_that_needs_an_extra_names_it() -> None:
    modules = [
        "perseid.spark.source", "perseid.spark.sink", "perseid.spark.log.source", "perseid.spark.jobs.archive",
        "perseid.spark.jobs.stats", "perseid.spark.jobs.replay", "perseid.spark.jobs.audit",
        "perseid.spark.jobs.trace", "perseid.spark.jobs.dead_letters", "perseid.spark.jobs.time_travel",
        "perseid.client.otel",
    ]  # fmt: skip
    told = without_extras(CALLS.format(modules=modules))
    assert told.pop("session") == [
        "MissingExtra", "perseid.spark.session() needs pyspark: pip install 'perseid[spark]'"
    ]  # fmt: skip
    assert told.pop("register")[0] == "MissingExtra"
    assert told.pop("perseid.client.otel")[1] == (
        "perseid.client.otel needs opentelemetry: pip install 'perseid[otel]'"
    )
    assert sorted(told) == sorted(modules[:-1])
    for kind, text in told.values():
        assert kind == "MissingExtra"
        assert text in {f"perseid.spark needs {name}: pip install 'perseid[spark]'" for name in ("pyspark", "pyarrow")}
