"""The interface of a policy: a pure step from state and observations to decisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib import import_module
from shlex import quote
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from policies.book import Step
from policies.decisions import Decision, Severity, deterministic_id
from policies.observations import ActuatorEvent, Observation, Reading
from policies.settings import PolicySettings
from policies.units import AnyInstant, ClosedEnum, to_millis
from policies.wire import encode_event

State = TypeVar("State")


class Policy(Protocol[State]):
    """Decides for one cluster.

    `step` is total: any sequence of valid observations, in any order, with duplicates, gives a step and never an
    exception. `now` never goes backwards.
    """

    name: str

    def step(self, state: State | None, observations: Sequence[Observation], now: datetime) -> Step[State]:
        """Decide as of `now` (UTC) on the observations since the last step, in any order; the first has no state."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltLate:
    """Builds a policy whose class is named as ``module:class``, and imports it only where it decides."""

    place: str

    def __call__(self, cluster: str, settings: PolicySettings) -> Policy[Any]:
        """Build the policy for one cluster."""
        module, _, name = self.place.partition(":")
        policy: Policy[Any] = getattr(import_module(module), name)(cluster, settings)
        return policy


class _Words(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper()


@dataclass(frozen=True, slots=True)
class AlertKind:
    """An alert that a policy may raise, with its runbook, which is empty if the meaning says all."""

    name: str
    """The value of ``Alert.alert``, such as ``volume-below-hard-limit``."""
    severities: tuple[Severity, ...]
    meaning: str
    """The condition under which it fires, in one sentence."""
    verify: str = ""
    """A command for a shell, in which ``{cluster}`` and ``{subject}`` stand for those of the alert."""
    remedy: str = ""
    """What an operator does about it, in sentences."""
    ends: str = ""
    """When the alert ends, in one sentence."""
    commands: tuple[str, ...] = ()
    """Lines for a shell that carry `remedy` out. A name in braces stands for a label of the alert, for `cluster`,
    `subject`, the `servers` of the watched Kafka, or a decision's `runbook_values`."""
    many: str = ""
    """What one alert says of many things, after their number: `bookies of {cluster} are read-only`. Empty: each has an
    alert of its own."""

    def lines(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return `commands` for these values, quoted for a shell; a name without a value stays, in capitals."""
        words = _Words((name, quote(value)) for name, value in values.items())
        return tuple(line.format_map(words) for line in self.commands)

    def command(self, cluster: str, subject: str) -> str:
        """Return the command to verify one alert, quoted for a shell; empty without a runbook."""
        return self.verify.format(cluster=quote(cluster), subject=quote(subject))


@dataclass(frozen=True, slots=True)
class Inhibition:
    """An Alertmanager inhibition: while the cause fires, its effects need not notify anybody."""

    cause: str
    """Name of the alert that is the cause."""
    effects: tuple[str, ...]
    """Names of the alerts that are its effects, of the same policy."""
    same: tuple[str, ...] = ("cluster",)
    """Labels that must be equal in both alerts: `cluster`, or `cluster` and `subject`."""


@dataclass(frozen=True, slots=True)
class ReportKind:
    """A kind of event that an actuator publishes about decisions it carried out, or could not."""

    event: type[ActuatorEvent]
    written_by: str
    """The writer in words, such as ``the quota actuator``, for the references."""
    topic: str = "audit"
    """The topic, without its prefix."""
    key: str = "the cluster's name"
    """The record's key in words, for the references."""


@dataclass(frozen=True)
class PolicyKind:
    """The registration of a policy: all that query, replay, exporter, actuators and references need to host it."""

    name: str
    observed: Mapping[str, tuple[type[Reading], ...]]
    """Kinds of readings by topic (without prefix, such as ``observed.log-dirs``). Policies do not share topics."""
    decisions: tuple[type[Decision], ...]
    """Kinds of decisions, except `Alert`, which every policy may publish."""
    alerts: tuple[AlertKind, ...]
    settings: type[PolicySettings]
    state: type[Any]
    """The type of its state: a msgspec struct."""
    state_version: int
    """The present version of `state`; see `upgrades`."""
    build: Callable[[str, Any], Policy[Any]]
    """Builds the policy for one cluster, from the cluster's name and its settings: a class, or `BuiltLate`."""
    inhibitions: tuple[Inhibition, ...] = ()
    """Alerts that explain other alerts, for Alertmanager's configuration."""
    reports: tuple[ReportKind, ...] = ()
    """Kinds of events that its actuators publish."""
    shares: tuple[type[Reading], ...] = ()
    """Readings of other policies that it takes, too. A policy does not watch a cluster because of these alone."""
    commands: tuple[type[Reading], ...] = ()
    """People's commands to it, on the topic of commands. Each has a field `policy`, which routes it."""
    written_by: Mapping[type[Reading], str] = field(default_factory=dict)
    """The writer of a kind of reading that is not a collector, such as ```headgate switch```."""
    most_step_bytes: int | None = None
    """A step takes readings of one partition up to this size; None: `streaming.transition.MOST_BYTES`."""
    paused_by: str | None = None
    """The policy's own command that pauses it; None: `headgate pause` does."""
    upgrades: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    """By version: upgrades a state of that version, decoded to lists, numbers and strings, to the next version."""
    limit_instants: Callable[[Any, int], Any] | None = None
    """After the clock was set back: returns the state to keep, in which nothing happened later than the given
    time. None: the policy begins again, because the next readings are sufficient."""
    connectors: str | None = None
    """Its I/O: ``module:attribute`` of a `connectors.registration.PolicyConnectors`. A name and not an import, because
    policies are pure. None: it has none."""

    @cached_property
    def readings(self) -> tuple[type[Reading], ...]:
        """All kinds of readings, of all its topics."""
        return tuple(reading for readings in self.observed.values() for reading in readings)

    @cached_property
    def many(self) -> dict[str, str]:
        """The alerts of which many things have one together, each with `AlertKind.many`."""
        return {kind.name: kind.many for kind in self.alerts if kind.many}

    @cached_property
    def takes(self) -> tuple[type[Reading], ...]:
        """All kinds of readings by which it is stepped."""
        return (*self.readings, *self.shares, *self.commands)

    @property
    def events(self) -> tuple[type[Reading] | type[Decision] | type[ActuatorEvent], ...]:
        """All kinds of its own events: readings, decisions, and reports of its actuators."""
        return (*self.readings, *self.commands, *self.decisions, *(report.event for report in self.reports))


# The alerts that the host raises about any policy, not about what the policy watches.

POLICY_FAILED = "policy-failed"
"""The alert about a policy that raised an exception."""
READINGS_REFUSED = "readings-refused"
"""The alert about readings beyond the bounds of one policy and cluster."""
TWO_LOOPS_DECIDE = "two-loops-decide"
"""The alert about a second loop on the same topics."""
TOPIC_UNUSABLE = "topic-unusable"
"""The alert about a topic of the loop that is missing or set up in another way."""
LOOP = "headgate-loop"
"""Stands for the cluster in alerts about the loop itself; no watched cluster has this name."""

HOST_ALERT_KINDS = (
    AlertKind(
        POLICY_FAILED,
        (Severity.CRITICAL,),
        "For this cluster the policy raised an error, or its decisions exceed the size of a record. If single readings "
        "are the cause, they are refused, the policy goes on without them, and the alert ends 10 min after the last "
        "one. Otherwise its last decisions stay in force, its input goes to the dead letters, and it is retried. Other "
        "clusters are not affected.",
        "headgate alerts",
        "The summary has the error and its place. Report it with the dead letters of the cluster (reason "
        "`policy-failed`). If the values that are set are wrong meanwhile, the command puts those from before back.",
        "The policy has stepped without an error, or 10 min after the last refused reading.",
        ("headgate pause {policy} {cluster} --release --yes",),
    ),
    AlertKind(
        READINGS_REFUSED,
        (Severity.WARNING,),
        "Readings of this cluster exceed a bound of the policy: too many at once, or more brokers, volumes, members or "
        "nodes than a cluster may have (docs/operating.md). They are in the dead letters as `too-many`. Somebody "
        "floods or forges them, or a collector is out of order. It ends 10 min after the last one.",
        "headgate alerts",
        "Look at the dead letters of the cluster (reason `too-many`): their source names the collector. Stop it, "
        "or take away its right to write.",
        "10 min after the last refused reading.",
    ),
    AlertKind(
        TWO_LOOPS_DECIDE,
        (Severity.CRITICAL,),
        "Processes with different checkpoints are started to decide on the same topics (`topics.prefix`), such as a "
        "second host with copied settings and another `data_dir`. One of them decides. When it ends, another one "
        "continues from another state: holds, trends and a switch under way begin anew.",
        "headgate doctor",
        "Stop the process that does not belong there; the summary names the hosts. A loop of its own needs another "
        "`topics.prefix`. A stand-by needs the same `stream.checkpoint_dir` on a shared file system.",
        "All processes of the group have the same checkpoint.",
    ),
    AlertKind(
        TOPIC_UNUSABLE,
        (Severity.CRITICAL,),
        "A topic of the loop is missing, or its `cleanup.policy` or `message.timestamp.type` is another one. A decided "
        "topic that deletes by age forgets what holds; without `audit` the query makes no progress.",
        "headgate topics check",
        "Run the command in the summary.",
        "The topic is as planned.",
    ),
)

HOST_ALERTS: Mapping[str, Severity] = MappingProxyType({kind.name: kind.severities[0] for kind in HOST_ALERT_KINDS})
"""Their severities by name."""


# How timers fire without records: the query publishes each timer, and a follower appends a tick when it is due.
#
# The query runs no micro-batch without records, so a timer of a silent cluster would never fire. So each timer it
# sets is published to a compacted topic; a follower of that topic appends a tick to a topic that the query reads,
# when the timer is due. A tick only causes a batch; which timers fire is decided by the query's own state and clock. So
# a forged tick costs one batch and changes no decision, and a lost one delays a timer until the next.

TIMERS = "timers"
"""The topic (without its prefix) of timers; keyed by a digest of policy and cluster, the latest is the earliest due."""
TICKS = "ticks"
"""The topic (without its prefix) of ticks."""


class TickReason(ClosedEnum):
    """Why a tick was appended."""

    START = "start", "The query is being started: timers may have come due while it was away."
    TIMER = "timer", "A timer is due."
    SILENCE = "silence", "No micro-batch for a while: one shows that the query lives, and fires lost timers."


class Timer(BaseModel):
    """A timer of the query: it steps the cluster at `due_at`, even without a reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.timer.v1"

    policy: str = Field(description="The policy of the timer.")
    due_at: AnyInstant = Field(description="When it fires.")


class Tick(BaseModel):
    """Makes the query run a micro-batch, in which every timer fires that is due."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.tick.v1"

    reason: TickReason = Field(description="Why it was appended.")


def timer_record(policy: str, cluster: str, due_at: datetime, *, now: datetime) -> tuple[str, bytes]:
    """Return a timer's key, short however long a name is, and its event; a repeated batch gives the same bytes."""
    key = deterministic_id(TIMERS, policy, cluster)
    timer, id_ = Timer(policy=policy, due_at=due_at), f"{key}/{to_millis(due_at)}"
    return key, encode_event(Timer.event_type, id_, "headgate/query", TIMERS, now, timer)
