"""Runs a tiny scenario of a policy, so that the examples in the references are real output of the code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from policies.observations import ActuatorEvent, Reading
from policies.settings import PolicySettings

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
"""The beginning of every scenario."""


def minutes(count: float) -> datetime:
    """An instant this many minutes after the start."""
    return START + timedelta(minutes=count)


class ExampleReading(NamedTuple):
    """A reading, with its publisher and its time."""

    source: str
    """The CloudEvents ``source``, such as ``headgate/collector/kafka``."""
    id: str
    time: datetime
    reading: Reading


class ExampleReport(NamedTuple):
    """An actuator's report, and its time."""

    id: str
    time: datetime
    event: ActuatorEvent


def make_readings(source: str, *readings: tuple[str, datetime, Reading]) -> Sequence[ExampleReading]:
    """The readings (id, time, reading) of one source."""
    return tuple(ExampleReading(source, id_, time, reading) for id_, time, reading in readings)


def _as_it_comes(event: Mapping[str, Any]) -> int:  # noqa: ARG001 - the first of each kind is shown
    return 0


@dataclass(frozen=True)
class Examples:
    """The scenario of a policy's examples."""

    settings: PolicySettings
    """The policy's settings in the scenario."""
    batches: Sequence[Sequence[ExampleReading]]
    """The readings of each batch of the query, in order; the pages show the first of each kind."""
    later: Sequence[ExampleReading] = ()
    """Readings that the pages show, and that take no part in the scenario."""
    reports: Sequence[ExampleReport] = ()
    """Reports of actuators."""
    block: Mapping[str, Any] = field(default_factory=dict)
    """Values of the policy's block without a default, for the settings page."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The same for the policy's part of a watched cluster."""
    rank: Callable[[Mapping[str, Any]], int] = _as_it_comes
    """Ranks the decisions (as events) of one type; the pages show the one with the least rank."""
    is_latest_shown: bool = False
    """Whether the pages show the last decision of the least rank, instead of the first."""
