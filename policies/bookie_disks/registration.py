"""Registers the bookie-disks policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.bookie_disks import (
    NAME,
    BookieDisks,
    BookieDisksPolicy,
    BookieDisksSettings,
    BookieDisksState,
    BookieThrottle,
)
from policies.bookie_disks import alerts as named
from policies.bookie_disks.examples import examples
from policies.bookie_disks.publish_events import PublishApplication
from policies.bookie_disks.runbooks import RUNBOOKS
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.decisions import Severity
from policies.policy import AlertKind, Inhibition, PolicyKind, ReportKind, with_runbooks

_ALERTS = (
    AlertKind(named.BELOW_HARD, (Severity.CRITICAL,), "A ledger dir of a bookie is at or below its hard limit."),
    AlertKind(named.BELOW_SOFT, (Severity.WARNING,), "A ledger dir of a bookie is at or below its soft limit."),
    AlertKind(
        named.FILLS_SOON, (Severity.WARNING,), "At its present rate a ledger dir is full within `time_to_full_alert`."
    ),
    AlertKind(
        named.UNREAD,
        (Severity.WARNING, Severity.CRITICAL),
        "A bookie's disks have not been read for `validity`; critical where nothing valid is known of the cluster.",
    ),
    AlertKind(named.READ_ONLY, (Severity.WARNING,), "A bookie is read-only: it takes no new data."),
    AlertKind(
        named.SUSPENDED,
        (Severity.CRITICAL,),
        "A ledger dir is so full that its bookie suspends compaction: deleting data may free no space.",
    ),
    AlertKind(
        named.WITHOUT_EFFECT,
        (Severity.CRITICAL,),
        "Publishing to a placement group has been stopped for minutes, and the ledger dir that decides still fills.",
    ),
    AlertKind(
        named.AT_RISK,
        (Severity.WARNING, Severity.CRITICAL),
        "No more bookies of a placement group than a ledger needs have room above the soft limit; critical if fewer.",
    ),
)

_ONE_DIR = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(named.SUSPENDED, (named.BELOW_HARD, named.BELOW_SOFT, named.FILLS_SOON), _ONE_DIR),
    Inhibition(named.BELOW_HARD, (named.BELOW_SOFT, named.FILLS_SOON), _ONE_DIR),
    Inhibition(named.BELOW_SOFT, (named.FILLS_SOON,), _ONE_DIR),
)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.bookie-disks": (BookieDisks,)},
    shares=(Bookies, BookieRacks, BookieAffinity),
    decisions=(BookieThrottle,),
    alerts=with_runbooks(_ALERTS, RUNBOOKS),
    inhibitions=_INHIBITIONS,
    settings=BookieDisksSettings,
    state=BookieDisksState,
    state_version=1,
    build=BookieDisksPolicy,
    examples=examples,
    reports=(ReportKind(PublishApplication, "the publish actuator"),),
    connectors="connectors.bookie_disks.registration:CONNECTORS",
)
