"""Options objects as flags of a command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from perseid.base.options import Doc, Moment
from perseid.cli.flags import flattened

given: list[Any] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    rate: Annotated[int | None, Doc("Messages a second.", least=1)] = None
    since: Annotated[Moment | None, Doc("From then on.")] = None
    names: Annotated[Sequence[str], Doc("Names.", flags=("--name", "-x"))] = ()
    extra: Annotated[Mapping[str, str], Doc("More.", flags=("--option",))] = field(default_factory=dict)
    keep: Annotated[bool | None, Doc("Keep it.")] = None


@dataclass(frozen=True, slots=True)
class Where:
    host: Annotated[str, typer.Option("--host", "-h", help="Its name.")]
    port: Annotated[int, typer.Option(min=1)] = 1


app = typer.Typer()


@app.command()
@flattened
def walk(*, topic: Annotated[str, typer.Argument()], speed: Speed, where: Where, loud: bool = False) -> None:
    """Walks."""
    given.append((topic, speed, where, loud))


def call(*words: str) -> Any:
    given.clear()
    return CliRunner().invoke(app, list(words))


def test_each_field_is_a_flag_with_its_default() -> None:
    assert call("t", "--host", "h").exit_code == 0
    assert given == [("t", Speed(), Where("h", 1), False)]


def test_flags_become_values_of_their_fields_types() -> None:
    words = "t -h x --port 2 --rate 5 --since 2026-11-20 --name a -x b --option k=v=w --no-keep --loud"
    assert call(*words.split()).exit_code == 0
    speed = Speed(rate=5, since=1_795_132_800_000, names=("a", "b"), extra={"k": "v=w"}, keep=False)
    assert given == [("t", speed, Where("x", 2), True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("t -h x --rate 0", "--rate"),
        ("t -h x --since soon", "--since"),
        ("t -h x --option k", "--option"),
        ("t", "--host"),
    ],
)
def test_what_is_no_value_is_refused_with_the_flags_name(words: str, said: str) -> None:
    done = call(*words.split())
    assert done.exit_code == 2 and said in done.output and not given


def test_the_help_has_the_fields_texts() -> None:
    text = call("--help").output
    assert all(said in text for said in ("Walks.", "Messages a second.", "From then on.", "Its name.", "--no-keep"))
