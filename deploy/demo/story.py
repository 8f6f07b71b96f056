"""The demo's script as a pure state machine: which phase is on, from what was decided, carried out and measured."""

from dataclasses import dataclass, field
from enum import Enum

from policies.units import human_bytes

_STOPPED_SECONDS = 8.0
"""A stop is shown for so long before space is made."""
_STANDS_STILL = 0.1
"""A producer that writes less than this share of what it wants to is stopped."""
_IS_BACK = 0.85
_BACK_SECONDS = 5.0


@dataclass(frozen=True)
class DemoSizes:
    """The sizes of everything, in bytes."""

    total: int
    """Of the volume."""
    soft: int
    hard: int
    load: int
    """What producers want to write in a second."""

    def named(self) -> dict[str, str]:
        """As sentences have them."""
        return {
            "total": human_bytes(self.total),
            "soft": human_bytes(self.soft),
            "hard": human_bytes(self.hard),
            "load": f"{human_bytes(self.load)}/s",
        }


class Phase(Enum):
    """The parts of the story, in their order, with what is said as each begins."""

    FILL = "fill", "Producers write {load} and nothing is deleted: the disk of {total} fills up."
    THROTTLE = (
        "throttle",
        "Less than {soft} free, the soft limit: the less is left, the more producers are slowed down.",
    )
    STOP = "stop", "Less than {hard} free, the hard limit: producers are stopped. The disk will not fill."
    RECOVERY = (
        "recovery",
        "Somebody makes space (here: old records are deleted). Quotas go by themselves, as they came.",
    )
    DONE = "done", "Producers write {load} again, and the quota is what it was before: none."

    def __init__(self, title: str, sentence: str) -> None:
        self.title = title
        self.sentence = sentence


@dataclass(frozen=True)
class Look:
    """One look at everything."""

    at_seconds: float
    """Since the producers began."""
    free_bytes: int
    factor: float
    """As decided."""
    quota: int | None
    """Bytes a second, as the broker says; None: no quota."""
    produced: float
    """Bytes a second that the broker took of late."""


@dataclass
class Story:
    """Goes from one phase to the next by what is seen.

    Args:
        load: bytes a second that producers want to write.
    """

    load: float
    phase: Phase = Phase.FILL
    _since_seconds: float = 0.0
    _back_since: float | None = field(default=None)

    def take(self, look: Look) -> Phase | None:
        """The phase that begins with this look, if one does."""
        if not self._is_over(look):
            return None
        phases = list(Phase)
        self.phase, self._since_seconds = phases[phases.index(self.phase) + 1], look.at_seconds
        return self.phase

    def _is_over(self, look: Look) -> bool:
        match self.phase:
            case Phase.FILL:
                return look.factor < 1.0 and look.quota is not None
            case Phase.THROTTLE:
                return look.factor == 0.0
            case Phase.STOP:
                lasted = look.at_seconds - self._since_seconds
                return lasted >= _STOPPED_SECONDS and look.produced < _STANDS_STILL * self.load
            case Phase.RECOVERY:
                return self._are_back(look)
        return False

    def _are_back(self, look: Look) -> bool:
        """Whether producers have been back for a while."""
        if look.factor < 1.0 or look.quota is not None or look.produced < _IS_BACK * self.load:
            self._back_since = None
        elif self._back_since is None:
            self._back_since = look.at_seconds
        return self._back_since is not None and look.at_seconds - self._back_since >= _BACK_SECONDS
