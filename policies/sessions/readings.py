"""Readings of the sessions policy: topic ``observed.sessions``, keyed by cluster.

All fields but `cluster` and the name of the thing read have defaults: a source fills in only what it knows.
"""

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.observations import Observation, Outcome, Reading
from policies.units import MAX_INT64

BROKERS = "/loadbalance/brokers"
"""Below it each member registers itself, and publishes its load data."""
LEADER = "/loadbalance/leader"
NAMESPACES = "/namespace"
"""Below it each owned bundle has a node."""

MAX_TIMEOUT_MS = 86_400_000
MAX_NAME = 1000
MOST_NODES = 100_000
"""Of one tree; the record's own limit is reached before in most cases."""


class SessionState(ClosedEnum):
    """How a session stands, seen from outside or told by the application."""

    CONNECTED = "connected", "A server has its connection, and hears from it."
    DISCONNECTED = (
        "disconnected",
        "ZooKeeper keeps it, but its client is connected nowhere, or silent for more than T/2.",
    )
    EXPIRED = "expired", "ZooKeeper has ended it."
    CLOSED = "closed", "Its client has ended it in order: the member is gone."


class NodeKind(ClosedEnum):
    """What a node stands for."""

    BUNDLE = "bundle", "Whoever made it owns a bundle."
    BROKER = "broker", "A member's registration, with its load data."
    LEADER = "leader", "Whoever made it leads the brokers."


class RecoveryAction(ClosedEnum):
    """What a member does while it carries out a decision."""

    RECONNECT = "reconnect", "To get a session again."
    RE_OWN = "re-own", "To own a bundle again."
    UNLOAD = "unload", "To let a bundle go."
    REPUBLISH_LOAD_DATA = "republish-load-data", "To publish its load data and registration again."


class RecoveryResult(ClosedEnum):
    """What came of it."""

    OK = "ok", "It is done."
    FAILED = "failed", "It is not; `detail` says why."


class FetchedReading(Reading):
    """A reading that says how old it was when it was handed on."""

    age_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_TIMEOUT_MS,
        description="How long before it was handed on it was fetched, in milliseconds: it counts as of then.",
    )


class ZkSession(FetchedReading):
    """The ZooKeeper session of one member; without a member and not `ok`: no session of the cluster can be read."""

    event_type: ClassVar[str] = "headgate.zk-session.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    member: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_NAME,
        description="`host:port`, as the member registers itself; null: the cluster's sessions as a whole.",
    )
    role: str = Field(default="broker", max_length=MAX_NAME, description="What the member is: the fleet it belongs to.")
    session: str | None = Field(default=None, max_length=MAX_NAME, description="The session's id, as `0x…`.")
    state: SessionState | None = Field(default=None, description="How it stands; null when it could not be read.")
    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_TIMEOUT_MS, description="The negotiated timeout, T, in milliseconds."
    )

    @property
    def is_good(self) -> bool:
        """Whether it tells how the session stands."""
        return self.outcome is Outcome.OK and self.state is not None

    def subject(self) -> str:
        """``cluster/member``, or the cluster."""
        return self.cluster if self.member is None else f"{self.cluster}/{self.member}"


class OwnedNode(BaseModel):
    """One node, by which a member owns something. The same path with another (session, czxid) is another node."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    path: str = Field(min_length=1, max_length=MAX_NAME, description="Its path in ZooKeeper.")
    kind: NodeKind | None = Field(default=None, description="What it stands for; null: to be told from its path.")
    exists: bool = Field(default=True, description="Whether there is such a node.")
    ephemeral: bool = Field(default=True, description="Whether it ends with the session that made it.")
    owner_member: str | None = Field(
        default=None, max_length=MAX_NAME, description="The member its value names; null when that cannot be read."
    )
    value_digest: str | None = Field(default=None, max_length=MAX_NAME, description="Changes when its value does.")
    session: str | None = Field(default=None, max_length=MAX_NAME, description="The session that made it, as `0x…`.")
    czxid: int | None = Field(default=None, ge=0, le=MAX_INT64, description="The transaction that made it.")
    version: int | None = Field(
        default=None, ge=-1, le=MAX_INT64, description="Of its value: writes are conditional on it."
    )


class Ownership(FetchedReading, OwnedNode):
    """One reading of one node."""

    event_type: ClassVar[str] = "headgate.ownership.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")

    def subject(self) -> str:
        """``cluster/path``."""
        return f"{self.cluster}{self.path}" if self.path.startswith("/") else f"{self.cluster}/{self.path}"


class Ownerships(FetchedReading):
    """One reading of a whole tree: nodes below `tree` that it does not list do not exist."""

    event_type: ClassVar[str] = "headgate.ownerships.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    tree: str = Field(min_length=1, max_length=MAX_NAME, description="The path that was listed, such as `/namespace`.")
    nodes: tuple[OwnedNode, ...] = Field(
        default=(), max_length=MOST_NODES, description="Every node in it that stands for something owned."
    )


class Recovery(Reading):
    """What a member reports while it carries out a decision."""

    event_type: ClassVar[str] = "headgate.recovery.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    member: str = Field(min_length=1, max_length=MAX_NAME, description="Who reports.")
    action: RecoveryAction = Field(description="What it does.")
    path: str | None = Field(default=None, max_length=MAX_NAME, description="The node it is about, if any.")
    result: RecoveryResult = Field(default=RecoveryResult.OK, description="What came of it.")
    attempt: int = Field(default=1, ge=0, le=MAX_INT64, description="Which attempt this was.")

    def subject(self) -> str:
        """``cluster/member``."""
        return f"{self.cluster}/{self.member}"


class MemberHealth(FetchedReading):
    """What a member's own health endpoint says, and whether the cluster lists it."""

    event_type: ClassVar[str] = "headgate.member-health.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended; `unreachable`: no answer.")
    member: str = Field(min_length=1, max_length=MAX_NAME, description="Whose health.")
    healthy: bool | None = Field(default=None, description="What the endpoint says; null when it does not say.")
    listed: bool | None = Field(default=None, description="Whether the cluster lists the member; null: not known.")

    def subject(self) -> str:
        """``cluster/member``."""
        return f"{self.cluster}/{self.member}"


def as_fetched(seen: Observation) -> Observation:
    """The observation as of when it was fetched, rather than published."""
    reading = seen.reading
    if not isinstance(reading, FetchedReading) or not reading.age_ms:
        return seen
    return replace(seen, at=seen.at - timedelta(milliseconds=reading.age_ms))


def kind_of(node: OwnedNode) -> NodeKind:
    """What a node stands for: as said, else by its path."""
    if node.kind is not None:
        return node.kind
    if node.path == LEADER:
        return NodeKind.LEADER
    return NodeKind.BROKER if node.path.startswith(f"{BROKERS}/") else NodeKind.BUNDLE


def registration_path(member: str) -> str:
    """The node by which a member registers itself."""
    return f"{BROKERS}/{member}"


def is_bundle(path: str) -> bool:
    """Whether a node stands for a bundle rather than a registration."""
    return not path.startswith(f"{BROKERS}/")


def bundle_of(path: str) -> str:
    """The bundle a node stands for: ``tenant/namespace/range``."""
    return path.removeprefix(f"{NAMESPACES}/").lstrip("/")
