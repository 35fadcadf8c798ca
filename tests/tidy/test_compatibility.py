"""docs/compatibility.md and docs/reference/request-codes.md say what is true."""

from pathlib import Path

import pytest

from perseid.broker.consume.held_pulls import MAX_HELD
from perseid.broker.consume.pull import MAX_SUSPEND_MS
from perseid.broker.kernel.acks import MAX_WAITING
from perseid.broker.metadata.topics import MAX_QUEUES
from perseid.wire.codes import RequestCode
from perseid.wire.command import MAX_REMARK_BYTES
from tidy import request_codes, settings_table

DOCS = Path(__file__).parents[2] / "docs"
COMPATIBILITY = (DOCS / "compatibility.md").read_text()
REQUEST_CODES = (DOCS / "reference" / "request-codes.md").read_text()
DIVERGENCE = (DOCS / "divergence.md").read_text()


def section(title: str) -> str:
    return COMPATIBILITY.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_tables_of_codes_and_commands_are_what_the_sources_say() -> None:
    for document, text in request_codes.written().items():
        assert text == document.read_text(), f"{document}: write it anew: python tests/tidy/request_codes.py"


def test_there_is_a_reason_for_what_nobody_answers_and_for_nothing_else() -> None:
    nobody = {code for code in RequestCode if not request_codes.served_by(code)}
    assert nobody == set(request_codes.WHY_NOT)


def test_the_vip_port() -> None:
    assert "but for 11 and 361, and 200050, 200052, 200054, 200055 and 200070," in REQUEST_CODES
    left_out = {code for code, route in request_codes.broker_routes().items() if not route.on_vip}
    assert left_out == {11, 361, 200050, 200052, 200054, 200055, 200070}


def test_the_tables_of_settings_are_what_the_options_say() -> None:
    assert settings_table.written() == COMPATIBILITY, "write it anew: python tests/tidy/settings_table.py"


@pytest.mark.parametrize(
    "words",
    [
        f"{MAX_HELD:,} pulls at a time",
        f"at most {MAX_SUSPEND_MS // 60_000} minutes",
        f"when {MAX_WAITING:,} answers wait",
        f"at most {MAX_REMARK_BYTES} bytes",
        f"{MAX_QUEUES:,} read",
    ],
)
def test_the_limits_that_divergence_md_names(words: str) -> None:
    assert words in DIVERGENCE
