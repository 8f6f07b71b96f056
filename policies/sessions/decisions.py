"""Decisions of the sessions policy: what a member does, and what becomes of each bundle it owned."""

from typing import ClassVar

from pydantic import Field

from policies.closed_enum import ClosedEnum
from policies.decisions import Decision
from policies.sessions.settings import OwnershipRules, RecoveryStep
from policies.units import Instant


class SessionStatus(ClosedEnum):
    """How a member's session stands."""

    ESTABLISHED = "established", "It has a session."
    CONNECTION_LOST = "connection_lost", "Disconnected for less than 5T/6."
    SESSION_LOST = "session_lost", "Expired, or disconnected for longer."
    CLOSED = "closed", "Shut down in order: it owns nothing."


class SessionEvent(ClosedEnum):
    """What happened to a session."""

    CONNECTION_LOST = "connection_lost", "Its connection was lost."
    SESSION_LOST = "session_lost", "Its session was lost."
    RECONNECTED = "reconnected", "It has a connection again."
    SESSION_REESTABLISHED = "session_reestablished", "It has a session again, after it had lost one."
    CLOSED = "closed", "It ended its session in order."
    JOINED = "joined", "A member that had ended its session has a new one."


class SessionVerdict(ClosedEnum):
    """What a member is to do."""

    HOLD = "hold", "Keep serving, and wait."
    RESUME = "resume", "All is as before; caches filled before the loss are to be invalidated."
    RECONNECT = "reconnect", "Keep serving what is loaded, load nothing new, and get a session again."
    SHUTDOWN = "shutdown", "Go down; published only, for the platform to carry out."
    RECOVER = "recover", "Follow the plan, then the decisions for its bundles."
    RESTART = "restart", "Go down and come up again; published only, for the platform to carry out."
    GONE = "gone", "The process is gone: nothing to reconnect, its bundles are free for others."
    REPUBLISH_LOAD_DATA = "republish-load-data", "Publish load data and registration again."


class SessionReason(ClosedEnum):
    """Why."""

    CONNECTION_LOST = "connection_lost", "Its connection was lost."
    RECONNECTED = "reconnected", "It has its connection again, in time."
    SESSION_LOST = "session_lost", "Its session was lost."
    CONFIRMING = (
        "confirming",
        "A shutdown or restart waits for `shutdown_delay`, in which the losses of others would show, or for a second "
        "reading that says the same.",
    )
    STALE_READING = "stale_reading", "It would be shut down or restarted, but what says so was not read just now."
    WITHDRAWN = "withdrawn", "What it was to be shut down or restarted for, once that may be, is over."
    FLEET_WIDE = (
        "fleet_wide",
        "Too many are without a session or cut off, or ZooKeeper cannot be read: the fault is ZooKeeper's.",
    )
    SHUTDOWN_BUDGET = "shutdown_budget", "As many as may be told to be down at a time, or within a window, were."
    RECONNECT_EXHAUSTED = "reconnect_exhausted", "It has tried too often, or for too long."
    SESSION_REESTABLISHED = "session_reestablished", "It has a session again."
    NOT_READY = "not_ready", "It has been registered again for `zombie_after`, but the cluster does not list it."
    RECOVERED = "recovered", "Every bundle it owned is its own again or given up."
    UNSETTLED = "unsettled", "It loses its session again and again."
    ZOMBIE = "zombie", "Its process says it is healthy, and it has had no registration for `zombie_after`."
    REGISTERED = "registered", "It was taken for a zombie, and has registered itself."
    UNREACHABLE = "unreachable", "Its session expired, and its own health endpoint refuses connections."
    CLOSED = "closed", "It ended its session in order."
    JOINED = "joined", "It starts afresh."
    LOAD_DATA_MISSING = "load_data_missing", "It owns its bundles again, and has published no load data."


class SessionDecision(Decision):
    """What one member is to do."""

    event_type: ClassVar[str] = "headgate.session-decision.v1"
    topic: ClassVar[str] = "decided.sessions"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "status", "session", "plan")
    is_kept_up: ClassVar[bool] = False

    verdict: SessionVerdict
    reason: SessionReason
    member: str = Field(description="`host:port`, as it registers itself.")
    role: str = Field(description="What it is: the fleet it belongs to.")
    status: SessionStatus | None = Field(description="How its session stands; null when its session was never read.")
    events: tuple[SessionEvent, ...] = Field(description="What happened to its session since the decision before.")
    session: str | None = Field(description="Its session's id, as last read.")
    timeout_ms: int = Field(description="Its session's timeout, T, in milliseconds; 30000 where nobody told it.")
    seconds_left: float | None = Field(
        description="Until the wait this decision is about ends: the session's expiry, a confirmation, a deadline; "
        "null where nothing is waited for."
    )
    plan: tuple[RecoveryStep, ...] = Field(description="For `recover`: what to do, in this order; else empty.")
    bundles: tuple[str, ...] = Field(description="For `recover`: paths of the first 100 bundles it owned, sorted.")
    bundle_count: int = Field(ge=0, description="How many bundles it owned.")
    losses: int = Field(ge=0, description="How often it lost its session within `settle`.")
    attempts: int = Field(ge=0, description="Its failed attempts to reconnect since the loss.")
    recovery_seconds: float | None = Field(
        description="For `resume` because it has recovered: from the loss until every bundle was settled; else null."
    )
    valid_until: Instant = Field(description="Nobody begins to carry it out after this.")


class OwnershipVerdict(ClosedEnum):
    """What a member is to do with a bundle it owned."""

    KEEP = "keep", "It is the member's own."
    RE_OWN = "re-own", "Preload its topics and create its node; where `delete_first`, delete the old one before."
    WAIT = "wait", "Read it again."
    UNLOAD = "unload", "Close its topics and let it go; the node is not touched."


class OwnershipReason(ClosedEnum):
    """Why."""

    ABSENT = "absent", "It has no node."
    OWN_SESSION = "own_session", "Its node belongs to the member's own session."
    OLD_SESSION = "old_session", "Its node names the member, and belongs to a session of the past."
    OLD_SESSION_PERSISTS = "old_session_persists", "That node is still there after `wait_for_deletion`."
    OTHER_OWNER = "other_owner", "Its node names another member."
    DOUBLE_OWNERSHIP = "double_ownership", "Two members claim it; the one whose session holds the node keeps it."
    NOT_EPHEMERAL = "not_ephemeral", "Its node would outlive any session."
    UNREADABLE = "unreadable", "Its value, or whose session it is, cannot be read."
    UNREAD = "unread", "It has not been read since the present session began."


class OwnershipDecision(Decision):
    """What one member is to do with one bundle."""

    event_type: ClassVar[str] = "headgate.ownership-decision.v1"
    topic: ClassVar[str] = "decided.sessions"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "expected_version", "delete_first", "retry_ms")
    is_kept_up: ClassVar[bool] = False

    verdict: OwnershipVerdict
    reason: OwnershipReason
    member: str = Field(description="Who owned it.")
    bundle: str = Field(description="`tenant/namespace/range`.")
    path: str = Field(description="Its node.")
    rules: OwnershipRules = Field(description="The rules in force.")
    owner: str | None = Field(description="The member its node names, by the last reading; null: none, or unreadable.")
    node_session: str | None = Field(description="The session its node belongs to, by the last reading.")
    session: str | None = Field(description="The member's session, for which this was decided.")
    expected_version: int | None = Field(description="A write succeeds only on this version; null: no such node.")
    delete_first: bool = Field(description="For `re-own`: whether a node of the old session is to be deleted before.")
    preload: bool = Field(description="For `re-own`: its topics are loaded before it counts as done.")
    close_first: bool = Field(description="For `unload`: its topics are closed before it is let go.")
    retry_ms: int | None = Field(description="For `wait`: read it again after so many milliseconds; else null.")
    seconds_left: float | None = Field(description="For `wait` on a deletion: until it is given up; else null.")
    valid_until: Instant = Field(description="Nobody begins to carry it out after this.")
