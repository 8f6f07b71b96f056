"""Registers the bookie-disks policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.bookie_disks import NAME, BookieDisks, BookieDisksSettings, BookieDisksState, BookieThrottle
from policies.bookie_disks import alerts as kinds
from policies.bookie_disks.readings import PublishApplication, PublishState
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.policy import BuiltLate, Inhibition, PolicyKind, ReportKind

_ONE_DIR = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(kinds.SUSPENDED, (kinds.BELOW_HARD, kinds.BELOW_SOFT, kinds.FILLS_SOON), _ONE_DIR),
    Inhibition(kinds.BELOW_HARD, (kinds.BELOW_SOFT, kinds.FILLS_SOON), _ONE_DIR),
    Inhibition(kinds.BELOW_SOFT, (kinds.FILLS_SOON,), _ONE_DIR),
)


KIND = PolicyKind(
    name=NAME,
    observed={"observed.bookie-disks": (BookieDisks,), "observed.publishing": (PublishState,)},
    written_by={PublishState: "the publish actuator"},
    shares=(Bookies, BookieRacks, BookieAffinity),
    decisions=(BookieThrottle,),
    alerts=kinds.ALERTS,
    inhibitions=_INHIBITIONS,
    settings=BookieDisksSettings,
    state=BookieDisksState,
    state_version=1,
    build=BuiltLate("policies.bookie_disks.policy:BookieDisksPolicy"),
    reports=(ReportKind(PublishApplication, "the publish actuator"),),
    connectors="connectors.bookie_disks.registration:CONNECTORS",
)
