"""Decisions of the sessions policy: what a member does, and what becomes of each bundle it owned."""

from typing import ClassVar

from pydantic import Field

from policies.decisions import Decision
from policies.sessions.settings import OwnershipRules, RecoveryStep
from policies.units import ClosedEnum, Instant


class SessionStatus(ClosedEnum):
    """The status of a member's session."""

    ESTABLISHED = "established", "It has a session."
    CONNECTION_LOST = "connection_lost", "Its client has been disconnected for less than 5T/6."
    SESSION_LOST = "session_lost", "It has expired, or its client has been disconnected for longer."
    CLOSED = "closed", "The member shut down in order; it owns nothing."


class SessionEvent(ClosedEnum):
    """An event of a session."""

    CONNECTION_LOST = "connection_lost", "Its connection was lost."
    SESSION_LOST = "session_lost", "Its session was lost."
    RECONNECTED = "reconnected", "It has a connection again."
    SESSION_REESTABLISHED = "session_reestablished", "It has a session again, after it had lost one."
    CLOSED = "closed", "The member ended its session in order."
    JOINED = "joined", "A member that had ended its session has a new one."


class SessionVerdict(ClosedEnum):
    """What a member must do."""

    HOLD = "hold", "Keep serving, and wait."
    RESUME = "resume", "Continue as before; invalidate caches that were filled before the loss."
    RECONNECT = "reconnect", "Keep serving loaded bundles, load no others, and get a session again."
    SHUTDOWN = "shutdown", "Shut down. Headgate only publishes this; the platform carries it out."
    RECOVER = "recover", "Follow the plan, then the decisions for its bundles."
    RESTART = "restart", "Restart. Headgate only publishes this; the platform carries it out."
    GONE = "gone", "The process is gone, and its bundles are free for others."
    REPUBLISH_LOAD_DATA = "republish-load-data", "Publish load data and registration again."


class SessionReason(ClosedEnum):
    """The reason for a verdict on a member."""

    CONNECTION_LOST = "connection_lost", "Its connection was lost."
    RECONNECTED = "reconnected", "It has its connection again, in time."
    SESSION_LOST = "session_lost", "Its session was lost."
    CONFIRMING = (
        "confirming",
        "A shutdown or restart waits for `shutdown_delay`, in which other members would lose their sessions, too, or "
        "for a second reading that confirms it.",
    )
    STALE_READING = "stale_reading", "A shutdown or restart waits for a fresh reading."
    WITHDRAWN = "withdrawn", "The cause of a waiting shutdown or restart is over."
    FLEET_WIDE = (
        "fleet_wide",
        "Too many members are without a session or cut off, or ZooKeeper cannot be read: the fault is ZooKeeper's.",
    )
    SHUTDOWN_BUDGET = "shutdown_budget", "`shutdown_budget` is used up, at present or within `shutdown_window`."
    RECONNECT_EXHAUSTED = "reconnect_exhausted", "It has tried too often, or for too long."
    SESSION_REESTABLISHED = "session_reestablished", "It has a session again."
    NOT_READY = "not_ready", "It has been registered again for `zombie_after`, but the cluster does not list it."
    RECOVERED = "recovered", "Every bundle it owned is its own again or given up, or it owned no bundle."
    UNSETTLED = "unsettled", "It loses its session again and again."
    ZOMBIE = "zombie", "Its health endpoint answers healthy, and it has had no registration for `zombie_after`."
    REGISTERED = "registered", "It was judged a zombie, and has registered itself."
    UNREACHABLE = (
        "unreachable",
        "Its session expired, or none protects it, and its own health endpoint refuses connections.",
    )
    CLOSED = "closed", "The member ended its session in order."
    JOINED = "joined", "It has joined again: with a new session or, if no session protects it, by its health."
    LOAD_DATA_MISSING = "load_data_missing", "It has recovered, and has published no load data."


class SessionDecision(Decision):
    """What one member must do."""

    event_type: ClassVar[str] = "headgate.session-decision.v1"
    topic: ClassVar[str] = "decided.sessions"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "status", "session", "plan")
    is_kept_up: ClassVar[bool] = False

    verdict: SessionVerdict
    reason: SessionReason
    member: str = Field(description="`host:port`, as it registers itself.")
    role: str = Field(description="Its role; all members of a role are one fleet.")
    status: SessionStatus | None = Field(description="The status of its session; null if no reading of it has come.")
    events: tuple[SessionEvent, ...] = Field(description="The events of its session since its last decision.")
    session: str | None = Field(description="The id of its session by the last reading.")
    timeout_ms: int = Field(description="The timeout T of its session in milliseconds; 30000 if it is not known.")
    seconds_left: float | None = Field(
        description="The time until a wait ends: the session's expiry, a confirmation or a deadline; null without a "
        "wait."
    )
    plan: tuple[RecoveryStep, ...] = Field(description="For `recover`: the steps, in this order; else empty.")
    bundles: tuple[str, ...] = Field(description="For `recover`: paths of the first 100 bundles it owned, sorted.")
    bundle_count: int | None = Field(
        ge=0, description="The number of bundles it owned when it lost its session; null: not known."
    )
    losses: int = Field(ge=0, description="How often it lost its session within `settle`.")
    attempts: int = Field(ge=0, description="Its failed attempts to reconnect since the loss.")
    recovery_seconds: float | None = Field(
        description="For `resume` after a recovery: the time from the loss until every bundle was settled; else null."
    )
    valid_until: Instant = Field(description="Nobody begins to carry it out after this time.")


class OwnershipVerdict(ClosedEnum):
    """What a member must do with a bundle it owned."""

    KEEP = "keep", "It is the member's own again."
    RE_OWN = "re-own", "Preload its topics and create its node; with `delete_first`, delete the old node before."
    WAIT = "wait", "Wait, then read its node again."
    UNLOAD = "unload", "Close its topics and release it; its node stays."


class OwnershipReason(ClosedEnum):
    """The reason for a verdict on a bundle."""

    ABSENT = "absent", "It has no node."
    OWN_SESSION = "own_session", "Its node belongs to the member's own session."
    OLD_SESSION = "old_session", "Its node names the member, but belongs to a past session."
    OLD_SESSION_PERSISTS = "old_session_persists", "That node is still there after `wait_for_deletion`."
    OTHER_OWNER = "other_owner", "Its node names another member."
    DOUBLE_OWNERSHIP = "double_ownership", "Two members claim it; the member whose session holds the node keeps it."
    NOT_EPHEMERAL = "not_ephemeral", "Its node would outlive any session."
    UNREADABLE = "unreadable", "The value of its node, or the session that holds it, cannot be read."
    UNREAD = "unread", "It has not been read since the present session began."


class OwnershipDecision(Decision):
    """What one member must do with one bundle."""

    event_type: ClassVar[str] = "headgate.ownership-decision.v1"
    topic: ClassVar[str] = "decided.sessions"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "expected_version", "delete_first", "retry_ms")
    is_kept_up: ClassVar[bool] = False

    verdict: OwnershipVerdict
    reason: OwnershipReason
    member: str = Field(description="The member that owned it.")
    bundle: str = Field(description="`tenant/namespace/range`.")
    path: str = Field(description="The path of its node.")
    rules: OwnershipRules = Field(description="The ownership rules in force.")
    owner: str | None = Field(description="The member its node names, by the last reading; null: none, or unreadable.")
    node_session: str | None = Field(description="The session its node belongs to, by the last reading.")
    session: str | None = Field(description="The member's session at the time of the decision.")
    expected_version: int | None = Field(
        description="The version of the node, on which a write is conditional; null if there is no node."
    )
    delete_first: bool = Field(description="For `re-own`: whether to delete a node of the old session first.")
    preload: bool = Field(description="For `re-own`: whether its topics must be loaded first.")
    close_first: bool = Field(description="For `unload`: whether its topics must be closed first.")
    retry_ms: int | None = Field(description="For `wait`: the milliseconds until its node is read again; else null.")
    seconds_left: float | None = Field(description="For `wait` on a deletion: the time until the wait ends; else null.")
    valid_until: Instant = Field(description="Nobody begins to carry it out after this time.")

    def wanted(self) -> str | None:
        """Return whether the bundle is to be moved."""
        if self.verdict not in (OwnershipVerdict.UNLOAD, OwnershipVerdict.RE_OWN):
            return None
        return f"{self.verdict} of bundle {self.bundle}"
