"""Registers the isolation policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.isolation import NAME
from policies.isolation import alert_kinds as kinds
from policies.isolation.decisions import BookieQuarantine, Placement, PlacementSummary
from policies.isolation.readings import BookieQuarantined, NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState
from policies.policy import BuiltLate, Inhibition, PolicyKind, ReportKind

_ONE_NAMESPACE = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(kinds.INFEASIBLE, (kinds.HEADROOM,), _ONE_NAMESPACE),
    Inhibition(kinds.LEAK, (kinds.HEADROOM,), _ONE_NAMESPACE),
)


KIND = PolicyKind(
    name=NAME,
    observed={"observed.bookies": (Bookies, BookieRacks, BookieAffinity, NamespacePromise)},
    decisions=(Placement, PlacementSummary, BookieQuarantine),
    alerts=kinds.ALERTS,
    inhibitions=_INHIBITIONS,
    settings=IsolationSettings,
    state=IsolationState,
    state_version=1,
    build=BuiltLate("policies.isolation.policy:IsolationPolicy"),
    written_by={NamespacePromise: "`headgate promise`"},
    reports=(ReportKind(BookieQuarantined, "the quarantine actuator"),),
    connectors="connectors.isolation.registration:CONNECTORS",
)
