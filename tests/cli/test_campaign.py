"""`perseid sim --for`: all models for a time, its report on disk, what a failure, Ctrl-C and a dead process leave."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.sim.test_mutations import wheel_not_written
from tests.sim.test_shrink import first_with_many_faults
from typer.testing import CliRunner

from perseid.cli import campaign as player
from perseid.cli.main import app
from perseid.sim import coverage, shrink
from perseid.sim.campaign import LANE_SEEDS
from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import MODELS, Model

runner = CliRunner()


def planted(monkeypatch: pytest.MonkeyPatch, play: Any) -> None:
    """All models are played by `play(seed)`."""
    for model in MODELS:
        monkeypatch.setitem(MODELS, model, Model(play, coverage.RAFT_EXPECTED, {}))


def passing(seed: int, *given: Any) -> Result:
    return Result(seed, operations=5, faults=2, virtual_s=60, counts=Counter({"read": 1}))


def failing(seed: int, *given: Any) -> Result:
    if seed % 3:
        return passing(seed)
    return Result(seed, failure="C10: readers see more\nthan they may", broken="C10", story=["what happened"])


def test_a_moment_of_each_model_with_the_core_and_without() -> None:
    done = runner.invoke(app, ["sim", "--for", "1s", "--fresh", "a commit", "--jobs", "2", "--json"])
    summary = json.loads(done.stdout)
    assert not summary["failures"], summary
    assert done.exit_code == 0 and not summary["interrupted"] and summary["seeds"] >= 1
    assert {lane["model"] for lane in summary["lanes"]} == set(MODELS)


def test_a_commit_names_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, passing)
    firsts = [
        json.loads(runner.invoke(app, ["sim", "--for", "0.1s", "--fresh", text, "--json"]).stdout)["first"]
        for text in ("one", "one", "another")
    ]
    assert firsts[0] == firsts[1] != firsts[2]


def test_failures_are_told_at_once_and_again_at_the_end_and_are_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted(monkeypatch, failing)
    report = tmp_path / "night.txt"
    done = runner.invoke(
        app, ["sim", "--for", "0.5s", "--model", "ha", "--first", "300", "--jobs", "1", "--report", str(report)]
    )
    assert done.exit_code == 1
    assert "seed 300 failed" in done.output and "what happened" in done.output
    for text in (done.output, report.read_text()):
        assert "ha: C10" in text and "perseid sim --seed 300 --model ha" in text
    assert "than they may" in report.read_text()


def test_enough_seeds_that_miss_something_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, passing)
    monkeypatch.setattr(coverage, "ENOUGH_SEEDS", 1)
    done = runner.invoke(app, ["sim", "--for", "0.2s", "--model", "raft", "--jobs", "1"])
    assert done.exit_code == 1 and "never occurred: vote given" in done.output, done.output


def test_ctrl_c_leaves_a_report_of_what_was_played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = os.getpid()

    def interrupting(seed: int, *given: Any) -> Result:
        if seed % LANE_SEEDS >= 305:
            os.kill(main, signal.SIGINT)
            signal.pause()  # what is played is ended: nobody waits for it
        return failing(seed)

    planted(monkeypatch, interrupting)
    report = tmp_path / "night.txt"
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
    done = runner.invoke(
        app, ["sim", "--for", "1h", "--model", "raft", "--first", "300", "--jobs", "1", "--report", str(report)]
    )
    signal.signal(signal.SIGINT, heard)
    assert done.exit_code == 130, done.output
    assert "seeds interrupted" in report.read_text() and "raft: C10" in report.read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from perseid.cli.main import app
from perseid.sim import coverage, shrink
from perseid.sim.campaign import LANE_SEEDS
from perseid.sim.models.registry import MODELS, Model
from perseid.sim.models.broker.run import Result

def play(seed, *given):
    if seed % LANE_SEEDS >= 305:
        Path(sys.argv[1], "waits").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    return Result(seed, failure="C10: more", broken="C10")

MODELS["raft"] = Model(play, coverage.RAFT_EXPECTED, {})
report = str(Path(sys.argv[1], "night.txt"))
app(["sim", "--for", "1h", "--model", "raft", "--first", "300", "--jobs", "1", "--report", report])
"""


def test_a_kill_leaves_the_report_and_no_process_that_plays(tmp_path: Path) -> None:
    """Those that play hold the pipe: it ends when the last one has."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL and (tmp_path / "waits").exists()
    report = (tmp_path / "night.txt").read_text()
    assert "seeds being played" in report and "raft: C10" in report and "perseid sim --seed 300" in report


def test_a_process_that_dies_is_a_failure_that_names_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(seed: int, *given: Any) -> Result:
        if seed == 300:
            os.kill(os.getpid(), signal.SIGKILL)
        return passing(seed)

    planted(monkeypatch, dying)
    done = runner.invoke(app, ["sim", "--for", "0.5s", "--model", "raft", "--first", "300", "--jobs", "1"])
    assert done.exit_code == 1
    assert "a process died that may have played one of the seeds" in done.output


def test_processes_that_die_again_and_again_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda seed, *given: os.kill(os.getpid(), signal.SIGKILL))
    done = runner.invoke(app, ["sim", "--for", "1h", "--model", "raft", "--jobs", "1"])
    assert done.exit_code == 1 and "the process that plays stays alive" in done.output


def test_a_report_that_can_not_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(monkeypatch, failing)
    (tmp_path / "night.txt.new").mkdir()
    arguments = ["sim", "--for", "0.2s", "--model", "raft", "--first", "300", "--jobs", "1"]
    done = runner.invoke(app, [*arguments, "--report", str(tmp_path / "night.txt")])
    assert done.exit_code == 1 and "can't be written" in done.stderr and "raft: C10" in done.stdout


def test_a_seed_that_can_not_even_begin_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, *given: Any) -> Result:
        raise ValueError("no settings fit")

    planted(monkeypatch, broken)
    done = runner.invoke(app, ["sim", "--for", "0.2s", "--model", "raft", "--jobs", "1"])
    assert done.exit_code == 1 and "raft: ValueError" in done.output and "no settings fit" in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--for", "ten minutes"], "10m or 8h"),
        (["--for", "0s"], "at least a moment"),
        (["--for", "1000h"], "at most 168h"),
        (["--for", "1m", "--seed", "3"], "--seed, --seeds, --swarm and parts of a seed out"),
        (["--for", "1m", "--seeds", "3"], "--seed, --seeds, --swarm and parts of a seed out"),
        (["--for", "1m", "--swarm"], "--seed, --seeds, --swarm and parts of a seed out"),
        (["--for", "1m", "--first", "3", "--fresh", "x"], "leave one of them out"),
        (["--for", "1m", "--report", "/no/such/folder/night.txt"], "in a folder that is there"),
        (["--for", "1m", "--report", "/"], "in a folder that is there"),
        (["--fresh", "x"], "add --for 10m"),
        (["--model", "all"], "add --for 10m"),
        (["--report", "x"], "add --for 10m"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], told: str) -> None:
    done = runner.invoke(app, ["sim", *arguments], env={"COLUMNS": "300", "TERM": "dumb"})
    assert done.exit_code == 2 and told in " ".join(done.output.replace("│", " ").split()), done.output


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_a_planted_defect_is_found_grouped_and_shrunk_and_the_command_replays_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel_not_written(monkeypatch)
    monkeypatch.setattr(shrink, "MAX_PLAYS", 8)
    seed = first_with_many_faults(500).seed
    report = tmp_path / "night.txt"
    arguments = ["sim", "--for", "1s", "--model", "broker", "--first", str(seed), "--jobs", "2", "--json"]
    done = runner.invoke(app, [*arguments, "--report", str(report)])
    assert done.exit_code == 1
    summary = json.loads(done.stdout)
    group = next(group for group in summary["failures"] if seed in group["seeds"])
    shrunk = group["shrunk"]
    assert shrunk["seed"] == seed and len(shrunk["faults"]) < shrunk["of_faults"] / 2
    assert shrunk["command"] in report.read_text() and "--only-faults" in shrunk["command"]
    for command in (group["commands"][0], shrunk["command"]):
        again = runner.invoke(app, [*shlex.split(command)[1:], "--json"])
        assert again.exit_code == 1 and json.loads(again.stdout)["broken"] == group["broken"]
    assert [fault["number"] for fault in json.loads(again.stdout)["faults_begun"]] == [
        fault["number"] for fault in shrunk["faults"]
    ]


def test_a_part_of_a_seed_has_to_be_there() -> None:
    wide = {"COLUMNS": "2000", "TERM": "dumb"}
    for arguments, told in (
        (["--only-faults", "99"], "the faults that begin in this seed are 1 "),
        (["--only-faults", "a-b"], "numbers are needed, as 3,7-9, or none"),
        (["--only-parts", "client1"], "this seed has batch1"),
    ):
        done = runner.invoke(app, ["sim", "--seed", "3", *arguments], env=wide)
        assert done.exit_code == 2 and told in done.output, done.output
    done = runner.invoke(app, ["sim", "--only-faults", "1"], env=wide)
    assert done.exit_code == 2 and "add --seed N" in done.output


def test_a_seed_that_does_not_end_is_stopped_and_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "SEED_LIMIT_S", 0.05)
    before = signal.signal(signal.SIGPROF, player._too_long)

    def endless() -> Result:
        while True:
            pass

    try:
        assert player.guarded(7, endless).broken == "SeedDoesNotEnd"
    finally:
        signal.signal(signal.SIGPROF, before)
