"""What would have to change for another verdict on a member or a bundle, from the decision's reason and numbers."""

from collections.abc import Callable, Mapping

from policies.decisions import Otherwise
from policies.sessions.decisions import (
    OwnershipDecision,
    OwnershipReason,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionVerdict,
)
from policies.sessions.settings import OnSessionLost, SessionsSettings
from policies.units import format_duration, human_seconds

Clauses = tuple[tuple[str, str], ...]
"""(verdict, what goes on after "once")."""

_HOLD, _RESUME = SessionVerdict.HOLD.value, SessionVerdict.RESUME.value
_SHUTDOWN, _RECOVER = SessionVerdict.SHUTDOWN.value, SessionVerdict.RECOVER.value
_LOST_AGAIN: Clauses = ((_HOLD, "its connection is lost"),)
_HAS_ANOTHER: Clauses = ((_RECOVER, "it has a session again"),)
_STARTS_AFRESH: Clauses = ((_RESUME, "it has a new session"),)
_IS_BACK: Clauses = ((_RESUME, "it is back in its place"),)


def derive_member_counterfactuals(decision: SessionDecision, settings: SessionsSettings) -> tuple[Otherwise, ...]:
    """What would have to be the case for a member to be told something else."""
    return _said(_OF_MEMBERS[decision.reason](decision, settings))


def derive_bundle_counterfactuals(decision: OwnershipDecision) -> tuple[Otherwise, ...]:
    """What would have to be the case for another ruling on a bundle."""
    return _said(_OF_BUNDLES[decision.reason](decision))


def _said(clauses: Clauses) -> tuple[Otherwise, ...]:
    return tuple(Otherwise(verdict, when) for verdict, when in clauses)


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f" within {human_seconds(seconds)}"


def _when_lost(settings: SessionsSettings) -> str:
    return "reconnect" if settings.on_session_lost is OnSessionLost.RECONNECT else _SHUTDOWN


def _disconnected(decision: SessionDecision, settings: SessionsSettings) -> Clauses:
    left = _left(decision.seconds_left)
    return (_RESUME, f"it reconnects{left}"), (_when_lost(settings), f"it has not reconnected{left}")


def _lost(decision: SessionDecision, settings: SessionsSettings) -> Clauses:
    if decision.verdict is SessionVerdict.SHUTDOWN:
        return _HAS_ANOTHER
    tries = f"has failed {settings.reconnect_limit} times"
    return (*_HAS_ANOTHER, (_SHUTDOWN, f"it has no session{_left(decision.seconds_left)}, or {tries}"))


def _confirming(decision: SessionDecision, _settings: SessionsSettings) -> Clauses:
    if decision.seconds_left is None:
        return (*_IS_BACK, (_SHUTDOWN, "a second reading says the same"))
    wait = human_seconds(decision.seconds_left)
    return (*_HAS_ANOTHER, (_SHUTDOWN, f"{wait} have passed, and not too many others have lost theirs"))


def _fleet_wide(_decision: SessionDecision, settings: SessionsSettings) -> Clauses:
    share = f"{settings.fleet_ratio:.0%}"
    return (*_HAS_ANOTHER, (_SHUTDOWN, f"ZooKeeper can be read, and fewer than {share} of its fleet are without one"))


def _budget(_decision: SessionDecision, settings: SessionsSettings) -> Clauses:
    budget, window = settings.shutdown_budget, format_duration(settings.shutdown_window)
    if budget == 0:
        return (*_IS_BACK, (_SHUTDOWN, "`shutdown_budget` is more than 0"))
    few = "none is down or was" if budget == 1 else f"fewer than {budget} are down or were"
    return (*_IS_BACK, (_SHUTDOWN, f"{few} told to be within {window}"))


def _settling(decision: SessionDecision, _settings: SessionsSettings) -> Clauses:
    stable = human_seconds(decision.seconds_left or 0.0)
    return ((_RECOVER, f"it has kept one session for {stable} more"),)


def _recovering(decision: SessionDecision, _settings: SessionsSettings) -> Clauses:
    if decision.bundle_count == 0:
        return _LOST_AGAIN
    each = "its bundle" if decision.bundle_count == 1 else f"each of its {decision.bundle_count} bundles"
    return ((_RESUME, f"{each} is its own again or given up"),)


def _recovered(_decision: SessionDecision, settings: SessionsSettings) -> Clauses:
    waited = format_duration(settings.load_data_after)
    again = SessionVerdict.REPUBLISH_LOAD_DATA.value
    return (*_LOST_AGAIN, (again, f"it has published no load data for {waited}"))


def _always(clauses: Clauses) -> Callable[[SessionDecision, SessionsSettings], Clauses]:
    return lambda _decision, _settings: clauses


_OF_MEMBERS: Mapping[SessionReason, Callable[[SessionDecision, SessionsSettings], Clauses]] = {
    SessionReason.CONNECTION_LOST: _disconnected,
    SessionReason.RECONNECTED: _always(_LOST_AGAIN),
    SessionReason.SESSION_LOST: _lost,
    SessionReason.CONFIRMING: _confirming,
    SessionReason.STALE_READING: _always((*_IS_BACK, (_SHUTDOWN, "it is read again, and that says the same"))),
    SessionReason.WITHDRAWN: _always(_LOST_AGAIN),
    SessionReason.FLEET_WIDE: _fleet_wide,
    SessionReason.SHUTDOWN_BUDGET: _budget,
    SessionReason.RECONNECT_EXHAUSTED: _always(_HAS_ANOTHER),
    SessionReason.SESSION_REESTABLISHED: _recovering,
    SessionReason.NOT_READY: _always(((_RESUME, "the cluster lists it among its brokers"),)),
    SessionReason.RECOVERED: _recovered,
    SessionReason.UNSETTLED: _settling,
    SessionReason.ZOMBIE: _always(((_RESUME, "it has registered itself again"),)),
    SessionReason.REGISTERED: _always(_LOST_AGAIN),
    SessionReason.UNREACHABLE: _always(_STARTS_AFRESH),
    SessionReason.CLOSED: _always(_STARTS_AFRESH),
    SessionReason.JOINED: _always(_LOST_AGAIN),
    SessionReason.LOAD_DATA_MISSING: _always(((_RESUME, "it has published its load data"),)),
}

_KEEP, _RE_OWN = OwnershipVerdict.KEEP.value, OwnershipVerdict.RE_OWN.value
_UNLOAD = OwnershipVerdict.UNLOAD.value
_FREE: Clauses = ((_RE_OWN, "its node is gone"),)


def _own(decision: OwnershipDecision) -> Clauses:
    return _kept(decision), (_UNLOAD, "it names another member")


def _kept(decision: OwnershipDecision) -> tuple[str, str]:
    session = f"session {decision.session}" if decision.session else "next session"
    return _KEEP, f"its node belongs to the member's {session}"


def _old(decision: OwnershipDecision) -> Clauses:
    if decision.verdict is OwnershipVerdict.WAIT:
        left = _left(decision.seconds_left)
        return (_RE_OWN, f"that node is gone{left}"), (_UNLOAD, f"that node is still there{left}")
    changed = f"its node changes from version {decision.expected_version}"
    return (_KEEP, "the member has replaced its node"), (_UNLOAD, changed)


def _taken(decision: OwnershipDecision) -> Clauses:
    return (*_FREE, _kept(decision))


_OF_BUNDLES: Mapping[OwnershipReason, Callable[[OwnershipDecision], Clauses]] = {
    OwnershipReason.ABSENT: _own,
    OwnershipReason.OWN_SESSION: lambda _: (*_FREE, (_UNLOAD, "its node belongs to another session")),
    OwnershipReason.OLD_SESSION: _old,
    OwnershipReason.OLD_SESSION_PERSISTS: lambda _: _FREE,
    OwnershipReason.OTHER_OWNER: _taken,
    OwnershipReason.DOUBLE_OWNERSHIP: _taken,
    OwnershipReason.NOT_EPHEMERAL: lambda _: ((_RE_OWN, "somebody has removed the node, which no session's end does"),),
    OwnershipReason.UNREADABLE: _own,
    OwnershipReason.UNREAD: _own,
}
