"""What each value of the sessions policy's closed sets means, in one line; part of `meanings`."""

from collections.abc import Mapping
from enum import StrEnum

from policies.sessions.decision import (
    OwnershipReason,
    OwnershipVerdict,
    SessionEvent,
    SessionReason,
    SessionVerdict,
    Status,
)
from policies.sessions.readings import NodeKind, RecoveryAction, RecoveryResult, SessionState
from policies.sessions.settings import OwnershipRules, RecoveryStep
from policies.sessions.unload_events import UnloadOutcome

SESSION_MEANINGS: Mapping[type[StrEnum], Mapping[str, str]] = {
    SessionState: {
        "connected": "A server has its connection, and hears from it.",
        "disconnected": "ZooKeeper keeps it, but its client is connected nowhere, or silent for more than T/2.",
        "expired": "ZooKeeper has ended it.",
        "closed": "Its client has ended it in order: the member is gone.",
    },
    NodeKind: {
        "bundle": "Whoever made it owns a bundle.",
        "broker": "A member's registration, with its load data.",
        "leader": "Whoever made it leads the brokers.",
    },
    RecoveryAction: {
        "reconnect": "To get a session again.",
        "re-own": "To own a bundle again.",
        "unload": "To let a bundle go.",
        "republish-load-data": "To publish its load data and registration again.",
    },
    RecoveryResult: {"ok": "It is done.", "failed": "It is not; `detail` says why."},
    Status: {
        "established": "It has a session.",
        "connection_lost": "Disconnected for less than 5T/6.",
        "session_lost": "Expired, or disconnected for longer.",
        "closed": "Shut down in order: it owns nothing.",
    },
    SessionEvent: {
        "connection_lost": "Its connection was lost.",
        "session_lost": "Its session was lost.",
        "reconnected": "It has a connection again.",
        "session_reestablished": "It has a session again, after it had lost one.",
        "closed": "It ended its session in order.",
        "joined": "A member that had ended its session has a new one.",
    },
    SessionVerdict: {
        "hold": "Keep serving, and wait.",
        "resume": "All is as before; caches filled before the loss are to be invalidated.",
        "reconnect": "Keep serving what is loaded, load nothing new, and get a session again.",
        "shutdown": "Go down; published only, for the platform to carry out.",
        "recover": "Follow the plan, then the decisions for its bundles.",
        "restart": "Go down and come up again; published only, for the platform to carry out.",
        "gone": "The process is gone: nothing to reconnect, its bundles are free for others.",
        "republish-load-data": "Publish load data and registration again.",
    },
    SessionReason: {
        "connection_lost": "Its connection was lost.",
        "reconnected": "It has its connection again, in time.",
        "session_lost": "Its session was lost.",
        "confirming": "A shutdown waits for `shutdown_delay`, in which the losses of others would show.",
        "fleet_wide": "Too many lost their sessions at once, or ZooKeeper cannot be read: the fault is ZooKeeper's.",
        "shutdown_budget": "As many as may be down by our word already are.",
        "reconnect_exhausted": "It has tried too often, or for too long.",
        "session_reestablished": "It has a session again.",
        "not_ready": "It is registered, but the cluster does not list it.",
        "recovered": "Every bundle it owned is its own again or given up.",
        "unsettled": "It loses its session again and again.",
        "zombie": "Its process says it is healthy, and it has had no registration for `zombie_after`.",
        "registered": "It was taken for a zombie, and has registered itself.",
        "unreachable": "Its session expired, and its own health endpoint does not answer.",
        "closed": "It ended its session in order.",
        "joined": "It starts afresh.",
        "load_data_missing": "It owns its bundles again, and has published no load data.",
    },
    OwnershipVerdict: {
        "keep": "It is the member's own.",
        "re-own": "Preload its topics and create its node; where `delete_first`, delete the old one before.",
        "wait": "Read it again.",
        "unload": "Close its topics and let it go; the node is not touched.",
    },
    OwnershipReason: {
        "absent": "It has no node.",
        "own_session": "Its node belongs to the member's own session.",
        "old_session": "Its node names the member, and belongs to a session of the past.",
        "old_session_persists": "That node is still there after `wait_for_deletion`.",
        "other_owner": "Its node names another member.",
        "double_ownership": "Two members claim it; the one whose session holds the node keeps it.",
        "not_ephemeral": "Its node would outlive any session.",
        "unreadable": "Its value, or whose session it is, cannot be read.",
        "unread": "It has not been read since the session was lost.",
    },
    OwnershipRules: {
        "pip57": "Wait until ZooKeeper deletes the old node; where it does not, unload.",
        "current": "Pulsar from 2.9 on: delete it with the observed version, and create it again.",
    },
    RecoveryStep: {
        "re-own": "Own the bundles again.",
        "republish-load-data": "Publish load data and registration.",
        "invalidate-caches": "Forget what was cached before the loss.",
    },
    UnloadOutcome: {
        "done": "The brokers did as asked.",
        "already_moved": "To unload: the member does not serve it (any more).",
        "already_owned": "To re-own: a broker serves it already, whichever.",
        "contested": "The member serves it, but it is another's too: an unload could hit the rightful owner.",
        "no_topics": "To re-own: it has no topic that could be looked up, so nobody misses it.",
        "superseded": "A decision with a higher sequence is in force.",
        "expired": "The decision is past its `valid_until`.",
        "shadow": "The decision is published only: nothing is done.",
        "failed": "Not possible now, `detail` says why; tried again until the decision expires.",
    },
}
