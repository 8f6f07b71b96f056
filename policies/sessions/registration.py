"""Registers the sessions policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.decisions import Severity
from policies.policy import AlertKind, Inhibition, PolicyKind, ReportKind, with_runbooks
from policies.sessions import (
    NAME,
    MemberHealth,
    Ownership,
    OwnershipDecision,
    Ownerships,
    Recovery,
    SessionDecision,
    SessionsPolicy,
    SessionsSettings,
    SessionsState,
    ZkSession,
)
from policies.sessions import alerts as named
from policies.sessions.examples import examples
from policies.sessions.runbooks import RUNBOOKS
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded

_ALERTS = (
    AlertKind(named.LOST, (Severity.WARNING,), "A member has no ZooKeeper session."),
    AlertKind(
        named.FLEET_WIDE, (Severity.CRITICAL,), "Many members of a role have lost their sessions, and not recovered."
    ),
    AlertKind(
        named.NOT_REGISTERED,
        (Severity.WARNING,),
        "The health endpoint of a member answers healthy, but it is not registered.",
    ),
    AlertKind(named.ZOMBIE, (Severity.CRITICAL,), "A healthy member has not been registered for `zombie_after`."),
    AlertKind(named.EXHAUSTED, (Severity.CRITICAL,), "A member cannot reconnect, and was not told to shut down."),
    AlertKind(named.FLAPPING, (Severity.WARNING,), "A member loses its session again and again within `settle`."),
    AlertKind(named.DOUBLE, (Severity.CRITICAL,), "Two members claim one bundle."),
    AlertKind(named.ORPHAN, (Severity.WARNING,), "A bundle has had no owner for `orphan_after`."),
    AlertKind(
        named.NOT_EPHEMERAL, (Severity.WARNING,), "A bundle's node is not ephemeral, so it outlives every session."
    ),
    AlertKind(named.LOAD_DATA, (Severity.WARNING,), "A member has its bundles again, but publishes no load data."),
    AlertKind(named.UNREAD, (Severity.WARNING,), "ZooKeeper cannot be read; that is no loss of sessions."),
)

_INHIBITIONS = (
    # Members that lost their sessions together have one cause, and the alerts about single members do not show it.
    Inhibition(named.FLEET_WIDE, (named.LOST, named.ZOMBIE, named.EXHAUSTED, named.ORPHAN, named.LOAD_DATA)),
    Inhibition(named.EXHAUSTED, (named.LOST, named.ZOMBIE), ("cluster", "subject")),
    Inhibition(named.ZOMBIE, (named.LOST,), ("cluster", "subject")),
)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.sessions": (ZkSession, Ownership, Ownerships, Recovery, MemberHealth)},
    decisions=(SessionDecision, OwnershipDecision),
    alerts=with_runbooks(_ALERTS, RUNBOOKS),
    inhibitions=_INHIBITIONS,
    settings=SessionsSettings,
    state=SessionsState,
    state_version=1,
    build=SessionsPolicy,
    examples=examples,
    reports=(ReportKind(BundleUnloaded, "the unload actuator"), ReportKind(BundleReOwned, "the unload actuator")),
    connectors="connectors.sessions.registration:CONNECTORS",
)
