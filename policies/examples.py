"""Runs a tiny scenario of a policy, so that the examples in the references are real output of the code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from policies.actuator_events import ActuatorEvent
from policies.observations import Reading
from policies.settings import PolicySettings

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
"""When every scenario begins."""


def minutes(count: float) -> datetime:
    """So many minutes after the start."""
    return START + timedelta(minutes=count)


class ExampleReading(NamedTuple):
    """A reading, by whom and when it was published."""

    source: str
    """The CloudEvents ``source``, such as ``headgate/collector/kafka``."""
    id: str
    time: datetime
    reading: Reading


class ExampleReport(NamedTuple):
    """What an actuator said, and when."""

    id: str
    time: datetime
    event: ActuatorEvent


def by(source: str, *readings: tuple[str, datetime, Reading]) -> Sequence[ExampleReading]:
    """Readings (id, time, what) of one source."""
    return tuple(ExampleReading(source, id_, time, reading) for id_, time, reading in readings)


def _as_it_comes(event: Mapping[str, Any]) -> int:  # noqa: ARG001 - the first of each kind is shown
    return 0


@dataclass(frozen=True)
class Examples:
    """The scenario."""

    settings: PolicySettings
    """Those in force in it."""
    batches: Sequence[Sequence[ExampleReading]]
    """What is read, one batch of the query after the other; the pages show the first of each kind."""
    later: Sequence[ExampleReading] = ()
    """Readings that are shown, and decide nothing here."""
    reports: Sequence[ExampleReport] = ()
    """What actuators said."""
    block: Mapping[str, Any] = field(default_factory=dict)
    """For the settings page: values of the policy's block that have no default."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The same, of its part of a watched cluster."""
    rank: Callable[[Mapping[str, Any]], int] = _as_it_comes
    """Of decisions (as events) of one type the one of least rank is shown."""
    is_latest_shown: bool = False
    """Whether of decisions of one rank the last is shown instead of the first."""
