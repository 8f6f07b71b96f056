"""The interface of a policy: a pure step from state and observations to decisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from policies.actuator_events import ActuatorEvent
from policies.decisions import Decision, Severity
from policies.examples import Examples
from policies.observations import Observation, Reading
from policies.settings import PolicySettings

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """What one step gives."""

    state: State
    decisions: tuple[Decision, ...]
    """For the decided topics, and the audit."""
    wake_at: datetime | None
    """Call again by then, even without observations."""
    notes: tuple[Decision, ...] = field(default=())
    """Verdicts that changed nothing, when they first appear: for the audit alone."""
    encode: Callable[[], bytes] | None = field(default=None, compare=False)
    """Gives the state as msgpack, where the policy has parts of it at hand; the same as encoding it would give."""


class Policy(Protocol[State]):
    """Decides for one cluster.

    `step` is total: any sequence of valid observations, in any order, with duplicates, gives a step and never an
    exception. `now` never goes backwards.
    """

    name: str

    def step(self, state: State | None, observations: Sequence[Observation], now: datetime) -> Step[State]:
        """Take what was observed since the last step and decide, as of `now`."""
        ...


@dataclass(frozen=True, slots=True)
class AlertKind:
    """An alert that a policy may raise."""

    name: str
    """As in ``Alert.alert``: ``volume-below-hard-limit``."""
    severities: tuple[Severity, ...]
    meaning: str
    """What is the case while it fires, in one sentence."""


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While one alert fires, others are its effects: whoever is paged for the cause needs no page for them."""

    cause: str
    """An alert's name."""
    effects: tuple[str, ...]
    """Names of alerts of the same policy."""
    same: tuple[str, ...] = ("cluster",)
    """What both must be about: `cluster`, or `cluster` and `subject`."""


@dataclass(frozen=True, slots=True)
class ReportKind:
    """What an actuator says of decisions it carried out, or could not."""

    event: type[ActuatorEvent]
    written_by: str
    """``the quota actuator``."""
    topic: str = "audit"
    """Without its prefix."""
    key: str = "the cluster's name"
    """What the record's key is, for the references."""


@dataclass(frozen=True)
class PolicyKind:
    """A registered policy: what it is in every room. All that the rooms above need to host it, without knowing it."""

    name: str
    observed: Mapping[str, tuple[type[Reading], ...]]
    """What it reads from which topic (without its prefix, such as ``observed.log-dirs``). A topic is one policy's."""
    decisions: tuple[type[Decision], ...]
    """Without alerts, which every policy may raise."""
    alerts: tuple[AlertKind, ...]
    settings: type[PolicySettings]
    state: type[Any]
    """A msgspec struct."""
    state_version: int
    """Of `state` as written today."""
    build: Callable[[str, Any], Policy[Any]]
    """From a cluster's name and its settings to the policy that decides for it."""
    examples: Callable[[], Examples]
    """One of every event it has to do with, for the references."""
    inhibitions: tuple[Inhibition, ...] = ()
    """Which alerts explain which, for whoever notifies people."""
    reports: tuple[ReportKind, ...] = ()
    """What its actuators say."""
    written_by: Mapping[type[Reading], str] = field(default_factory=dict)
    """Who writes a kind of reading, where that is not a collector: ```headgate switch```."""
    paused_by: str | None = None
    """The command that pauses it, where that is its own business; None: `headgate pause`."""
    upgrades: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    """From a version to the next, on the state's plain form (lists, numbers, strings)."""
    connectors: str | None = None
    """Where its part with I/O is declared, as ``module:attribute`` of a `connectors.registration.PolicyConnectors`: a
    name, not an import, because policies are pure. None: it has none."""

    @cached_property
    def readings(self) -> tuple[type[Reading], ...]:
        """Every kind of reading it takes, from whichever topic."""
        return tuple(reading for readings in self.observed.values() for reading in readings)

    @property
    def events(self) -> tuple[type[Reading] | type[Decision] | type[ActuatorEvent], ...]:
        """Every kind of event that is its own: observed, decided, and what its actuators say."""
        return (*self.readings, *self.decisions, *(report.event for report in self.reports))
