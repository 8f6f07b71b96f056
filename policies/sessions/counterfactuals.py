"""The counterfactuals of a decision: the conditions for another verdict on a member or a bundle, by the reason."""

from collections.abc import Iterable
from enum import StrEnum

from policies.decisions import Otherwise
from policies.sessions.decisions import (
    OwnershipDecision,
    OwnershipReason,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionStatus,
    SessionVerdict,
)
from policies.sessions.settings import OnSessionLost, SessionsSettings
from policies.units import format_duration, human_seconds

_HOLD, _RESUME, _RECONNECT = SessionVerdict.HOLD, SessionVerdict.RESUME, SessionVerdict.RECONNECT
_SHUTDOWN, _RECOVER, _REPUBLISH = SessionVerdict.SHUTDOWN, SessionVerdict.RECOVER, SessionVerdict.REPUBLISH_LOAD_DATA
_KEEP, _RE_OWN, _UNLOAD = OwnershipVerdict.KEEP, OwnershipVerdict.RE_OWN, OwnershipVerdict.UNLOAD


def derive_member_counterfactuals(
    decision: SessionDecision, settings: SessionsSettings, awaited: SessionVerdict | None = None
) -> tuple[Otherwise, ...]:
    """Name the conditions for another verdict on a member; `awaited` is the shutdown or restart that waits."""
    left = "" if decision.seconds_left is None else f" within {human_seconds(decision.seconds_left)}"
    wait = human_seconds(decision.seconds_left or 0.0)
    budget, window = settings.shutdown_budget, format_duration(settings.shutdown_window)
    few = "no member is down by an order or was" if budget == 1 else f"fewer than {budget} members are down or were"
    when_lost = _RECONNECT if settings.on_session_lost is OnSessionLost.RECONNECT else _SHUTDOWN
    is_shut_down, is_pending = decision.verdict is _SHUTDOWN, decision.seconds_left is not None
    each = "its bundle" if decision.bundle_count == 1 else f"each of its {decision.bundle_count} bundles"
    lost_again = (_HOLD, "its connection is lost")
    has_another, has_new = (_RECOVER, "it has a session again"), (_RESUME, "it has a new session")
    is_back = has_another if decision.status is SessionStatus.SESSION_LOST else (_RESUME, "it is back in its place")
    goes_down = awaited or _SHUTDOWN
    tried = (_SHUTDOWN, f"it has no session{left}, or has failed {settings.reconnect_limit} times")
    share, no_session = f"{settings.fleet_ratio:.0%}", f"it has no session{left}, " if is_pending else ""
    by_reason: dict[SessionReason, tuple[tuple[SessionVerdict, str], ...]] = {
        SessionReason.CONNECTION_LOST: (
            (_RESUME, f"it reconnects{left}"),
            (when_lost, f"it has not reconnected{left}"),
        ),
        SessionReason.RECONNECTED: (lost_again,),
        SessionReason.SESSION_LOST: (has_another,) if is_shut_down else (has_another, tried),
        SessionReason.CONFIRMING: (
            (has_another, (_SHUTDOWN, f"{wait} have passed, and not too many others have lost theirs"))
            if is_pending
            else (is_back, (goes_down, "a second reading in a row confirms it"))
        ),
        SessionReason.STALE_READING: (is_back, (goes_down, "a fresh reading confirms it")),
        SessionReason.WITHDRAWN: (lost_again,),
        SessionReason.FLEET_WIDE: (
            has_another,
            (
                _SHUTDOWN,
                f"{no_session}ZooKeeper can be read, and fewer than {share} of its fleet are without a session",
            ),
        ),
        SessionReason.SHUTDOWN_BUDGET: (
            is_back,
            (goes_down, f"{few} ordered down within {window}" if budget else "`shutdown_budget` is more than 0"),
        ),
        SessionReason.RECONNECT_EXHAUSTED: (has_another,),
        SessionReason.SESSION_REESTABLISHED: (
            ((_RESUME, f"{each} is its own again or given up"),) if decision.bundle_count else (lost_again,)
        ),
        SessionReason.NOT_READY: ((_RESUME, "the cluster lists it among its brokers"),),
        SessionReason.RECOVERED: (
            lost_again,
            (_REPUBLISH, f"it has published no load data for {format_duration(settings.load_data_after)}"),
        ),
        SessionReason.UNSETTLED: (
            (_RECOVER, f"it has kept one session for {wait} more" if decision.seconds_left else "it is read again"),
        ),
        SessionReason.ZOMBIE: ((_RESUME, "it has registered itself again"),),
        SessionReason.REGISTERED: (lost_again,),
        SessionReason.UNREACHABLE: (has_new,),
        SessionReason.CLOSED: (has_new,),
        SessionReason.JOINED: (lost_again,),
        SessionReason.LOAD_DATA_MISSING: ((_RESUME, "it has published its load data"),),
    }
    return _word(by_reason[decision.reason])


def derive_bundle_counterfactuals(decision: OwnershipDecision) -> tuple[Otherwise, ...]:
    """Name the conditions for another ruling on a bundle."""
    left = "" if decision.seconds_left is None else f" within {human_seconds(decision.seconds_left)}"
    session = f"session {decision.session}" if decision.session else "next session"
    # A member does not ask again for a bundle that it was to unload.
    owned = (_KEEP, f"its node belongs to the member's {session}")
    free, taken = (_RE_OWN, "its node is gone"), (_UNLOAD, "it names another member")
    waiting = ((_RE_OWN, f"that node is gone{left}"), (_UNLOAD, f"that node is still there{left}"))
    changed = (_UNLOAD, f"its node changes from version {decision.expected_version}")
    by_reason: dict[OwnershipReason, tuple[tuple[OwnershipVerdict, str], ...]] = {
        OwnershipReason.ABSENT: (owned, taken),
        OwnershipReason.OWN_SESSION: (free, (_UNLOAD, "its node belongs to another session")),
        OwnershipReason.OLD_SESSION: (
            waiting
            if decision.verdict is OwnershipVerdict.WAIT
            else ((_KEEP, "the member has replaced its node"), changed)
        ),
        OwnershipReason.OLD_SESSION_PERSISTS: (owned,),
        OwnershipReason.OTHER_OWNER: (owned,),
        OwnershipReason.DOUBLE_OWNERSHIP: (owned,),
        OwnershipReason.NOT_EPHEMERAL: (owned,),
        OwnershipReason.UNREADABLE: (owned, taken),
        OwnershipReason.UNREAD: (owned, taken),
    }
    return _word(by_reason[decision.reason])


def _word(conditions: Iterable[tuple[StrEnum, str]]) -> tuple[Otherwise, ...]:
    return tuple(Otherwise(verdict.value, when) for verdict, when in conditions)
