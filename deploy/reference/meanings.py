"""What each value of a closed set means, in one line. The pages are not made while one is missing, or one too many."""

from collections.abc import Mapping
from enum import StrEnum

from policies.decisions import AlertStatus, Mode, Severity
from policies.observations import Outcome
from policies.throttle.decision import Reason
from policies.throttle.gate import Verdict
from policies.throttle.limits import Hit
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
    known, members = _MEANINGS.get(kind, {}), {member.value for member in kind}
    if known.keys() != members:
        odd = ", ".join(sorted(known.keys() ^ members))
        raise LookupError(f"deploy/reference/meanings.py and {kind.__module__}.{kind.__name__} differ in: {odd}")
    return {member.value: known[member.value] for member in kind}
