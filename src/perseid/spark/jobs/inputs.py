"""The messages that a job looks at: of topics, by their brokers, or of store folders, with no broker running.

Both have the same columns here: `source` is the broker's name, or the folder; `bytes` the body's length as a consumer
gets it, or the stored record's; `corrupt` says what is wrong with a row of a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import ConfigError
from perseid.client.blocking import BlockingAdmin
from perseid.spark import nameservers
from perseid.spark.log import folders as log_folders
from perseid.spark.log.options import parse
from perseid.spark.options import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "topic": ("topic", "topic"), "source": ("brokerName", "folder"), "queueId": ("queueId", "queueId"),
    "queueOffset": ("queueOffset", "queueOffset"), "physicalOffset": ("physicalOffset", "physicalOffset"),
    "storeTimestamp": ("storeTimestamp", "storeTimestamp"), "bornTimestamp": ("bornTimestamp", "bornTimestamp"),
    "tag": ("tag", "tags"), "keys": ("keys", "keys"), "bornHost": ("bornHost", "bornHost"),
    "reconsumeTimes": ("reconsumeTimes", "reconsumeTimes"), "properties": ("properties", "properties"),
    "value": ("value", "body"),
}  # fmt: skip
"""Here, in the source of topics, and in that of folders."""

Steps = Callable[[int, int], None]
"""Steps done, steps in all."""


@dataclass(frozen=True, slots=True)
class Input:
    """Where messages come from: topics at a name server, or folders, and of these some topics or all."""

    nameserver: str | None
    topics: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def said(self) -> str:
        """Where it is read from, in words."""
        where = self.nameserver or ", ".join(self.folders)
        return f"{len(self.topics)} topics at {where}" if self.nameserver else where

    def frame(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        """The messages, with some of `COLUMNS`, `bytes` and `corrupt`. Corrupt rows may lack a topic."""
        from pyspark.sql import functions as F

        side = 0 if self.nameserver is not None else 1
        own = [COLUMNS[name][side] for name in names if name != "bytes"]
        if self.nameserver is not None:
            wanted = list(dict.fromkeys([*own, *(["value"] if "bytes" in names else [])]))
            rows = (
                spark.read.format("perseid").schema(_ddl(wanted)).option("nameserver", self.nameserver)
                .option("subscribe", ",".join(self.topics)).load()
            )  # fmt: skip
            size, corrupt = F.octet_length("value") if "bytes" in names else None, F.lit(None).cast("string")
        else:
            wanted = list(dict.fromkeys([*own, "_corrupt", *(["size"] if "bytes" in names else [])]))
            rows = spark.read.format("perseid-log").schema(_log_ddl(wanted)).load(",".join(self.folders))
            if self.topics:
                rows = rows.where(F.col("topic").isin(*self.topics))
            size, corrupt = F.col("size") if "bytes" in names else None, F.col("_corrupt")
        chosen = [F.col(COLUMNS[name][side]).alias(name) for name in names if name != "bytes"]
        if size is not None:
            chosen.append(size.cast("bigint").alias("bytes"))
        return rows.select(*chosen, corrupt.alias("corrupt"))


def _ddl(names: Sequence[str]) -> str:
    from perseid.spark.schema import BY_NAME

    return ", ".join(f"`{name}` {BY_NAME[name][1]}" for name in names)


def _log_ddl(names: Sequence[str]) -> str:
    from perseid.spark.log.rows import COLUMNS as LOG

    return ", ".join(f"`{name}` {LOG[name][0]}" for name in names)


def chosen(
    nameserver: str | None,
    topics: Sequence[str],
    folders: Sequence[str],
    *,
    prefix: str = "",
    may_be_none: bool = False,
) -> Input:
    """What to read, checked: topics that are there (when none is named, all that begin with `prefix`, or those of users
    where that is empty), or folders with a log. ConfigError names what is wrong."""
    if bool(folders) == (nameserver is not None):
        raise ConfigError("say where the messages are: either a name server (--namesrv), or store folders (--folder)")
    if folders:
        if any("," in folder for folder in folders):
            raise ConfigError("a folder's name can't have a comma")
        given = parse({"path": ",".join(folders)})
        for folder in given.folders:
            log_folders.logs(folder)
        return Input(None, tuple(topics), given.folders)
    assert nameserver is not None
    nameservers.check(nameserver)
    with BlockingAdmin(nameserver) as admin:
        known = admin.topic_list()
        named = tuple(dict.fromkeys(topics))
        if not named:
            named = tuple(name for name in known if name.startswith(prefix)) if prefix else tuple(admin.user_topics())
    if not named and not may_be_none:
        raise ConfigError(f"{nameserver} knows no topics but those of the system: name one to look at it all the same")
    for name in named:
        if name not in known:
            raise ConfigError(f"{nameserver} knows no topic {name!r}{nearest(name, known)}")
    return Input(nameserver, named, ())
