"""Users in the simulator: in some seeds the brokers of a model ask each request for a signature and a permission, name
servers, controllers and members of a group those for a signature that have to come from members of the cluster.

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
from perseid.security.members import Members
from perseid.security.users import SUPER, User
from perseid.sim.driver import NodeDriver
from perseid.sim.features.stage import NO_TEMPLATE, Maker, Member, Stage, has_topic, topic_request
from perseid.sim.process import OnReply
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.headers.users import AclRequest, DeleteAclRequest, UserRequest

ROOT, NODES = Credentials("root", "root-secret"), Credentials("nodes", "nodes-secret")
GUEST, LIAR = Credentials("guest", "guest-secret"), Credentials("guest", "a guess")
PERSON = User("root", "root-secret", SUPER)
ACCESS = Access(authenticates=True, authorizes=True, initial=PERSON, inner=NODES, key=bytes(range(32)))
TOPIC, RESOURCE = "guests", "Topic:guests"
STEP_MS, GUEST_MS = (200, 1_500), (100, 600)
STRAGGLES_US = 10 * US_PER_S
"""So long after a change whose answer did not come it may still arrive."""
REFUSED = "has no permission to access"
PROPERTIES = "UNIQ_KEY\x01GUEST\x02"
"""Of what the guest sends: with them it is plain, and goes the fast way of a broker that has the core."""
AT_OFFICES = 0.3
"""So much of what strangers ask goes to name servers and controllers."""
OF_OFFICES = (
    RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.REGISTER_BROKER, RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CLEAN_BROKER_DATA, RequestCode.BROKER_HEARTBEAT,
)  # fmt: skip
"""Not all of them are served by either, and none without a signature."""


def members(*, authenticates: bool, certified: bool = False) -> Members:
    """Whom a name server or a controller takes for one of the cluster."""
    inner, initial = (NODES, PERSON) if authenticates else (None, None)
    return Members(inner, initial, authenticates=authenticates, certified=certified)


class Post:
    """A broker, and what is known there of the guest."""

    def __init__(self, driver: NodeDriver) -> None:
        self.driver = driver
        self._disk = driver.disk
        self.is_known = False
        """Is the guest a user?"""
        self.may: bool | None = None
        """What the guest may; None: that is not known."""
        self.changes = 0
        self.unanswered_us = -STRAGGLES_US

    def look(self) -> None:
        """Somebody may have given it an empty disk: then nobody is known there."""
        if self.driver.disk is not self._disk:
            self._disk = self.driver.disk
            self.is_known, self.may = False, None
            self.changes += 1


class Permissions:
    """The guest, whoever says what it may, and strangers: a feature. Each broker has users and policies of its own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._operator = Member(stage, "permissions")
        self._guest, self._stranger = Member(stage, "guest"), Member(stage, "stranger")
        self._guest.signs = GUEST
        made = [topic_request(TOPIC, 1, "+message.type=NORMAL")]
        self._maker = Maker(stage, "guest-maker", made, has_topic(TOPIC, "message.type", "NORMAL"))
        self._guest.maker = self._maker
        self._posts = [Post(driver) for driver in stage.brokers()]
        self._ending = False

    # ---- a feature ----

    def prepare(self) -> None:
        self._maker.work()
        for post in self._posts:
            self._make_known(post)

    def unprepared(self) -> str:
        unknown = [post for post in self._posts if not post.is_known and post.driver.machine is not None]
        return self._maker.unprepared() or ("the guest is to be a user" if unknown else "")

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

    def _ask(self, post: Post, code: int, header: Header, on_reply: OnReply, body: bytes = b"") -> None:
        self._operator.ask(self.stage.address_of(post.driver), code, header, on_reply, body)

    def _make_known(self, post: Post, then: Callable[[], None] | None = None) -> None:
        """The guest is to be a user; again and again, unless something comes `then`."""
        post.look()

        def looked(reply: Command | None) -> None:
            post.is_known = reply is not None and reply.code == ResponseCode.SUCCESS and len(reply.body) > 0
            if then is not None:
                then()
            elif not post.is_known and not self.stage.prepared:
                self._operator.later(*STEP_MS, lambda: self._make_known(post))

        def made(reply: Command | None) -> None:
            self._ask(post, RequestCode.AUTH_GET_USER, UserRequest(GUEST.access_key), looked)

        body = json.dumps({"password": GUEST.secret_key}).encode()
        self._ask(post, RequestCode.AUTH_CREATE_USER, UserRequest(GUEST.access_key), made, body)

    def _again(self, client: Member, pause_ms: tuple[int, int], work: Callable[[], None]) -> None:
        if not self._ending:
            client.later(*pause_ms, work)

    def _change(self) -> None:
        """Give the permission at some broker, or take it away."""
        post = self._posts[0] if len(self._posts) == 1 else self._operator.random.choice(self._posts)
        post.look()
        give = self._operator.random.random() < 0.5
        if not post.is_known:
            self._make_known(post, lambda: self._again(self._operator, STEP_MS, self._change))
            return
        post.changes += 1
        post.may, number, began_us = None, post.changes, self.stage.scheduler.now_us

        def answered(reply: Command | None) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS
            revoked_nothing = reply is not None and not give and reply.remark == "The acl is not exist."
            post.look()
            if not (done or revoked_nothing):
                post.unanswered_us = self.stage.scheduler.now_us
            elif number == post.changes and began_us - post.unanswered_us >= STRAGGLES_US:
                post.may = give
                self.stage.count("permission given" if give else "permission revoked")
            self._again(self._operator, STEP_MS, self._change)

        if give:
            entry = {"resource": RESOURCE, "actions": ["Pub"], "decision": "Allow"}
            body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
            self._ask(post, RequestCode.AUTH_CREATE_ACL, AclRequest("User:guest"), answered, body)
        else:
            header = DeleteAclRequest("User:guest", resource=RESOURCE)
            self._ask(post, RequestCode.AUTH_DELETE_ACL, header, answered)

    def _use(self) -> None:
        """The guest sends."""
        driver = self._guest.driver
        post = next((post for post in self._posts if post.driver is driver), None)
        may, changes = (post.may, post.changes) if post is not None else (None, 0)

        def answered(reply: Command | None, mark: int) -> None:
            if post is not None:
                post.look()
            if reply is not None and post is not None and may is not None and changes == post.changes:
                self._check(post, reply, may=may)
            self._again(self._guest, GUEST_MS, self._use)

        self._guest.call(RequestCode.SEND_MESSAGE_V2, _header(), answered, b"of a guest")

    def _check(self, post: Post, reply: Command, *, may: bool) -> None:
        served, refused = reply.code == ResponseCode.SUCCESS, REFUSED in (reply.remark or "")
        if served and not may:
            what = f"the guest sent to {post.driver.name} after its permission had been revoked"
            raise Violation("who may not is not served", what)
        if may and reply.code == ResponseCode.NO_PERMISSION and refused:
            raise Violation("who may is served", f"{post.driver.name} refused the guest: {reply.remark}")
        if served or refused:
            self.stage.count("guest served" if served else "guest refused")

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

        random, offices = self._stranger.random, self.stage.offices
        if offices and random.random() < AT_OFFICES:
            address, code = random.choice(offices), random.choice(OF_OFFICES)
            self._stranger.ask(address, code, None, lambda reply: answered(reply, 0), b"of a stranger")
            return
        code = random.choice((RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_CONFIG))
        header = _header() if code == RequestCode.SEND_MESSAGE_V2 else None
        self._stranger.call(code, header, answered, b"of a stranger")


def _header() -> SendMessageRequestV2:
    return SendMessageRequestV2(
        producer_group="guests", topic=TOPIC, default_topic=NO_TEMPLATE, default_topic_queue_nums=1, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties=PROPERTIES,
    )  # fmt: skip
