"""Metrics of the values that actuators have set, and of pauses."""

from collections.abc import Iterator

from connectors.views.metric_families import Family, Sample
from policies.effects import InForce

EFFECT_VALUE = Family(
    "headgate_in_force_value",
    "The value that an actuator has set for a target, by its reports: bytes a second and broker for quotas.",
    ("policy", "cluster", "target"),
)
EFFECT_SINCE = Family(
    "headgate_in_force_since_timestamp_seconds", "When that value was set.", ("policy", "cluster", "target")
)
EFFECT_FAILING = Family(
    "headgate_in_force_failing_since_timestamp_seconds",
    "Since when an actuator has failed to carry a decision out; absent if none fails.",
    ("policy", "cluster"),
)
PAUSED_UNTIL = Family(
    "headgate_paused_until_timestamp_seconds",
    "When the pause of a policy ends; absent if it acts.",
    ("policy", "cluster"),
)
EFFECTS = (EFFECT_VALUE, EFFECT_SINCE, EFFECT_FAILING, PAUSED_UNTIL)
MOST_TARGETS = 50
"""Limit of the targets of one policy and cluster that have series of their own."""


def effect_samples(each: InForce) -> Iterator[Sample]:
    """Yield the samples of one policy and cluster."""
    about = (each.policy, each.cluster)
    for effect in [effect for effect in each.effects if effect.is_held][:MOST_TARGETS]:
        if effect.number is not None:
            yield Sample(EFFECT_VALUE, (*about, effect.target), effect.number)
        if effect.since is not None:
            yield Sample(EFFECT_SINCE, (*about, effect.target), effect.since.timestamp())
    if each.failing_since is not None:
        yield Sample(EFFECT_FAILING, about, each.failing_since.timestamp())
    if each.pause is not None and each.pause.quiet_until is not None:
        yield Sample(PAUSED_UNTIL, about, each.pause.quiet_until.timestamp())
