"""What an operator changes while a broker runs (code 25): all or none of it, in effect at the end of the turn that
asks, and kept in the configuration's file.

Most settings are looked up when they are needed; what was made of others is made anew here. The file keeps its remarks
and its other lines. Where there is none, where several brokers share it, or where it can't be written, the change holds
until a restart, and the answer says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base import config as configuration
from perseid.base.errors import RequestRefused
from perseid.base.machine import DiskFailed, Feed, SaveState
from perseid.broker.foreign import FOREIGN
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.registration.name_servers import addresses
from perseid.disk.port import Disk
from perseid.store.config import StoreConfig
from perseid.wire import settings
from perseid.wire.codes import ResponseCode

if TYPE_CHECKING:
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.replication.modes.mode import ReplicationMode

BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath"})
UNTIL_RESTART = "in effect until a restart, and not kept: "


class Kept:
    """Fed back when the configuration's file is durable."""


class Remade(Protocol):
    """What was made of settings."""

    def renew(self) -> None:
        """Make it anew."""


class Configured(Protocol):
    """The store whose settings change."""

    config: StoreConfig

    def reconfigure(self, config: StoreConfig) -> None:
        """Follow other settings from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePorts:
    """The parts of a broker that `LiveSettings` needs."""

    turn: Turn
    settings: Settings
    store: Configured
    disk: Disk
    topics: TopicTable
    durability: Durability
    generation: Generation
    answers: Answers
    mode: ReplicationMode
    registration: Registration
    saves: Saves
    quick: Remade


class LiveSettings:
    """The settings of one broker. `shown` gives its configuration under the original's names (code 26); `path` is that
    of the configuration's file on the broker's disk, "" where none may be written, for the reason `why_not`."""

    def __init__(
        self, ports: LivePorts, shown: Callable[[], dict[str, str]] | None, path: str = "", why_not: str = ""
    ) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._store = ports.store
        self._disk = ports.disk
        self._topics = ports.topics
        self._durability = ports.durability
        self._generation = ports.generation
        self._answers = ports.answers
        self._mode = ports.mode
        self._registration = ports.registration
        self._saves = ports.saves
        self._quick = ports.quick
        self._shown = shown
        self._path = path
        self._why_not = why_not or "the broker was started without a configuration file"
        self._asked: deque[Request] = deque()
        self._keeping: deque[tuple[Request, Reply]] = deque()

    def properties(self) -> dict[str, str]:
        """The whole configuration as it is now."""
        now = self._shown() if self._shown is not None else {}
        return now | configuration.to_properties(self._settings.current, self._store.config, self._mode.config)

    def ask(self, request: Request) -> None:
        """It is answered at the end of this turn, or when the file is durable."""
        self._asked.append(request)

    def settle(self) -> None:
        """At the end of a turn: what this turn stored was stored under what was so before."""
        while self._asked:
            request = self._asked.popleft()
            try:
                self._carry_out(request)
            except RequestRefused as refused:
                self._turn.reply(request, Reply(refused.code, remark=refused.remark))

    # ---- one request ----

    def _carry_out(self, request: Request) -> None:
        asked = settings.wanted(request.command.body, BLACK_LIST)
        before = self._settings.current, self._store.config, self._mode.config
        found = settings.change(asked, before, FOREIGN, self.properties())
        self._check(found.values)
        if not found.values:
            self._saves.answer(request, Reply())
            return
        text = self._edited(found.values) if self._path else None
        self._settings.current, store_config, replication = found.configs
        self._turn.note("info", f"settings changed by {request.conn.peer}: {dict(found.values)}")
        if store_config != before[1]:
            self._store.reconfigure(store_config)
        if (replication, store_config) != before[2:0:-1]:
            self._mode.reconfigure(replication)
        self._follow(found.values)
        told = [*found.told, *self._without_effect(found.values)]
        for one in told:
            self._turn.note("info", one)
        self._keep(request, text, told)

    def _check(self, values: settings.Values) -> None:
        """What no single option can tell."""
        wrong = []
        for key in ("namesrvAddr", "controllerAddr"):
            if key in values and not addresses(values[key]):
                wrong.append(f"{key}: host:port;host:port is wanted, one at least")
        if "inSyncReplicas" in values or "minInSyncReplicas" in values:
            config = self._mode.config
            least = int(values.get("minInSyncReplicas", config.min_in_sync_replicas))
            if least > int(values.get("inSyncReplicas", config.in_sync_replicas)) and self._mode.nodes.adapts:
                wrong.append(f"minInSyncReplicas: {least} is more than inSyncReplicas")
        if wrong:
            raise settings.refused(wrong)

    def _follow(self, values: settings.Values) -> None:
        """Make anew what was made of these settings."""
        if "brokerPermission" in values:
            self._topics.bump(self._turn.now)
        if "namesrvAddr" in values:
            servers = addresses(values["namesrvAddr"])
            self._registration.reconfigure(servers, self._turn.now)
            self._mode.acting.reconfigure(servers)
        if "controllerAddr" in values:
            self._mode.controllers_changed(self._turn.now)
        begins_to_wait = self._mode.nodes.synchronous and not self._durability.waits
        if begins_to_wait or values.keys() & {"traceOn", "maxMessageSize"}:
            if begins_to_wait:
                self._durability.wait_from_now_on()
            self._answers.reconfigure(self._settings.current)
            self._quick.renew()
        self._generation.rise()  # prepared pulls are looked at again

    def _without_effect(self, values: settings.Values) -> list[str]:
        return [f"{key}: no effect: {why}" for key, why in self._mode.no_effect.items() if key in values]

    # ---- the file ----

    def _edited(self, values: settings.Values) -> bytes | None:
        """The file with new values; None when it can't be read."""
        data = self._disk.read(self._path)
        if data is None:
            return None
        try:
            return configuration.edited(data.decode("utf-8-sig"), values).encode()
        except UnicodeDecodeError:
            return None

    def _keep(self, request: Request, text: bytes | None, told: list[str]) -> None:
        if text is not None:
            request.command.keep()
            self._keeping.append((request, Reply(remark="; ".join(told) or None)))
            self._turn.emit(SaveState(self._path, text, [Feed(Kept())]))
            return
        if self._path:
            why = f"{UNTIL_RESTART}the configuration's file is gone, or can't be read"
            self._turn.note("error", why)
            self._saves.answer(request, Reply(ResponseCode.SYSTEM_ERROR, remark="; ".join([why, *told])))
            return
        self._turn.note("warning", UNTIL_RESTART + self._why_not)
        self._saves.answer(request, Reply(remark="; ".join([*told, UNTIL_RESTART + self._why_not])))

    def kept(self, event: Kept) -> None:
        """The file is durable."""
        self._turn.reply(*self._keeping.popleft())

    def failed(self, event: DiskFailed) -> bool:
        """The file could not be written: who asked is told, and True is the answer."""
        if not self._path or event.path != self._path:
            return False
        request, _ = self._keeping.popleft()
        why = f"{UNTIL_RESTART}the configuration's file could not be written: {event.reason}"
        self._turn.note("error", why)
        self._turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark=why))
        return True
