"""What `make bench` makes of its figures: ratios, verdicts, the table. No server is started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import run


def results(row: str, **cpu_us: float) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Three rounds for each server; messages a second and p99 follow from the CPU."""
    return {
        row: {
            name: [
                dict.fromkeys(run.FIGURES, 1.0)
                | {"server_cpu_us": us * factor, "per_second": 1e6 / us, "p99_ms": us / 10}
                for factor in (0.5, 1.0, 3.0)
            ]
            for name, us in cpu_us.items()
        }
    }


def test_ratios_are_those_of_medians_and_goals_are_judged() -> None:
    summary = run.summarise(results("closed", **{run.JAVA: 40.0, run.CORE: 10.0, run.PLAIN: 50.0}))
    assert summary["closed"]["ratios"][run.CORE] == {"cpu": 0.25, "speed": 4.0, "p99": 0.25}
    core, plain = run.goals(summary)
    assert core.count(": met)") == 3 and "CPU a message 0.25 of Java's (goal ≤ 0.333: met)" in core
    assert "CPU a message 1.25 of Java's (goal ≤ 1: missed)" in plain


def test_a_goal_that_is_missed_is_called_missed() -> None:
    summary = run.summarise(results("pipelined", **{run.JAVA: 24.0, run.CORE: 6.0, run.PLAIN: 12.0}))
    core, plain = run.goals(summary)
    assert core.count(": missed)") == 2 and ": met)" in plain


def test_one_server_alone_has_no_ratio() -> None:
    summary = run.summarise(results("pull", **{run.CORE: 1.0}))
    assert list(run.goals(summary)) == []
    (cells,) = run.table_rows(summary, ranges=True)
    assert cells[:2] == ["pull", run.CORE] and cells[3] == "1.00 (0.50–3.00)" and cells[-2:] == ["", ""]
    assert len(cells) == len(run.COLUMNS)


def test_the_rows_have_names_of_their_own_and_a_goal_for_both() -> None:
    assert len({row.name for row in run.ROWS}) == len(run.ROWS)
    assert all(0 < row.goals.cpu < row.goals.plain <= 1 for row in run.ROWS)
