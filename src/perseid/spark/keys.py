"""Whom the sources and the sink sign as: options, or what the environment names on each machine.

A file is read wherever it is needed, on the driver and on the executors; a key that is an option goes to them within
Spark's tasks. Spark hides options whose names have `secret` or `access key` in them where it shows plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from perseid.base.errors import ConfigError
from perseid.client.credentials import read_credentials
from perseid.client.tls import ClientTls
from perseid.security.credentials import Credentials
from perseid.spark.option import SparkOption

FILE, ACCESS, SECRET = NAMES = ("credentialsFile", "accessKey", "secretKey")
OPTIONS = (
    SparkOption(
        FILE,
        "A file with the user that signs requests: two lines, `accessKey: NAME` and `secretKey: KEY`. It must be on "
        "the driver and on all executors; each task reads it again.",
        "what `PERSEID_CREDENTIALS` names on each machine",
    ),
    SparkOption(
        ACCESS,
        "The user that signs requests, together with `secretKey` and instead of a file. Both are sent to executors "
        "within tasks, and are in no plan, error or progress.",
        "`PERSEID_ACCESS_KEY` of each machine",
    ),
    SparkOption(
        SECRET,
        "The key that goes with `accessKey`.",
        "`PERSEID_SECRET_KEY` of each machine",
    ),
)


class Link(TypedDict):
    """How clients reach the cluster: their arguments."""

    tls: ClientTls | None
    credentials: Credentials | None


@dataclass(frozen=True, slots=True)
class Keys:
    """What options say; nothing: the environment does."""

    file: str = ""
    given: Credentials | None = None

    def link(self, tls: ClientTls | None) -> Link:
        """With these keys, as they are now. ClientError when the file can't be read."""
        return {"tls": tls, "credentials": read_credentials(self.file) if self.file else self.given}


OF_THE_ENVIRONMENT = Keys()
"""Nothing is given."""


def parse(given: Mapping[str, str]) -> Keys:
    """Of options by their lower-case names. ConfigError, never with a value in it, when they do not fit."""
    file, user, secret = (given.get(name.lower(), "") for name in NAMES)
    if bool(user) != bool(secret):
        raise ConfigError(f"{ACCESS} and {SECRET} go together: one of them is not given")
    if file and user:
        raise ConfigError(f"{FILE} and {ACCESS}: give one of them")
    return Keys(file, Credentials(user, secret) if user else None)
