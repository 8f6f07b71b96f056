"""One check of a connected system: whether Headgate may do there what the settings ask for.

A check changes nothing. Policies yield such checks for what their actuators need (`PolicyConnectors.probes`); what
their collectors need shows in their readings.
"""

from collections.abc import Callable
from dataclasses import dataclass

from policies.observations import Outcome


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What came of a question."""

    outcome: Outcome
    detail: str
    """In a few words, without a secret."""
    remedies: tuple[str, ...] = ()
    """What to do about it: sentences, or lines to give to another tool."""
    seconds: float | None = None
    """How long it took, where that is less than the question took."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A question. It may block; an error that it raises is the answer that it is a fault of ours."""

    system: str
    """Whom it is put to: ``loop Kafka``, ``payments: ZooKeeper``."""
    asks: str
    """What about: ``quotas``."""
    ask: Callable[[], ProbeResult]
