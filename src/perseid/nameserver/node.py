"""The name server as one node: events in, effects out.

Its tables live in memory only: brokers register again within a period. Durable are the settings by namespace
and key, and a changed configuration; a request that changes one of them is answered when the file is saved.

A broker leaves when it unregisters, when its connection closes, or when a scan (each
`scanNotActiveBrokerInterval`) finds it silent for longer than the timeout that it registered with.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from perseid.base import config as settings
from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.base.machine import (
    Close,
    Closed,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Frames,
    Millis,
    Note,
    Opened,
    Reads,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.disk.port import Disk
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.kv import KVStore
from perseid.nameserver.request import OK, Reply, Request
from perseid.nameserver.routes import ROUTES
from perseid.nameserver.tables import MinIdChange, RouteTables
from perseid.security.members import OPEN, Asks, Members
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_response
from perseid.wire.headers.namesrv import NotifyMinBrokerIdChangeRequest
from perseid.wire.rpc import Caller

KV_PATH = "kvConfig.json"
NOTIFY_TIMEOUT_MS = 300


class _Saved:
    """Fed back when the oldest save is durable."""


class NameServer:
    """A name server that keeps its settings on `disk`, at `kv_path`, and a changed configuration at `config_path`
    (nowhere when that is None)."""

    def __init__(
        self,
        config: NameServerConfig,
        disk: Disk,
        *,
        kv_path: str = KV_PATH,
        config_path: str | None = None,
        members: Members = OPEN,
    ) -> None:
        """`members`: who may register brokers and change what clients are told."""
        self.config = config
        self.tables = RouteTables()
        self.kv = KVStore()
        self.caller = Caller()
        self.caller.sign = members.sign
        self._members = members
        self.now: Millis = 0
        self.started: Millis = 0
        self._disk = disk
        self._kv_path = kv_path
        self._config_path = config_path
        self.kept: Callable[[], Mapping[str, str]] = dict
        """Keys of the configuration's file that are not ours: they stay in it."""
        self._peers: dict[ConnId, str] = {}
        self._saving: deque[Request] = deque()
        self._scan_at: Millis = 0
        self._out: list[Effect] = []

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn. ConfigError when the settings' file can't be read at `Start`."""
        self.now = now
        out = self._out = []
        if isinstance(event, Frames):
            self._frames(event)
        elif isinstance(event, Reads):
            for frames in event.frames:
                self._frames(frames)
        elif isinstance(event, Opened):
            self._peers[event.conn] = event.peer
            out += self.caller.handle(event, now)
        elif isinstance(event, Closed):
            self._closed(event)
        elif isinstance(event, Tick):
            out += self.caller.handle(event, now)
            self._members.tick(now)
            self._scan()
        elif isinstance(event, ConnectFailed):
            out += self.caller.handle(event, now)
        elif isinstance(event, _Saved):
            self._reply(self._saving.popleft(), OK)
        elif isinstance(event, DiskFailed):
            self._save_failed(event)
        elif isinstance(event, Start):
            self.started = now
            self._scan_at = now + self.config.scan_not_active_broker_interval
            self.kv.load(self._disk.read(self._kv_path), self._kv_path)
        elif isinstance(event, Shutdown):
            self._members.close(now)
            out.append(Stop(""))
        else:
            raise AssertionError(f"no event of a name server: {event!r}")
        return out

    def next_deadline(self) -> Millis | None:
        due = min(filter(None, (self.caller.next_deadline(), self._members.next_deadline())), default=None)
        if self.tables.live and (due is None or self._scan_at < due):
            return self._scan_at
        return due

    def validate(self) -> None:
        self.tables.validate()
        self.caller.validate()

    # ---- for handlers ----

    def note(self, level: str, text: str) -> None:
        self._out.append(Note(level, text))

    def save_kv(self, request: Request) -> None:
        """Write the settings; the request is answered when they are durable."""
        self._save(self._kv_path, self.kv.dump(), request)

    def save_config(self, request: Request) -> bool:
        """Write the configuration; the request is answered when it is durable. False: there is no file for it."""
        if self._config_path is None:
            return False
        self._save(self._config_path, settings.to_file(self.config, kept=self.kept()).encode(), request)
        return True

    def min_ids_changed(self, changes: Iterable[MinIdChange | None]) -> None:
        """Tell the replicas of brokers which of them has the smallest id now."""
        for change in changes if self.config.notify_min_broker_id_changed else ():
            if change is not None:
                self._tell_min_id(change)

    def _tell_min_id(self, change: MinIdChange) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            min_broker_id=change.min_id,
            min_broker_addr=change.min_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        for address in change.tell:
            code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            self._out += self.caller.oneway(address, code, header, b"", self.now, NOTIFY_TIMEOUT_MS)

    # ---- requests ----

    def _frames(self, event: Frames) -> None:
        peer = self._peers.get(event.conn, "")
        try:
            for command in decode_all(event.data):
                if command.is_response:
                    self._out += self.caller.answered(event.conn, command, self.now)
                else:
                    self._serve(event.conn, peer, command)
        except RemoteProtocolError as error:
            self.note("warning", f"connection {event.conn} of {peer}: {error}; it was closed")
            self._out.append(Close(event.conn, str(error)))

    def _serve(self, conn: ConnId, peer: str, command: Command) -> None:
        request = Request(conn, peer, command)
        route = ROUTES.get(command.code)
        try:
            self._members.admit(command, route.asks if route else Asks.SUPER, peer, self.now, self.note)
            if route is None:
                text = f" request type {command.code} not supported"
                raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
            if route.header is not None:
                request.header = command.header(route.header)
            reply = route.handler(self, request)
        except RequestRefused as refused:
            reply = Reply(refused.code, remark=refused.remark)
        except (AssertionError, RemoteProtocolError):
            raise
        except Exception as error:
            self.note("error", f"request {command.code} of {peer}: {traceback.format_exc()}")
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if reply is not None:
            self._reply(request, reply)

    def _reply(self, request: Request, reply: Reply) -> None:
        command = request.command
        if command.is_oneway:
            return
        try:
            data = encode_response(command.opaque, reply.code, reply.header, reply.body, remark=reply.remark)
        except LocalProtocolError as error:
            data = encode_response(command.opaque, ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._out.append(Write(request.conn, data))

    # ---- durability ----

    def _save(self, path: str, data: bytes, request: Request) -> None:
        request.command.keep()
        self._saving.append(request)
        self._out.append(SaveState(path, data, then=[Feed(_Saved())]))

    def _save_failed(self, event: DiskFailed) -> None:
        """What was asked for holds until a restart, and the one who asked is told."""
        text = f"{event.path} could not be saved ({event.reason}): the change is lost at a restart"
        self.note("error", text)
        self._reply(self._saving.popleft(), Reply(ResponseCode.SYSTEM_ERROR, remark=text))

    # ---- brokers that go ----

    def _closed(self, event: Closed) -> None:
        self._peers.pop(event.conn, None)
        self._out += self.caller.handle(event, self.now)
        for key in self.tables.of_connection(event.conn):
            self.note("warning", f"broker at {key.address} of {key.cluster}: its connection closed: {event.reason}")
            self.min_ids_changed(self.tables.lost(key))

    def _scan(self) -> None:
        if self.now < self._scan_at:
            return
        self._scan_at = self.now + self.config.scan_not_active_broker_interval
        for key, live in self.tables.expired(self.now):
            self.note("warning", f"broker at {key.address} of {key.cluster}: silent for more than {live.timeout_ms} ms")
            self._out.append(Close(live.conn, "silent for too long"))
            self.min_ids_changed(self.tables.lost(key))
