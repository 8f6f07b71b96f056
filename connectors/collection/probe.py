"""One check of a connected system: whether Headgate has the rights there that the settings need.

A check changes nothing. Policies yield checks for their actuators (`PolicyConnectors.probes`). Collectors need none,
because their readings show missing rights.
"""

from collections.abc import Callable
from dataclasses import dataclass

from policies.observations import Outcome


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a check."""

    outcome: Outcome
    detail: str
    """A few words, without a secret."""
    remedies: tuple[str, ...] = ()
    """Remedies: sentences, or command lines of other tools."""
    seconds: float | None = None
    """The duration, if it is less than that of the whole check."""
    is_open: bool = False
    """Whether it works, and others may do more there than they should."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A check. It may block; an exception that it raises is reported as a fault of ours."""

    system: str
    """The system: ``loop Kafka``, ``payments: ZooKeeper``."""
    asks: str
    """The subject: ``quotas``."""
    ask: Callable[[], ProbeResult]
