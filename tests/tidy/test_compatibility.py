"""docs/compatibility.md says what is true."""

import re
from pathlib import Path

import pytest

from perseid.app import broker as broker_process
from perseid.broker import routes as broker_routes
from perseid.broker.acks import MAX_WAITING
from perseid.broker.answers import MAX_REMARK
from perseid.broker.handlers.pull import MAX_SUSPEND_MS
from perseid.broker.hold import MAX_HELD
from perseid.broker.topics import MAX_QUEUES
from perseid.controller import config as controller_config
from perseid.controller import routes as controller_routes
from perseid.nameserver import config as name_server_config
from perseid.nameserver import routes as name_server_routes

DOCS = Path(__file__).parents[2] / "docs"
COMPATIBILITY = (DOCS / "compatibility.md").read_text()
DIVERGENCE = (DOCS / "divergence.md").read_text()


def section(title: str) -> str:
    return COMPATIBILITY.split(f"\n## {title}\n")[1].split("\n## ")[0]


def listed(title: str) -> list[tuple[int, str]]:
    """The codes of the tables in a section."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    return [(int(code), name) for row in rows for code, name in re.findall(r"\b(\d+) ([A-Z][A-Z0-9_]+)", row)]


@pytest.mark.parametrize(
    ("title", "routes"),
    [
        ("Requests that a broker serves", broker_routes.ROUTES),
        ("Requests that a name server serves", name_server_routes.ROUTES),
        ("Requests that a controller serves", controller_routes.ROUTES),
    ],
)
def test_the_codes_are_those_of_the_routes(title: str, routes: dict[int, object]) -> None:
    served = {(int(route.code), route.code.name) for route in routes.values()}  # type: ignore[attr-defined]
    assert set(listed(title)) == served
    assert len(listed(title)) == len(served), "each stands there once"


def test_the_vip_port() -> None:
    assert "but for 11 and 361" in COMPATIBILITY and {11, 361} == broker_routes.NOT_ON_VIP


def test_refused_codes_are_not_served() -> None:
    (row,) = [line for line in section("What is refused, and how").splitlines() if "any other request" in line]
    codes = {int(number) for number in re.findall(r"\b\d{2,}\b", row.partition("| code 3")[0])}
    assert codes >= {324, 325}
    assert not codes & (broker_routes.ROUTES.keys() | name_server_routes.ROUTES.keys())


def test_the_settings_that_stop_the_start() -> None:
    rows = re.findall(r"(?m)^\| (`.*?) \|", section("Settings that stop the start"))
    keys = set(re.findall(r"`([\w.]+)`", "".join(rows)))
    refused = {r.key for r in (*broker_process.REFUSED, *name_server_config.REFUSED, *controller_config.REFUSED)}
    assert keys == refused | broker_process._FIXED_PLACES.keys() | {"brokerId", "brokerRole", "messageDelayLevel"}


@pytest.mark.parametrize(
    "words",
    [
        f"{MAX_HELD:,} pulls at a time",
        f"at most {MAX_SUSPEND_MS // 60_000} minutes",
        f"when {MAX_WAITING:,} answers wait",
        f"at most {MAX_REMARK:,} characters",
        f"{MAX_QUEUES:,} read",
    ],
)
def test_the_limits_that_divergence_md_names(words: str) -> None:
    assert words in DIVERGENCE
