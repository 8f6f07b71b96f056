"""The registered policies: Headgate's own, named here, and those of installed packages.

A package adds a policy by the entry point group ``headgate.policies``; each entry names a `PolicyKind`.
"""

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from policies.bookie_disks.registration import KIND as BOOKIE_DISKS
from policies.decisions import Alert, Decision, Standing
from policies.isolation.registration import KIND as ISOLATION
from policies.observations import ActuatorEvent, Reading
from policies.pauses import PauseCommand
from policies.policy import HOST_ALERT_KINDS, TICKS, TIMERS, AlertKind, PolicyKind, Tick, Timer
from policies.recovery import OpenAlerts
from policies.sessions.registration import KIND as SESSIONS
from policies.settings import PolicySettings
from policies.switching.registration import KIND as SWITCHING
from policies.throttle.registration import KIND as THROTTLE
from policies.units import UserError
from policies.wire import AUDIT_TYPE, DEAD_LETTER_TYPE, DECIDER_TOPIC, LETTERS_COUNTED_TYPE, SHARES_TOPIC

AUDIT = "audit"
DEAD_LETTERS = "dead-letters"
COMMANDS = "commands"
"""The topic of people's commands, which the query reads like observations."""
APPLIED_QUOTAS = "applied.quotas"
"""The topic of the quota actuator's durable state; compacted, keyed by cluster and entity."""

REPORTS = "applied.reports"
"""The topic of the actuators' last report of each result about each target; compacted."""

CORE_TOPICS = frozenset(
    (AUDIT, DEAD_LETTERS, COMMANDS, APPLIED_QUOTAS, REPORTS, TIMERS, TICKS, SHARES_TOPIC, DECIDER_TOPIC)
) | {Alert.topic, Standing.topic}
"""Topics that no policy of a package may read or write as its own."""
CORE_EVENT_TYPES = frozenset({Alert.event_type, Standing.event_type, Timer.event_type, Tick.event_type}) | {
    PauseCommand.event_type,
    OpenAlerts.event_type,
    AUDIT_TYPE,
    DEAD_LETTER_TYPE,
    LETTERS_COUNTED_TYPE,
}

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Kafka accepts 249 characters, the prefix among them."""

ENTRY_POINTS = "headgate.policies"
"""The group of entry points by which installed packages add policies."""


def registered(own: Iterable[PolicyKind], others: Iterable[EntryPoint]) -> dict[str, PolicyKind]:
    """All policies by name, Headgate's own first; raises UserError, which names the policy and the remedy."""
    kinds: dict[str, PolicyKind] = {}
    for kind in own:
        _add(kind, kinds, may_take_commands=True)
    for entry in sorted(others, key=lambda entry: entry.name):
        _add(_load(entry), kinds, may_take_commands=False)
    observed = {reading for kind in kinds.values() for reading in kind.readings}
    for kind in kinds.values():
        for reading in kind.shares:
            if reading not in observed or reading in kind.readings:
                raise UserError(f"policy {kind.name}: no other policy observes {reading.event_type}, which it shares")
    return kinds


def _add(kind: PolicyKind, kinds: dict[str, PolicyKind], *, may_take_commands: bool) -> None:
    allowed = {COMMANDS} if may_take_commands else set()
    for refusal in (*_clashes(kind, kinds.values()), *_flaws(kind, CORE_TOPICS - allowed)):
        raise UserError(f"policy {kind.name}: {refusal}")
    kinds[kind.name] = kind


def _load(entry: EntryPoint) -> PolicyKind:
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
    """Yield a sentence for each name that belongs to another policy, with the remedy."""
    for other in others:
        if kind.name == other.name:
            yield "another policy has this name: give it a name of its own"
        theirs = other.observed.keys() | _decided_topics(other)
        for topic in sorted(theirs & (kind.observed.keys() | _decided_topics(kind))):
            yield f"topic {topic} is policy {other.name}'s: a topic is one policy's, name another"
        for event_type in sorted({event.event_type for event in kind.events} & {e.event_type for e in other.events}):
            yield f"event type {event_type} is one of policy {other.name}: name another"
        if kind.settings is other.settings:
            yield f"its settings, {kind.settings.__name__}, are policy {other.name}'s: give it a class of its own"


def _flaws(kind: PolicyKind, core_topics: AbstractSet[str]) -> Iterator[str]:
    """Yield a sentence for each flaw of the registration itself, with the remedy."""
    if not kind.name or "/" in kind.name:
        yield "a name has at least one character and no `/`, which separates the parts of record keys"
    yield from _topic_flaws(kind, core_topics)
    event_types = [event.event_type for event in kind.events]
    for event_type in sorted({*event_types} & CORE_EVENT_TYPES):
        yield f"event type {event_type} is Headgate's own: name another"
    for event_type in sorted({each for each in event_types if event_types.count(each) > 1}):
        yield f"two of its readings, decisions and reports have event type {event_type}: give each a type of its own"
    for what, base in (("settings", PolicySettings), ("state", Struct)):
        own = getattr(kind, what)
        if not (isinstance(own, type) and issubclass(own, base)):
            yield f"its {what}, {getattr(own, '__name__', own)}, must be a {base.__name__}: make it one"
    for version in range(1, kind.state_version):
        if version not in kind.upgrades:
            yield f"state_version is {kind.state_version}, but upgrades has no step from {version}: add one"


def _topic_flaws(kind: PolicyKind, core_topics: AbstractSet[str]) -> Iterator[str]:
    topics = kind.observed.keys() | _decided_topics(kind)
    for topic in sorted(topics & core_topics):
        yield f"topic {topic} is Headgate's own: name another"
    for topic in sorted(kind.observed.keys() & _decided_topics(kind)):
        yield f"topic {topic} has both its readings and its decisions: name one for each"
    for topic in sorted(topics):
        if not _TOPIC.fullmatch(topic):
            yield f"topic '{topic}' is no name of a Kafka topic: use up to 200 letters, digits, `.`, `_` and `-`"


def _decided_topics(kind: PolicyKind) -> set[str]:
    return {decision.topic for decision in kind.decisions}


POLICIES: dict[str, PolicyKind] = registered(
    (THROTTLE, ISOLATION, SESSIONS, SWITCHING, BOOKIE_DISKS), entry_points(group=ENTRY_POINTS)
)
"""By name."""


def observed_topics() -> dict[str, str]:
    """From an observed topic (without its prefix) to the one policy it belongs to."""
    return {topic: kind.name for kind in POLICIES.values() for topic in kind.observed}


def topic_readers() -> dict[str, tuple[str, ...]]:
    """From an observed topic (without its prefix) to the policies that read it: first its own, then those sharing."""
    return {
        topic: (own.name, *(kind.name for kind in POLICIES.values() if not set(readings).isdisjoint(kind.shares)))
        for own in POLICIES.values()
        for topic, readings in own.observed.items()
    }


@cache
def observed_topic(reading: type[Reading]) -> str:
    """The observed topic (without its prefix) that readings of this kind belong to."""
    if reading in commands():
        return COMMANDS
    return next(topic for kind in POLICIES.values() for topic, kinds in kind.observed.items() if reading in kinds)


def is_collected(reading: type[Reading]) -> bool:
    """Whether collectors publish readings of this kind. People and actuators publish the others, one after another."""
    return reading not in commands() and not any(reading in kind.written_by for kind in POLICIES.values())


def commands() -> dict[type[Reading], str]:
    """From each kind of command that names its policy, on the topic of commands, to the command line that sends it."""
    own = {each: kind.written_by[each] for kind in POLICIES.values() for each in kind.commands}
    return {PauseCommand: "`headgate pause` and `resume`", OpenAlerts: "the query that lost its checkpoint", **own}


def decided_topics() -> tuple[str, ...]:
    """The decided topics (without their prefix), the alerts among them."""
    return tuple(sorted({decision.topic for decision in decision_types()}))


def reading_types() -> tuple[type[Reading], ...]:
    """Every kind of reading a collector may publish."""
    return (*commands(), *(reading for kind in POLICIES.values() for reading in kind.readings))


def decision_types() -> tuple[type[Decision], ...]:
    """Every kind of decision there is."""
    return (Alert, Standing, *(decision for kind in POLICIES.values() for decision in kind.decisions))


def report_policies() -> dict[type[ActuatorEvent], str]:
    """From each kind of report on the audit topic to its policy."""
    kinds = ((report, kind.name) for kind in POLICIES.values() for report in kind.reports)
    return {report.event: name for report, name in kinds if report.topic == AUDIT}


def alert_kind(policy: str, alert: str) -> AlertKind | None:
    """Return the registration of an alert; None if neither the policy nor the host has it."""
    own = POLICIES[policy].alerts if policy in POLICIES else ()
    return next((kind for kind in (*own, *HOST_ALERT_KINDS) if kind.name == alert), None)


def alert_kinds(alert: str) -> Iterator[tuple[str, AlertKind]]:
    """Yield each policy that may raise an alert of this name, with the registration; `any` for the host's own."""
    yield from ((kind.name, each) for kind in POLICIES.values() for each in kind.alerts if each.name == alert)
    yield from (("any", each) for each in HOST_ALERT_KINDS if each.name == alert)
