"""What each value of a closed set means, in one line. The pages are not made while one is missing, or one too many."""

from collections.abc import Mapping
from enum import StrEnum

from deploy.reference.session_meanings import SESSION_MEANINGS
from deploy.reference.switch_meanings import SWITCH_MEANINGS
from policies.decisions import AlertStatus, Mode, Severity
from policies.isolation.decision import PlacementReason, PlacementVerdict, QuarantineReason, QuarantineVerdict, Tier
from policies.isolation.quarantine_events import QuarantineOutcome
from policies.isolation.settings import Rules
from policies.observations import Outcome
from policies.throttle.decision import Reason
from policies.throttle.gate import Verdict
from policies.throttle.limits import Hit
from policies.throttle.quota_events import QuotaOutcome
from policies.throttle.quota_plan import QuotaReason, QuotaVerdict
from policies.wire import DeadLetterReason

_MEANINGS: Mapping[type[StrEnum], Mapping[str, str]] = {
    Outcome: {
        "ok": "It was read; the values stand in the event.",
        "timeout": "No answer in time.",
        "unreachable": "No connection could be made, or it was lost.",
        "unauthorized": "The login or the permission was refused.",
        "unsupported": "It is too old to tell (a broker before Kafka 3.3 gives no sizes).",
        "error": "Anything else; `detail` says what.",
    },
    Mode: {
        "active": "Actuators may carry it out.",
        "shadow": "It is published only.",
    },
    Severity: {
        "info": "Good to know.",
        "warning": "To be looked at within the day.",
        "critical": "To be looked at now.",
    },
    AlertStatus: {
        "firing": "The condition holds.",
        "resolved": "It held, and has ceased; said exactly once.",
    },
    Verdict: {
        "initial": "Before the first reading: the starting factor.",
        "lower": "The factor goes down, at once.",
        "raise": "The factor goes up.",
        "hold": "It would go up, but must wait: `reason` says for what.",
        "no_change": "It stays; the decision is repeated as a heartbeat, or another reason now stands behind it.",
    },
    Reason: {
        "unlimited": "No limit is set: observed, never throttled.",
        "above_limits": "All volumes that count have more free than their limits.",
        "soft_limit": "A volume is between its soft and its hard limit.",
        "hard_limit": "A volume is at or below its hard limit.",
        "recovery_margin": "A volume that stopped the cluster is not clear of its hard limit by the margin yet.",
        "min_hold": "The factor changed less than `min_hold` ago.",
        "stale_volume": "A volume of a member broker has not been read for `validity`.",
        "no_data": "No volume counts: the fallback applies.",
        "departed_volume": "A volume that limited the cluster left it, and goes on counting for `departed_hold`.",
        "initial": "Nothing has been read yet.",
    },
    Hit: {
        "none": "Neither limit is reached.",
        "soft": "The soft limit.",
        "hard": "The hard limit.",
    },
    QuotaVerdict: {
        "set": "A rate is set, because the cluster is to be slowed down.",
        "restore": "What was there before Headgate is put back: a rate, or none.",
        "keep": "It is as it should be, or (`shadow`, `tighter`) not to be touched.",
        "refuse": "Nothing is done, for the reason given.",
    },
    QuotaReason: {
        "decided": "The decision in force says so.",
        "stale": "The decision in force has expired without a successor: the fallback factor applies.",
        "shadow": "The decision is published only: nothing is set, and what was set is taken back.",
        "released": "Asked for with `headgate act --release`, or the entity is no longer in the settings.",
        "changed_by_hand": "Somebody else changed the quota: their value is what is put back in the end.",
        "missing": "What should have been set was not there: taken away by hand, or never reached Kafka.",
        "tighter": "The quota there is lower than what would be set: throttling never loosens.",
        "no_base": "The entity has neither a `base` nor a quota, so a factor of it is nothing.",
        "fenced": "The decision came after one with a higher sequence, which is in force.",
        "quota_callback": "A broker has a `client.quota.callback.class`: it heeds no quotas.",
        "excluded_user": "An excluded user without a quota of their own would be slowed down.",
    },
    QuotaOutcome: {
        "applied": "Kafka has taken it.",
        "unchanged": "Nothing had to be done; said when it is new.",
        "refused": "Nothing was done, on purpose; said when it is new.",
        "failed": "Kafka did not do as asked; `detail` says why, and it is tried again.",
    },
    QuarantineOutcome: {
        "done": "It is in the quarantine group now.",
        "already_assigned": "It is in a group, by whoever's hand: nothing was touched.",
        "not_registered": "It is gone, or has registered anew since the decision.",
        "too_many": "The group holds `max_quarantined` bookies already.",
        "no_groups": "The cluster has no groups: a first one would constrain every namespace.",
        "superseded": "A decision with a higher sequence is in force.",
        "expired": "The decision is past its `valid_until`.",
        "shadow": "The decision is published only: nothing is done.",
        "failed": "Not possible now, `detail` says why; tried again until the decision expires.",
    },
    Rules: {
        "legacy": "Pulsar up to 2.10: bookies without a group are always eligible.",
        "current": "Pulsar from 2.11 on: bookies without a group when the namespace's groups do not suffice.",
        "strict": "The proposal: never bookies without a group.",
    },
    Tier: {
        "primary": "Its primary groups suffice.",
        "secondary": "It needs its secondary groups, too.",
        "unassigned": "It needs bookies without a group.",
        "none": "Not even all it may use suffice.",
    },
    PlacementVerdict: {
        "isolated": "It keeps to its primary groups (or, without affinity, to bookies without a group).",
        "spills_to_secondary": "Its primary groups do not suffice: others that it was promised serve, too.",
        "leaks": "It may use bookies that the promise forbids.",
        "infeasible": "It may use fewer bookies than a ledger needs.",
        "unconstrained": "Brokers exclude no bookie for it.",
    },
    PlacementReason: {
        "primary_suffices": "Its primary groups have enough writable bookies.",
        "primary_short": "Its primary groups have too few writable bookies.",
        "unassigned_eligible": "The cluster's rules let it use bookies without a group, which the promise forbids.",
        "too_few_bookies": "All it may use are fewer than a ledger needs.",
        "no_affinity": "It names no primary group.",
        "any_group": "Its primary group is `*`.",
        "no_groups": "The cluster has no groups.",
        "ungrouped_only": "It has no affinity, and `unaffine` is `ungrouped`: bookies without a group, and no others.",
    },
    QuarantineVerdict: {
        "quarantine": "To be put into the quarantine group, if it is still in none.",
        "withhold": "It should be, and a guard forbids it: for a person to decide.",
        "lift": "Nothing is to be done about it any more; nobody takes it out of a group.",
    },
    QuarantineReason: {
        "unassigned": "It has been in no group for `grace`.",
        "max_quarantined": "As many as `max_quarantined` allows are in quarantine, or on their way there.",
        "would_be_infeasible": "A namespace could not place its data without it.",
        "no_groups": "The cluster has no groups, and the first would constrain every namespace.",
        "assigned": "Somebody put it into a group.",
        "gone": "It is no longer registered.",
        "switched_off": "Quarantine was switched off.",
    },
    DeadLetterReason: {
        "too_large": "Larger than any event may be; not read.",
        "malformed": "No JSON, or not the envelope of a CloudEvent.",
        "unknown_type": "An event, but of a type that nothing here reads.",
        "invalid": "The data does not fit its type.",
        "cluster_mismatch": "The cluster it names is not the one it was routed by.",
    },
}


def meanings(kind: type[StrEnum]) -> Mapping[str, str]:
    """Of each member of a closed set, in its order.

    Raises:
        LookupError: what stands here is not what the set has; the message says which.
    """
    known = _MEANINGS.get(kind) or SESSION_MEANINGS.get(kind) or SWITCH_MEANINGS.get(kind) or {}
    members = {member.value for member in kind}
    if known.keys() != members:
        odd = ", ".join(sorted(known.keys() ^ members))
        raise LookupError(f"deploy/reference/meanings.py and {kind.__module__}.{kind.__name__} differ in: {odd}")
    return {member.value: known[member.value] for member in kind}
