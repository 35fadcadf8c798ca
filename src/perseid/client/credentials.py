"""Where the keys of clients come from.

Each client takes them from its session. A session without credentials uses the environment variables:

    PERSEID_CREDENTIALS=/etc/perseid/me.credentials    a file of two lines, accessKey: NAME and secretKey: KEY
    PERSEID_ACCESS_KEY=NAME PERSEID_SECRET_KEY=KEY     the same without a file
"""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from pathlib import Path

from perseid.client.errors import BadSettings
from perseid.security.credentials import Credentials

log = logging.getLogger("perseid.client")

FILE_VARIABLE = "PERSEID_CREDENTIALS"
KEY_VARIABLE, SECRET_VARIABLE = "PERSEID_ACCESS_KEY", "PERSEID_SECRET_KEY"
MAX_FILE_BYTES = 16 * 1024
OTHERS = 0o077


def read_credentials(path: str | Path) -> Credentials:
    """The credentials in a file: lines `accessKey: NAME` and `secretKey: KEY` (or with `=`), as in mqadmin's
    `conf/tools.yml`, or a JSON object with both, as in brokers' settings. `ClientError` for any other content."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as source:
            text = source.read(MAX_FILE_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no text"
        raise BadSettings(f"credentials {file}: {why}; name a file with accessKey and secretKey") from None
    found = _fields(text) if len(text) <= MAX_FILE_BYTES else {}
    if not found.get("accessKey") or not found.get("secretKey"):
        raise BadSettings(f"credentials {file}: write two lines into it, accessKey: NAME and secretKey: KEY")
    _warn_of_readers(file)
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken"))


def credentials_here() -> Credentials | None:
    """What the environment names, for whoever is given none; None where it names nothing."""
    if file := os.environ.get(FILE_VARIABLE):
        return read_credentials(file)
    user, secret = os.environ.get(KEY_VARIABLE), os.environ.get(SECRET_VARIABLE)
    if bool(user) != bool(secret):
        raise BadSettings(f"{KEY_VARIABLE} and {SECRET_VARIABLE} go together: one of them is not set")
    return Credentials(user, secret) if user and secret else None


def _fields(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        try:
            told = json.loads(text)
        except ValueError:
            return {}
        return {name: value for name, value in told.items() if isinstance(value, str)}
    found: dict[str, str] = {}
    for line in text.splitlines():
        ends = [at for at in (line.find(":"), line.find("=")) if at > 0]
        if ends and not line.lstrip().startswith("#"):
            value = line[min(ends) + 1 :].strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[line[: min(ends)].strip()] = value[1:-1] if quoted else value
    return found


@cache
def _warn_of_readers(file: Path) -> None:
    """Once for each file."""
    if os.name == "posix" and file.stat().st_mode & OTHERS:
        log.warning("credentials %s: other users of this machine may read it: chmod 600 %s", file, file)
