"""Users in the simulator: in some seeds the brokers of a model ask each request for a signature and a permission.

All other clients are Super then. Here somebody gives a guest a permission and takes it away again, the guest uses it,
and strangers try without one. What has to hold, whatever fails meanwhile:

- whoever does not sign, or with a wrong secret, is never served;
- a permission that was revoked, and the answer came, is not used any more, after a power cut neither;
- one that was given is not refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from perseid.broker.access.config import Access
from perseid.security.credentials import Credentials
from perseid.security.users import SUPER, User
from perseid.sim.features.stage import NO_TEMPLATE, Maker, Member, Stage, has_topic, topic_request
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.headers.users import AclRequest, DeleteAclRequest, UserRequest

ROOT, NODES = Credentials("root", "root-secret"), Credentials("nodes", "nodes-secret")
GUEST, LIAR = Credentials("guest", "guest-secret"), Credentials("guest", "a guess")
ACCESS = Access(
    authenticates=True, authorizes=True, initial=User("root", "root-secret", SUPER), inner=NODES, key=bytes(range(32)),
)  # fmt: skip
TOPIC, RESOURCE = "guests", "Topic:guests"
STEP_MS, GUEST_MS = (200, 1_500), (100, 600)
STRAGGLES_US = 10 * US_PER_S
"""So long after a change whose answer did not come it may still arrive."""
REFUSED = "has no permission to access"


class Permissions:
    """The guest, whoever says what it may, and strangers: a feature."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._operator = Member(stage, "permissions")
        self._guest, self._stranger = Member(stage, "guest"), Member(stage, "stranger")
        self._guest.signs = GUEST
        made = [topic_request(TOPIC, 1, "+message.type=NORMAL")]
        self._maker = Maker(stage, "guest-maker", made, has_topic(TOPIC, "message.type", "NORMAL"))
        self._is_known = False
        """Is the guest a user?"""
        self.may: bool | None = None
        """What the guest may; None: that is not known."""
        self._changes = 0
        self._unanswered_us = -STRAGGLES_US
        self._ending = False

    # ---- a feature ----

    def prepare(self) -> None:
        self._maker.work()
        self._make_known()

    def unprepared(self) -> str:
        return self._maker.unprepared() or ("" if self._is_known else "the guest is to be a user")

    def begin(self) -> None:
        self._operator.later(*STEP_MS, self._change)
        self._guest.later(*GUEST_MS, self._use)
        self._stranger.later(*STEP_MS, self._intrude)

    def wind_down(self) -> None:
        self._ending = True

    def left(self) -> str:
        return ""

    def check(self) -> None: ...

    def stop(self) -> None:
        for client in (self._operator, self._guest, self._stranger, self._maker):
            client.stop()

    # ---- what they do ----

    def _make_known(self) -> None:
        def looked(reply: Command | None, mark: int) -> None:
            self._is_known = reply is not None and reply.code == ResponseCode.SUCCESS and len(reply.body) > 0
            if not self._is_known:
                self._operator.later(*STEP_MS, self._make_known)

        def made(reply: Command | None, mark: int) -> None:
            self._operator.call(RequestCode.AUTH_GET_USER, UserRequest(GUEST.access_key), looked)

        body = json.dumps({"password": GUEST.secret_key}).encode()
        self._operator.call(RequestCode.AUTH_CREATE_USER, UserRequest(GUEST.access_key), made, body)

    def _again(self, client: Member, pause_ms: tuple[int, int], work: Callable[[], None]) -> None:
        if not self._ending:
            client.later(*pause_ms, work)

    def _change(self) -> None:
        """Give the permission, or take it away."""
        give = self._operator.random.random() < 0.5
        self._changes += 1
        self.may, number, began_us = None, self._changes, self.stage.scheduler.now_us

        def answered(reply: Command | None, mark: int) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS
            revoked_nothing = reply is not None and not give and reply.remark == "The acl is not exist."
            if not (done or revoked_nothing):
                self._unanswered_us = self.stage.scheduler.now_us
            elif number == self._changes and began_us - self._unanswered_us >= STRAGGLES_US:
                self.may = give
                self.stage.count("permission given" if give else "permission revoked")
            self._again(self._operator, STEP_MS, self._change)

        if give:
            entry = {"resource": RESOURCE, "actions": ["Pub"], "decision": "Allow"}
            body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
            self._operator.call(RequestCode.AUTH_CREATE_ACL, AclRequest("User:guest"), answered, body)
        else:
            header = DeleteAclRequest("User:guest", resource=RESOURCE)
            self._operator.call(RequestCode.AUTH_DELETE_ACL, header, answered)

    def _use(self) -> None:
        """The guest sends."""
        may, changes = self.may, self._changes

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and may is not None and changes == self._changes:
                served = reply.code == ResponseCode.SUCCESS
                if served and not may:
                    raise Violation("who may not is not served", "the guest sent after its permission had been revoked")
                if may and reply.code == ResponseCode.NO_PERMISSION and REFUSED in (reply.remark or ""):
                    raise Violation("who may is served", f"the guest was refused: {reply.remark}")
                if served or REFUSED in (reply.remark or ""):
                    self.stage.count("guest served" if served else "guest refused")
            self._again(self._guest, GUEST_MS, self._use)

        self._guest.call(RequestCode.SEND_MESSAGE_V2, _header(), answered, b"of a guest")

    def _intrude(self) -> None:
        """Somebody sends without a signature, or with a wrong one."""
        self._stranger.signs = signs = self._stranger.random.choice((None, LIAR))

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None:
                if reply.code != ResponseCode.NO_PERMISSION:
                    what = f"a stranger got code {reply.code}: {reply.remark}"
                    raise Violation("who does not sign is not served", what)
                self.stage.count("stranger refused")
                self.stage.count("signature missing" if signs is None else "signature wrong")
            self._again(self._stranger, STEP_MS, self._intrude)

        code = self._stranger.random.choice((RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_CONFIG))
        header = _header() if code == RequestCode.SEND_MESSAGE_V2 else None
        self._stranger.call(code, header, answered, b"of a stranger")


def _header() -> SendMessageRequestV2:
    return SendMessageRequestV2(
        producer_group="guests", topic=TOPIC, default_topic=NO_TEMPLATE, default_topic_queue_nums=1, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties="",
    )  # fmt: skip
