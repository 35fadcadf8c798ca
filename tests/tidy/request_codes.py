"""The tables of all request codes, in docs/reference/request-codes.md, and of mqadmin's commands, in
docs/compatibility.md, made from the routes and from what `tests/interop/test_all_commands.py` runs.

    python tests/tidy/request_codes.py      writes it anew

Numbers and names are those of the original's RequestCode 5.5.0 (`perseid.wire.codes`); who answers is what the route
tables and the clients' handlers say. For what nobody answers the reason stands here.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import ModuleType

from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.route import Route
from perseid.broker.node import Broker
from perseid.client import request_reply, server_requests
from perseid.controller.routes import ROUTES as CONTROLLER
from perseid.nameserver.routes import ROUTES as NAME_SERVER
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.wire.codes import RequestCode as Code

DOCS = Path(__file__).parents[2] / "docs"
CODES = DOCS / "reference" / "request-codes.md"
COMMANDS = DOCS / "compatibility.md"
BEGIN, END = "<!-- all request codes: python tests/tidy/request_codes.py -->\n", "<!-- end of all request codes -->\n"
COMMANDS_BEGIN, COMMANDS_END = "<!-- commands of mqadmin -->\n", "<!-- end of commands of mqadmin -->\n"

CLIENT = frozenset({*server_requests.HANDLERS, request_reply.SERVED, Code.CHECK_TRANSACTION_STATE})

NOBODY = "nobody serves it in 5.5.0 either: code 3"
TOLD = "a broker tells it to clients"
INSIDE = "an event in the log of a JRaft controller, no request; our controllers' log is DLedger's"
CONTAINER = "of a broker container, which takes several brokers into one JVM; here each is a process (`--shards`)"
ROCKSDB = "no RocksDB here; code 3"

WHY_NOT: dict[Code, str] = {
    # of later parts of the project
    Code.POP_ROLLBACK: ROCKSDB,
    Code.SET_COMMITLOG_READ_MODE: "a reader thread asks for exactly the parts of files that pulls want; code 3",
    Code.ACK_LITE_MESSAGE: NOBODY,
    Code.NOTIFY_UNSUBSCRIBE_LITE: TOLD,
    # of no part
    Code.ADD_BROKER: CONTAINER,
    Code.REMOVE_BROKER: CONTAINER,
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: ROCKSDB,
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: ROCKSDB,
    Code.SWITCH_TIMER_ENGINE: ROCKSDB,
    **dict.fromkeys((c for c in Code if 1014 <= c <= 1018), INSIDE),
    **dict.fromkeys((Code.QUERY_BROKER_OFFSET, Code.GET_TOPIC_CONFIG_LIST, Code.GET_TOPIC_NAME_LIST), NOBODY),
    **dict.fromkeys((Code.TRIGGER_DELETE_FILES, Code.GET_CLIENT_CONFIG), NOBODY),
    **dict.fromkeys((c for c in Code if 209 <= c <= 214), NOBODY),
    **dict.fromkeys((Code.REGISTER_FILTER_SERVER, Code.REGISTER_MESSAGE_FILTER_CLASS), NOBODY),
}


@functools.cache
def broker_routes() -> Mapping[int, Route]:
    """The rows of a broker."""
    broker = Broker(BrokerConfig(), StoreConfig(), SimDisk(Random(1)), Random(1))
    return broker.parts.dispatch.routes


def served_by(code: Code) -> list[str]:
    """Who answers a request."""
    tables = {"broker": broker_routes(), "name server": NAME_SERVER, "controller": CONTROLLER, "client": CLIENT}
    return [name for name, table in tables.items() if code in table]


def table() -> str:
    """The table of all codes, by number."""
    lines = ["| code | name | answered by |", "|---|---|---|"]
    for code in sorted(Code):
        who = ", ".join(served_by(code)) or f"– {WHY_NOT[code]}"
        lines.append(f"| {int(code)} | {code.name} | {who} |")
    return "\n".join(lines) + "\n"


def _commands() -> ModuleType:
    """The table of the interop tests, which are no package."""
    path = DOCS.parent / "tests" / "interop" / "commands.py"
    spec = importlib.util.spec_from_file_location("mqadmin_commands", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command_table() -> str:
    """The commands that don't answer as on Java, by reason; and those that are not asked here."""
    commands = _commands()
    reasons: dict[str, list[str]] = {}
    for name, (_, check) in commands.COMMANDS.items():
        if isinstance(check, commands.Refused):
            reasons.setdefault(check.why, []).append(name)
    lines = ["| commands of mqadmin | |", "|---|---|"]
    lines += [f"| {', '.join(names)} | refused: {why} |" for why, names in sorted(reasons.items())]
    others = {**commands.ENDLESS, **commands.ELSEWHERE}
    lines += [f"| {name} | {why} |" for name, why in sorted(others.items())]
    working = len(commands.COMMANDS) - sum(map(len, reasons.values()))
    return "\n".join(lines) + f"\n\nThe other {working} of {len(commands.COMMANDS) + len(others)} answer as on Java.\n"


def _replaced(document: Path, begin: str, end: str, new: str) -> str:
    before, found, rest = document.read_text().partition(begin)
    _, also, after = rest.partition(end)
    assert found and also, f"{document} has no place {begin!r}"
    return f"{before}{begin}{new}{end}{after}"


def written() -> dict[Path, str]:
    """The documents with the tables as they are now."""
    return {
        CODES: _replaced(CODES, BEGIN, END, table()),
        COMMANDS: _replaced(COMMANDS, COMMANDS_BEGIN, COMMANDS_END, command_table()),
    }


if __name__ == "__main__":
    for document, text in written().items():
        document.write_text(text)
