"""Readings of the sessions policy: topic ``observed.sessions``, keyed by cluster.

All fields but `cluster` and the name of the observed thing have defaults, so a source fills in only what it knows.
"""

import re
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.observations import ActuatorEvent, Observation, Outcome, Reading, ReportedEffect, ReportResult
from policies.units import MAX_INT64, ClosedEnum, Instant

BROKERS = "/loadbalance/brokers"
"""Each member registers itself below this path, and publishes its load data there."""
_BELOW_BROKERS = f"{BROKERS}/"
LEADER = "/loadbalance/leader"
NAMESPACES = "/namespace"
"""Each owned bundle has a node below this path."""

_OWN_TENANTS = (f"{NAMESPACES}/pulsar/", f"{NAMESPACES}/sla-monitor/")
_OWN_NAMESPACE = re.compile(rf"{NAMESPACES}/(?:pulsar|sla-monitor)/(?:[^/]+/)?([^/]+:[0-9]{{1,5}})/[^/]+")
"""``tenant/host:port/range``, or with the cluster's name ``tenant/cluster/host:port/range``."""

EXTENSIBLE_LOAD_MANAGER = "ExtensibleLoadManagerImpl"
"""With this load manager (Pulsar 3 and 4), ZooKeeper does not show which broker owns a bundle."""

UNCHANGED_TREE_INTERVAL = timedelta(seconds=5)
"""The default interval at which a collector publishes a tree that has not changed; it publishes a change at once."""

MAX_TIMEOUT_MS = 86_400_000
MAX_NAME = 1000
MOST_NODES = 100_000
"""The most nodes of one tree; in most cases the record's own limit is reached first."""


class SessionState(ClosedEnum):
    """The state of a session, as observed from outside or reported by the application."""

    CONNECTED = "connected", "A server has its connection, and receives heartbeats."
    DISCONNECTED = (
        "disconnected",
        "ZooKeeper keeps it, but its client is not connected, or has been silent for more than T/2.",
    )
    EXPIRED = "expired", "ZooKeeper has ended it."
    CLOSED = "closed", "Its client has ended it in order, so the member is gone."


class NodeKind(ClosedEnum):
    """The kinds of nodes."""

    BUNDLE = "bundle", "Its creator owns a bundle."
    BROKER = "broker", "A member's registration, with its load data."
    LEADER = "leader", "Its creator leads the brokers."


class RecoveryAction(ClosedEnum):
    """An action of a member that carries out a decision."""

    RECONNECT = "reconnect", "Get a session again."
    RE_OWN = "re-own", "Own a bundle again."
    UNLOAD = "unload", "Release a bundle."
    REPUBLISH_LOAD_DATA = "republish-load-data", "Publish its load data and registration again."


class RecoveryResult(ClosedEnum):
    """The result of an action."""

    OK = "ok", "It is done."
    FAILED = "failed", "It failed; `detail` has the cause."


class FetchedReading(Reading):
    """A reading with its age at the time of publication."""

    age_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_TIMEOUT_MS,
        description="The time from its fetch to its publication, in milliseconds. It counts from the fetch.",
    )


class ZkSession(FetchedReading):
    """The session of one member; without a member and with an outcome other than `ok`, no session can be read."""

    event_type: ClassVar[str] = "headgate.zk-session.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    member: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_NAME,
        description="`host:port`, as the member registers itself; null: the cluster's sessions as a whole.",
    )
    role: str = Field(
        default="broker", max_length=MAX_NAME, description="The member's role; all members of a role are one fleet."
    )
    session: str | None = Field(default=None, max_length=MAX_NAME, description="The session's id, as `0x…`.")
    state: SessionState | None = Field(default=None, description="Its state; null if it could not be read.")
    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_TIMEOUT_MS, description="The negotiated timeout, T, in milliseconds."
    )

    @property
    def is_good(self) -> bool:
        """Whether it contains the state of the session, or the cluster's sessions were read as a whole."""
        return self.outcome is Outcome.OK and (self.member is None or self.state is not None)

    def subject(self) -> str:
        """``cluster/member``, or the cluster."""
        return self.cluster if self.member is None else f"{self.cluster}/{self.member}"


class OwnedNode(BaseModel):
    """A node by which a member owns something. The same path with another (session, czxid) is another node."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    path: str = Field(min_length=1, max_length=MAX_NAME, description="Its path in ZooKeeper.")
    kind: NodeKind | None = Field(default=None, description="Its kind; null: derived from its path.")
    exists: bool = Field(default=True, description="Whether the node exists.")
    ephemeral: bool = Field(default=True, description="Whether it ends with the session that created it.")
    owner_member: str | None = Field(
        default=None, max_length=MAX_NAME, description="The member its value names; null if that cannot be read."
    )
    value_digest: str | None = Field(default=None, max_length=MAX_NAME, description="Changes when its value does.")
    session: str | None = Field(default=None, max_length=MAX_NAME, description="The session that created it, as `0x…`.")
    czxid: int | None = Field(default=None, ge=0, le=MAX_INT64, description="The transaction that created it.")
    version: int | None = Field(
        default=None, ge=-1, le=MAX_INT64, description="The version of its value, on which writes are conditional."
    )
    load_manager: str | None = Field(
        default=None, max_length=MAX_NAME, description="Of a registration: the class of the broker's load manager."
    )


class Ownership(FetchedReading, OwnedNode):
    """A reading of one node."""

    event_type: ClassVar[str] = "headgate.ownership.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")

    def subject(self) -> str:
        """``cluster/path``."""
        return f"{self.cluster}{self.path}" if self.path.startswith("/") else f"{self.cluster}/{self.path}"


class Ownerships(FetchedReading):
    """A complete reading of a tree: nodes below `tree` that it does not list do not exist."""

    event_type: ClassVar[str] = "headgate.ownerships.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    tree: str = Field(min_length=1, max_length=MAX_NAME, description="The path that was listed, such as `/namespace`.")
    nodes: tuple[OwnedNode, ...] = Field(
        default=(), max_length=MOST_NODES, description="Every node in it that stands for a bundle or a registration."
    )

    def identity(self) -> str:
        """The tree."""
        return self.tree


class Recovery(Reading):
    """A report of a member that carries out a decision."""

    event_type: ClassVar[str] = "headgate.recovery.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended.")
    member: str = Field(min_length=1, max_length=MAX_NAME, description="The member that reports.")
    action: RecoveryAction = Field(description="The action.")
    path: str | None = Field(default=None, max_length=MAX_NAME, description="The node of the action, if any.")
    result: RecoveryResult = Field(default=RecoveryResult.OK, description="The result of the action.")
    attempt: int = Field(default=1, ge=0, le=MAX_INT64, description="The number of this attempt.")

    def subject(self) -> str:
        """``cluster/member``."""
        return f"{self.cluster}/{self.member}"


class MemberHealth(FetchedReading):
    """The answer of a member's health endpoint, and whether the cluster lists the member."""

    event_type: ClassVar[str] = "headgate.member-health.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="How the attempt to read ended; `unreachable`: no answer.")
    member: str = Field(min_length=1, max_length=MAX_NAME, description="The member.")
    healthy: bool | None = Field(default=None, description="The answer of the endpoint; null if it has none.")
    listed: bool | None = Field(default=None, description="Whether the cluster lists the member; null: not known.")

    def subject(self) -> str:
        """``cluster/member``."""
        return f"{self.cluster}/{self.member}"


def date_back(seen: Observation) -> Observation:
    """Return the observation with the time at which it was fetched, rather than published."""
    reading = seen.reading
    if not isinstance(reading, FetchedReading):
        return seen
    return replace(seen, at=seen.at - timedelta(milliseconds=reading.age_ms))


def registration_path(member: str) -> str:
    """The path of the node by which a member registers itself."""
    return f"{BROKERS}/{member}"


def is_bundle(path: str) -> bool:
    """Whether a node stands for a bundle rather than a registration."""
    return not path.startswith(_BELOW_BROKERS)


def named_member(path: str) -> str | None:
    """The member that a bundle of a heartbeat or SLA monitor namespace names; None for other bundles.

    Only that member may own it, and takes it at each start: another owner keeps it from starting.
    """
    found = _OWN_NAMESPACE.fullmatch(path) if path.startswith(_OWN_TENANTS) else None
    return None if found is None else found[1]


def bundle_of(path: str) -> str:
    """The bundle of a node, as ``tenant/namespace/range``."""
    return path.removeprefix(f"{NAMESPACES}/").lstrip("/")


# Events that the unload actuator publishes to the audit topic: the outcome of each decision about a bundle.


class UnloadOutcome(ClosedEnum):
    """The outcome of a decision about a bundle."""

    DONE = "done", "The brokers did as asked."
    ALREADY_MOVED = "already_moved", "For an unload: the member does not serve it any more, or never did."
    ALREADY_OWNED = "already_owned", "For a re-own: some broker serves it already."
    CONTESTED = (
        "contested",
        "The member serves it, but another member claims it, too. ZooKeeper does not show the owner, or the member has "
        "no session, so an unload could hit the rightful owner.",
    )
    NO_TOPICS = "no_topics", "For a re-own: it has no topic to look up, so no client needs it."
    SUPERSEDED = "superseded", "Another decision is in force: this one came late."
    EXPIRED = "expired", "The decision is past its `valid_until`."
    SHADOW = "shadow", "The decision is in shadow mode: nothing is done."
    FAILED = "failed", "It failed, see `detail`; the actuator retries until the decision expires."


class BundleReport(ActuatorEvent):
    """The outcome of one decision about one bundle, published when it changes."""

    source: ClassVar[str] = "headgate/actuator/unload"
    done: ClassVar[str]
    """The effect in words."""

    member: str = Field(description="The broker in the decision, as `host:port`.")
    bundle: str = Field(description="`tenant/namespace/range`.")
    decision_id: str = Field(description="The decision it carries out.")
    sequence: int = Field(description="The sequence of that decision.")
    outcome: UnloadOutcome
    served_by: tuple[str, ...] = Field(
        default=(),
        description="The brokers that answered at the last check that they serve it; empty if none, or not checked.",
    )
    attempt: int = Field(ge=1, description="The number of this attempt; the actuator retries after a missing answer.")
    done_at: Instant | None = Field(
        default=None, description="When it was done, by the actuator's clock; null unless done."
    )
    detail: str | None = Field(default=None, description="The cause of a failure in a few words; never a secret.")

    def subject(self) -> str:
        """``<cluster>/<member>/<bundle>``."""
        return f"{self.cluster}/{self.member}/{self.bundle}"

    def effect(self) -> ReportedEffect | None:
        """Return that the bundle was moved, or why it was not."""
        if self.outcome in (UnloadOutcome.SUPERSEDED, UnloadOutcome.EXPIRED):
            return None
        results = {
            UnloadOutcome.DONE: ReportResult.APPLIED,
            UnloadOutcome.ALREADY_MOVED: ReportResult.UNCHANGED,
            UnloadOutcome.ALREADY_OWNED: ReportResult.UNCHANGED,
            UnloadOutcome.FAILED: ReportResult.FAILED,
        }
        result = results.get(self.outcome, ReportResult.REFUSED)
        return ReportedEffect(
            target=f"bundle {self.bundle}",
            by="the unload actuator",
            result=result,
            value=self.done,
            is_held=False,
            detail=self.detail or (self.outcome.meaning.rstrip(".") if result is ReportResult.REFUSED else None),
        )


class BundleUnloaded(BundleReport):
    """The outcome of a decision to unload a bundle."""

    event_type: ClassVar[str] = "headgate.bundle-unloaded.v1"
    done: ClassVar[str] = "unloaded"


class BundleReOwned(BundleReport):
    """The outcome of a decision to own a bundle again."""

    event_type: ClassVar[str] = "headgate.bundle-re-owned.v1"
    done: ClassVar[str] = "owned again"
