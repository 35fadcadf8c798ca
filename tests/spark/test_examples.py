"""Each of the examples, on a few flights."""

import asyncio
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS = 2500
SAID = {
    "windows": "windows closed; 0 flights came more than 3 hours late",
    "sessions": "aircraft are over",
    "weather": f"{FLIGHTS:,} flights, each joined once",
}


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    sys.path.insert(0, str(EXAMPLES))
    try:  # under a name that no worker can import, so that functions travel as they do from a script
        return {name: runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=f"example {name}") for name in SAID}
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize("name", SAID)
def test_an_example_says_what_it_found(
    spark: Any, broker: EmbeddedBroker, examples: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = asyncio.run(examples[name]["main"].__globals__["send"](broker.namesrv, "flights", FLIGHTS))
    assert sent == FLIGHTS
    examples[name]["run"](spark, broker.namesrv, "flights")
    said = capsys.readouterr().out
    assert SAID[name] in said, said
    assert len(said.splitlines()) > 5, said
