"""What growth is judged by, and what the page says of it."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import curves
from axes import AXES
from kept import Kept
from rich.console import Console
from servers import CORE, JAVA

Curve = dict[int, dict[str, float]]


def curve(costs: dict[int, float], **more: float) -> Curve:
    """CPU a message by size; a start takes as many seconds."""
    rest = {"memory_mb": 50.0, "recovery_s": 1.0, "max_ms": 5.0, "long_turns": 0.0, "p99_ms": 1.0, "idle_percent": 1.0}
    rest |= {"start_cpu_s": 1.0, "recovery_cpu_s": 1.0} | more
    return {size: {"server_cpu_us": cost, "start_s": cost, **rest} for size, cost in costs.items()}


def missed(points: curves.Points) -> list[str]:
    return [words for words, met in curves.verdicts("topics", points) if not met]


def test_what_grows_by_more_than_javas_is_a_miss() -> None:
    java = curve({10: 40.0, 1_000: 45.0, 10_000: 60.0})
    assert missed({JAVA: java, CORE: curve({10: 10.0, 1_000: 15.0, 10_000: 29.0})}) == []
    worse = missed({JAVA: java, CORE: curve({10: 10.0, 1_000: 15.0, 10_000: 31.0})})
    assert worse == [
        "topics: µs CPU grows by 21.00, Java's by 20.00",
        "topics: start s grows by 21.00, Java's by 20.00",
    ]


def test_noise_is_no_growth() -> None:
    java = curve({10: 40.0, 10_000: 20.0})
    assert missed({JAVA: java, CORE: curve({10: 10.0, 10_000: 11.4})}) == []
    assert len(missed({JAVA: java, CORE: curve({10: 10.0, 10_000: 12.0})})) == 2


def test_java_need_not_come_as_far_but_is_compared_as_far_as_it_came() -> None:
    points = {JAVA: curve({10: 40.0, 1_000: 60.0}), CORE: curve({10: 10.0, 1_000: 20.0, 10_000: 100.0})}
    said = dict(curves.verdicts("topics", points))
    assert said["topics: µs CPU grows by 10.00, Java's by 20.00"]
    assert "topics: Java's broker did not come to 10,000" in said


def test_a_long_turn_is_a_miss() -> None:
    java, ours = curve({10: 40.0, 1_000: 40.0}), curve({10: 10.0, 1_000: 10.0}, long_turns=1.0)
    assert missed({JAVA: java, CORE: ours}) == ["topics: 2 turns of the event loop took 20 ms or more, none may"]


def test_one_size_is_no_growth() -> None:
    assert list(curves.verdicts("topics", {JAVA: curve({10: 1.0}), CORE: curve({10: 9.0})})) == []


def test_the_page_has_each_point_and_a_picture(tmp_path: Path) -> None:
    points = {JAVA: curve({0: 40.0, 1_000: 45.0}), CORE: curve({0: 10.0, 1_000: 10.0})}
    text = curves.part_text({"topics": points, "timers": points}, "2026-11-26")
    assert text.startswith("## Growth\n") and "Of the goals 14 of 14 are met" in text
    assert "| topics | Java | 0 | 40.00 |" in text and "|  |  | 1,000 | 10.00 |" in text
    curves.plot({"topics": points, "timers": points}, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_a_run_in_pieces_writes_its_part_when_the_last_axis_is_there(tmp_path: Path) -> None:
    kept = Kept("c0ffee", tmp_path)
    args = argparse.Namespace(json=tmp_path / "growth.json")
    points = {JAVA: curve({1: 40.0, 2: 45.0}), CORE: curve({1: 10.0, 2: 10.0})}
    some = {axis.name: points for axis in AXES[:-1]}
    curves.save(args, kept, some)
    assert kept.text("growth") is None and curves.kept_points(kept, AXES[0]) == points
    assert curves.kept_points(kept, AXES[-1]) is None
    curves.save(args, kept, some | {AXES[-1].name: points})
    assert "| timers |" in str(kept.text("growth")) and (kept.folder / "growth.png").exists()


def test_an_axis_takes_longer_with_more_and_larger_sizes() -> None:
    growth = curves.Growth(Path("nowhere"), Console(quiet=True), [JAVA, CORE], 15.0)
    for axis in AXES:
        assert 60 < growth.expected_s(axis, axis.short) < growth.expected_s(axis, axis.full) < 1_500
    ours = curves.Growth(Path("nowhere"), Console(quiet=True), [CORE], 15.0)
    assert ours.expected_s(AXES[0], (10,)) < growth.expected_s(AXES[0], (10,)) / 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--axes", "nonsense"], "no such axis: nonsense"),
        (["--sizes", "1,2"], "name it with --axes"),
        (["--keep"], "--full sizes"),
    ],
)
def test_arguments_that_make_no_sense(
    given: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["curves.py", *given])
    with pytest.raises(SystemExit):
        curves.parse_arguments()
    assert said in capsys.readouterr().err
