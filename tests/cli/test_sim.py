"""`perseid sim`: many seeds, one seed, JSON, and exit codes."""

import json
from collections import Counter
from typing import Any

import pytest
from typer.testing import CliRunner

from perseid.cli import sim
from perseid.cli.main import app
from perseid.sim import coverage
from perseid.sim.models.broker.run import Result, run
from perseid.sim.models.registry import Model

runner = CliRunner()


def test_one_seed_prints_its_trace_and_digest() -> None:
    done = runner.invoke(app, ["sim", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert run(3).digest in done.output and "all promises were kept" in done.output
    assert "broker       starts, life 1" in done.output


def test_many_seeds_in_two_processes_say_what_occurred() -> None:
    done = runner.invoke(app, ["sim", "--seeds", "4", "--first", "10", "--jobs", "2", "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.output)
    assert summary["seeds"] == 4 and not summary["failed"] and summary["faults"] >= 40
    assert summary["counts"]["answer SUCCESS"] > 0


def test_a_failing_seed_is_reported_with_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(seed: int, *given: Any) -> Result:
        return Result(seed, failure="a promise was broken", story=["what happened"])

    monkeypatch.setitem(sim.MODELS, "broker", Model(failing, coverage.EXPECTED, {}))
    done = runner.invoke(app, ["sim", "--seeds", "2"])
    assert done.exit_code == 1
    assert "seed 2 failed" in done.output and "what happened" in done.output and "2 seeds failed: 1 2" in done.output
    assert runner.invoke(app, ["sim", "--seed", "7"]).exit_code == 1


def test_a_long_run_that_misses_something_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sim.MODELS, "broker", Model(lambda seed, *given: Result(seed), coverage.EXPECTED, {}))
    done = runner.invoke(app, ["sim", "--seeds", str(coverage.ENOUGH_SEEDS)])
    assert done.exit_code == 1 and "never occurred: fault power cut" in done.output
    assert runner.invoke(app, ["sim", "--seeds", "5"]).exit_code == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupted_run_tells_what_was_played(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(seed: int, *given: Any) -> Result:
        if seed == 4:
            raise KeyboardInterrupt
        return Result(seed, operations=10, counts=Counter({"fault power cut": 1}))

    monkeypatch.setitem(sim.MODELS, "broker", Model(play, coverage.EXPECTED, {}))
    done = runner.invoke(app, ["sim", "--seeds", "9", *(["--json"] if as_json else [])])
    assert done.exit_code == 130
    if as_json:
        summary = json.loads(done.output)
        assert summary["interrupted"] and (summary["seeds"], summary["counts"]) == (3, {"fault power cut": 3})
    else:
        assert "         3  fault power cut" in done.output and "3 seeds, 30 operations" in done.output
        assert "interrupted: 3 of 9 seeds, from 1 on, were played" in done.output


def test_a_model_is_found_by_the_name_that_it_had_before(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def noted(seed: int, *given: Any) -> Result:
        played.append(seed)
        return Result(seed)

    monkeypatch.setitem(sim.MODELS, "dledger", Model(noted, coverage.DLEDGER_EXPECTED, {}))
    assert runner.invoke(app, ["sim", "--model", "group", "--first", "7", "--seeds", "1"]).exit_code == 0
    assert played == [7]
