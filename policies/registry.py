"""The policies there are. A new one is a new module, named here; nothing else changes."""

from policies import isolation, sessions, switching, throttle
from policies.decisions import Alert, Decision
from policies.observations import Reading
from policies.policy import PolicyKind

POLICIES: dict[str, PolicyKind] = {
    kind.name: kind for kind in (throttle.KIND, isolation.KIND, sessions.KIND, switching.KIND)
}
"""By name."""

AUDIT = "audit"
DEAD_LETTERS = "dead-letters"
COMMANDS = "commands"
"""What people ask of policies: read and kept as observations are."""
APPLIED_QUOTAS = "applied.quotas"
"""What the quota actuator must not forget; compacted, keyed by cluster and entity."""


def observed_topics() -> dict[str, str]:
    """From an observed topic (without its prefix) to the one policy it belongs to."""
    return {topic: kind.name for kind in POLICIES.values() for topic in kind.observed}


def topic_of(reading: type[Reading]) -> str:
    """The observed topic (without its prefix) that readings of this kind belong to."""
    return next(topic for kind in POLICIES.values() for topic, kinds in kind.observed.items() if reading in kinds)


def decided_topics() -> tuple[str, ...]:
    """The decided topics (without their prefix), the alerts among them."""
    return tuple(sorted({decision.topic for decision in decision_types()}))


def reading_types() -> tuple[type[Reading], ...]:
    """Every kind of reading a collector may publish."""
    return tuple(reading for kind in POLICIES.values() for reading in kind.readings)


def decision_types() -> tuple[type[Decision], ...]:
    """Every kind of decision there is."""
    return (Alert, *(decision for kind in POLICIES.values() for decision in kind.decisions))
