"""Registers the throttle policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.policy import BuiltLate, Inhibition, PolicyKind, ReportKind
from policies.throttle import NAME, KafkaCluster, LogDirs, ReplicaSizes, ThrottleFactor, ThrottleSettings, ThrottleState
from policies.throttle import alerts as kinds
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.throttle.quotas import QuotaState
from policies.throttle.readings import AppliedQuota, QuotaApplication

_ONE_VOLUME = ("cluster", "subject")
_INHIBITIONS = (
    Inhibition(kinds.BELOW_HARD, (kinds.BELOW_SOFT, kinds.FILLS_SOON, kinds.LIMITS_CROSS), _ONE_VOLUME),
    Inhibition(kinds.BELOW_SOFT, (kinds.FILLS_SOON,), _ONE_VOLUME),
    Inhibition(kinds.OFFLINE, (kinds.FILLS_SOON,), _ONE_VOLUME),
    Inhibition(kinds.REPLACED, (kinds.UNREAD,)),
)


KIND = PolicyKind(
    name=NAME,
    observed={"observed.log-dirs": (LogDirs, ReplicaSizes, KafkaCluster), "observed.quotas": (QuotaState,)},
    commands=(ForgetCommand, AdoptCommand),
    written_by={QuotaState: "the quota actuator", ForgetCommand: "`headgate forget`", AdoptCommand: "`headgate adopt`"},
    decisions=(ThrottleFactor,),
    alerts=kinds.ALERTS,
    inhibitions=_INHIBITIONS,
    settings=ThrottleSettings,
    state=ThrottleState,
    state_version=1,
    build=BuiltLate("policies.throttle.policy:ThrottlePolicy"),
    reports=(
        ReportKind(QuotaApplication, "the quota actuator"),
        ReportKind(AppliedQuota, "the quota actuator", topic="applied.quotas", key="`<cluster>/<entity>`"),
    ),
    connectors="connectors.throttle.registration:CONNECTORS",
)
