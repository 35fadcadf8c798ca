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
from perseid.nameserver import config as name_server_config
from perseid.wire.codes import RequestCode
from tidy import request_codes

DOCS = Path(__file__).parents[2] / "docs"
COMPATIBILITY = (DOCS / "compatibility.md").read_text()
DIVERGENCE = (DOCS / "divergence.md").read_text()


def section(title: str) -> str:
    return COMPATIBILITY.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_table_of_all_codes_is_what_the_routes_say() -> None:
    assert request_codes.written() == COMPATIBILITY, "write it anew: python tests/tidy/request_codes.py"


def test_there_is_a_reason_for_what_nobody_answers_and_for_nothing_else() -> None:
    nobody = {code for code in RequestCode if not request_codes.served_by(code)}
    assert nobody == set(request_codes.WHY_NOT)


def test_the_vip_port() -> None:
    assert "but for 11 and 361, and 200050, 200052, 200054, 200055 and 200070," in COMPATIBILITY
    assert {11, 361, 200050, 200052, 200054, 200055, 200070} == broker_routes.NOT_ON_VIP


def test_the_settings_that_stop_the_start() -> None:
    rows = re.findall(r"(?m)^\| (`.*?) \|", section("Settings that stop the start"))
    keys = set(re.findall(r"`([\w.]+)`", "".join(rows)))
    refused = {r.key for r in (*broker_process.REFUSED, *name_server_config.REFUSED, *controller_config.REFUSED)}
    assert keys == refused | broker_process._FIXED_PLACES.keys() | {
        "brokerId", "brokerRole", "messageDelayLevel", "enableLmq", "enableMultiDispatch",
    }  # fmt: skip


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
