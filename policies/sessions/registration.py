"""Registers the sessions policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.policy import BuiltLate, Inhibition, PolicyKind, ReportKind
from policies.sessions import (
    NAME,
    MemberHealth,
    Ownership,
    OwnershipDecision,
    Ownerships,
    Recovery,
    SessionDecision,
    SessionsSettings,
    SessionsState,
    ZkSession,
)
from policies.sessions import alert_kinds as kinds
from policies.sessions.readings import BundleReOwned, BundleUnloaded

_INHIBITIONS = (
    # Members that lost their sessions together have one cause, and the alerts about single members do not show it.
    Inhibition(kinds.FLEET_WIDE, (kinds.LOST, kinds.ZOMBIE, kinds.EXHAUSTED, kinds.ORPHAN, kinds.LOAD_DATA)),
    Inhibition(kinds.EXHAUSTED, (kinds.LOST, kinds.ZOMBIE), ("cluster", "subject")),
    Inhibition(kinds.ZOMBIE, (kinds.LOST,), ("cluster", "subject")),
)


KIND = PolicyKind(
    name=NAME,
    observed={"observed.sessions": (ZkSession, Ownership, Ownerships, Recovery, MemberHealth)},
    decisions=(SessionDecision, OwnershipDecision),
    alerts=kinds.ALERTS,
    inhibitions=_INHIBITIONS,
    settings=SessionsSettings,
    state=SessionsState,
    state_version=1,
    build=BuiltLate("policies.sessions.policy:SessionsPolicy"),
    written_by={Recovery: "a member that reports its recovery"},
    reports=(ReportKind(BundleUnloaded, "the unload actuator"), ReportKind(BundleReOwned, "the unload actuator")),
    connectors="connectors.sessions.registration:CONNECTORS",
)
