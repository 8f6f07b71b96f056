"""The registered policies: Headgate's own, named here, and those of installed packages.

A package adds a policy by the entry point group ``headgate.policies``; each entry names a `PolicyKind`.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points

from policies.decisions import Alert, Decision, Standing
from policies.errors import UserError
from policies.isolation.registration import KIND as ISOLATION
from policies.maintenance import PauseCommand
from policies.observations import Reading
from policies.policy import PolicyKind
from policies.sessions.registration import KIND as SESSIONS
from policies.switching.registration import KIND as SWITCHING
from policies.throttle.registration import KIND as THROTTLE

AUDIT = "audit"
DEAD_LETTERS = "dead-letters"
COMMANDS = "commands"
"""What people ask of policies: read and kept as observations are."""
APPLIED_QUOTAS = "applied.quotas"
"""What the quota actuator must not forget; compacted, keyed by cluster and entity."""

TO_EVERY_POLICY: tuple[type[Reading], ...] = (PauseCommand,)
"""What people may ask of any policy, on the topic of commands; the host does it."""

ENTRY_POINTS = "headgate.policies"
"""The group of entry points by which installed packages add policies."""


def registered(own: Iterable[PolicyKind], others: Iterable[EntryPoint]) -> dict[str, PolicyKind]:
    """All policies by name, Headgate's own first.

    Raises:
        UserError: an entry point cannot be loaded or names no policy, or two policies want the same name, topic or
            event type; the message says which, and what to do.
    """
    kinds: dict[str, PolicyKind] = {}
    for kind in (*own, *map(_loaded, sorted(others, key=lambda entry: entry.name))):
        for clash in _clashes(kind, kinds.values()):
            raise UserError(f"policy {kind.name}: {clash}")
        kinds[kind.name] = kind
    return kinds


def _loaded(entry: EntryPoint) -> PolicyKind:
    place = f"entry point {entry.name} = {entry.value} of {ENTRY_POINTS}"
    try:
        kind = entry.load()
    except Exception as error:
        raise UserError(
            f"{place}: it cannot be loaded ({type(error).__name__}: {error}); mend or uninstall the package that has it"
        ) from error
    if not isinstance(kind, PolicyKind):
        raise UserError(f"{place}: it must name a policies.policy.PolicyKind, and names a {type(kind).__name__}")
    return kind


def _clashes(kind: PolicyKind, others: Iterable[PolicyKind]) -> Iterator[str]:
    """What of a policy is another's already, each with what to do."""
    for other in others:
        if kind.name == other.name:
            yield "another policy has this name: give it a name of its own"
        for topic in sorted(kind.observed.keys() & other.observed.keys()):
            yield f"topic {topic} is read by policy {other.name}: a topic is one policy's, name another"
        for event_type in sorted(_event_types(kind) & _event_types(other)):
            yield f"event type {event_type} is one of policy {other.name}: name another"


def _event_types(kind: PolicyKind) -> set[str]:
    return {event.event_type for event in kind.events}


POLICIES: dict[str, PolicyKind] = registered(
    (THROTTLE, ISOLATION, SESSIONS, SWITCHING), entry_points(group=ENTRY_POINTS)
)
"""By name."""


def observed_topics() -> dict[str, str]:
    """From an observed topic (without its prefix) to the one policy it belongs to."""
    return {topic: kind.name for kind in POLICIES.values() for topic in kind.observed}


def topic_of(reading: type[Reading]) -> str:
    """The observed topic (without its prefix) that readings of this kind belong to."""
    if reading in TO_EVERY_POLICY:
        return COMMANDS
    return next(topic for kind in POLICIES.values() for topic, kinds in kind.observed.items() if reading in kinds)


def decided_topics() -> tuple[str, ...]:
    """The decided topics (without their prefix), the alerts among them."""
    return tuple(sorted({decision.topic for decision in decision_types()}))


def reading_types() -> tuple[type[Reading], ...]:
    """Every kind of reading a collector may publish."""
    return (*TO_EVERY_POLICY, *(reading for kind in POLICIES.values() for reading in kind.readings))


def decision_types() -> tuple[type[Decision], ...]:
    """Every kind of decision there is."""
    return (Alert, Standing, *(decision for kind in POLICIES.values() for decision in kind.decisions))
