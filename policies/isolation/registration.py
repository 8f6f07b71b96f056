"""Registers the isolation policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.decisions import Severity
from policies.isolation import (
    NAME,
    BookieQuarantine,
    IsolationPolicy,
    IsolationSettings,
    IsolationState,
    NamespacePromise,
    Placement,
    PlacementSummary,
)
from policies.isolation.alerts import context as named
from policies.isolation.examples import examples
from policies.isolation.quarantine_events import BookieQuarantined
from policies.isolation.runbooks import RUNBOOKS
from policies.policy import AlertKind, Inhibition, PolicyKind, ReportKind, with_runbooks

_ALERTS = (
    AlertKind(
        named.UNASSIGNED,
        (Severity.WARNING, Severity.CRITICAL),
        "A writable bookie is in no group; critical while isolated namespaces can place data on it.",
    ),
    AlertKind(named.IDLE, (Severity.INFO,), "A bookie that is read-only or not registered is in no group."),
    AlertKind(
        named.MISSING, (Severity.WARNING,), "A bookie of a group has not been registered for `member_missing_after`."
    ),
    AlertKind(named.LEAK, (Severity.CRITICAL,), "A namespace may place data on bookies that the promise forbids."),
    AlertKind(named.INFEASIBLE, (Severity.CRITICAL,), "A namespace may use fewer bookies than a ledger needs."),
    AlertKind(named.HEADROOM, (Severity.WARNING,), "If one more bookie is lost, a namespace needs the next tier."),
    AlertKind(named.UNREAD, (Severity.WARNING,), "Bookies, groups or affinity have not been read for `validity`."),
    AlertKind(
        named.UNCONFIRMED,
        (Severity.WARNING,),
        "Most bookies, members of a group, or namespaces were missing from one reading. The one before counts until a "
        "second reading confirms it.",
    ),
    AlertKind(
        named.DISAGREE,
        (Severity.WARNING,),
        "Two collectors publish readings of one cluster that contradict each other. What was confirmed last counts.",
    ),
    AlertKind(
        named.NO_GROUPS,
        (Severity.INFO, Severity.CRITICAL),
        "The cluster puts no bookie into a group; critical while namespaces ask for groups.",
    ),
    AlertKind(
        named.JOINED,
        (Severity.INFO,),
        "A bookie that an operator had put into a group in advance has joined for the first time.",
    ),
    AlertKind(named.OVERDUE, (Severity.WARNING,), "A decision to quarantine a bookie has not been carried out."),
)

_ONE_NAMESPACE = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(named.INFEASIBLE, (named.HEADROOM,), _ONE_NAMESPACE),
    Inhibition(named.LEAK, (named.HEADROOM,), _ONE_NAMESPACE),
)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.bookies": (Bookies, BookieRacks, BookieAffinity, NamespacePromise)},
    decisions=(Placement, PlacementSummary, BookieQuarantine),
    alerts=with_runbooks(_ALERTS, RUNBOOKS),
    inhibitions=_INHIBITIONS,
    settings=IsolationSettings,
    state=IsolationState,
    state_version=1,
    build=IsolationPolicy,
    examples=examples,
    written_by={NamespacePromise: "`headgate promise`"},
    reports=(ReportKind(BookieQuarantined, "the quarantine actuator"),),
    connectors="connectors.isolation.registration:CONNECTORS",
)
