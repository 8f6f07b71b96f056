"""Registers the throttle policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.decisions import Severity
from policies.policy import AlertKind, Inhibition, PolicyKind, ReportKind, with_runbooks
from policies.throttle import (
    NAME,
    KafkaCluster,
    LogDirs,
    ReplicaSizes,
    ThrottleFactor,
    ThrottlePolicy,
    ThrottleSettings,
    ThrottleState,
    effect,
)
from policies.throttle import alerts as named
from policies.throttle.cordons import CordonApplication
from policies.throttle.examples import examples
from policies.throttle.quota_events import AppliedQuota, QuotaApplication
from policies.throttle.quota_state import QuotaState
from policies.throttle.runbooks import RUNBOOKS

_ALERTS = (
    AlertKind(named.BELOW_HARD, (Severity.CRITICAL,), "A volume is at or below its hard limit: producers should stop."),
    AlertKind(
        named.BELOW_SOFT, (Severity.WARNING,), "A volume is at or below its soft limit: producers should be slowed."
    ),
    AlertKind(
        named.FILLS_SOON, (Severity.WARNING,), "At its present rate a volume is full within `time_to_full_alert`."
    ),
    AlertKind(
        named.UNREAD,
        (Severity.WARNING, Severity.CRITICAL),
        "A broker's log dirs have not been read for `validity`, or never; critical where nothing valid is known of the "
        "cluster.",
    ),
    AlertKind(
        named.LIMITS_CROSS,
        (Severity.WARNING,),
        "On a volume the soft limit is not above the hard one: producers would be stopped without being slowed first.",
    ),
    AlertKind(
        named.FORGOTTEN,
        (Severity.WARNING,),
        "A volume that limited the cluster left it, and its `departed_hold` is over: it no longer counts.",
    ),
    AlertKind(
        effect.ESCAPED,
        (Severity.WARNING, Severity.CRITICAL),
        "Quotas that are more specific than the configured entities are not scaled, so their clients escape; critical "
        "while the factor is 0.",
    ),
    AlertKind(
        effect.CONTESTED,
        (Severity.WARNING,),
        "Somebody else, such as an operator that reconciles it, puts a quota of Headgate's back again and again.",
    ),
    AlertKind(
        effect.WITHOUT_EFFECT,
        (Severity.CRITICAL,),
        "A limiting volume grows more than twice as fast as the quotas let through, for two quota windows.",
    ),
    AlertKind(
        effect.UNKNOWN_ORIGINAL,
        (Severity.WARNING,),
        "Headgate may have set a quota of which no record tells the original: an operator must decide.",
    ),
)

_ONE_VOLUME = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(named.BELOW_HARD, (named.BELOW_SOFT, named.FILLS_SOON, named.LIMITS_CROSS), _ONE_VOLUME),
    Inhibition(named.BELOW_SOFT, (named.FILLS_SOON,), _ONE_VOLUME),
)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.log-dirs": (LogDirs, ReplicaSizes, KafkaCluster), "observed.quotas": (QuotaState,)},
    written_by={QuotaState: "the quota actuator"},
    decisions=(ThrottleFactor,),
    alerts=with_runbooks(_ALERTS, RUNBOOKS),
    inhibitions=_INHIBITIONS,
    settings=ThrottleSettings,
    state=ThrottleState,
    state_version=1,
    build=ThrottlePolicy,
    examples=examples,
    reports=(
        ReportKind(QuotaApplication, "the quota actuator"),
        ReportKind(CordonApplication, "the cordon actuator"),
        ReportKind(AppliedQuota, "the quota actuator", topic="applied.quotas", key="`<cluster>/<entity>`"),
    ),
    connectors="connectors.throttle.registration:CONNECTORS",
)
