"""The demo's story as a pure state machine: each phase follows from decisions, actions and measurements."""

from dataclasses import dataclass, field
from enum import Enum
from textwrap import indent

from deploy.demo.volume import DemoVolume
from policies.units import human_bytes

_STOPPED_SECONDS = 8.0
"""How long a stop is shown before space is freed."""
_STANDS_STILL = 0.1
"""Below this share of their wanted rate, producers count as stopped."""
_IS_BACK = 0.85
"""Above this share of their wanted rate, producers count as released."""
_BACK_SECONDS = 5.0


@dataclass(frozen=True)
class DemoSizes:
    """The sizes of everything, in bytes."""

    total: int
    """The size of the volume."""
    soft: int
    hard: int
    load: int
    """Bytes a second that the producers want to write."""

    def as_texts(self) -> dict[str, str]:
        """The sizes as text, by the name in the phases' sentences."""
        return {
            "total": human_bytes(self.total),
            "soft": human_bytes(self.soft),
            "hard": human_bytes(self.hard),
            "load": f"{human_bytes(self.load)}/s",
        }


class Phase(Enum):
    """The phases of the story in their order, each with the sentence that is printed when it begins."""

    FILL = "fill", "Producers write {load} and nothing is deleted: the disk of {total} fills up."
    THROTTLE = (
        "throttle",
        "Less than {soft} free, the soft limit: the less space is left, the slower producers may write.",
    )
    STOP = "stop", "Less than {hard} free, the hard limit: producers are stopped. The disk will not fill."
    RECOVERY = (
        "recovery",
        "An operator frees space (here: old records are deleted). Headgate removes the quota by itself.",
    )
    DONE = "done", "Producers write {load} again, and there is no quota, as before."

    def __init__(self, title: str, sentence: str) -> None:
        self.title = title
        self.sentence = sentence


@dataclass(frozen=True)
class DemoSample:
    """The state of everything at one moment."""

    at_seconds: float
    """Since the producers began."""
    free_bytes: int
    factor: float
    """The factor in force."""
    quota: int | None
    """Bytes a second, read from the broker; None without a quota."""
    produced: float
    """Bytes a second that the broker accepted in the last seconds."""


@dataclass
class Story:
    """Moves from one phase to the next with the samples.

    Args:
        load: bytes a second that producers want to write.
    """

    load: float
    phase: Phase = Phase.FILL
    _since_seconds: float = 0.0
    _back_since: float | None = field(default=None)

    def advance(self, sample: DemoSample) -> Phase | None:
        """Return the phase that begins with this sample, if one does."""
        if not self._is_over(sample):
            return None
        phases = list(Phase)
        self.phase, self._since_seconds = phases[phases.index(self.phase) + 1], sample.at_seconds
        return self.phase

    def _is_over(self, sample: DemoSample) -> bool:
        match self.phase:
            case Phase.FILL:
                return sample.factor < 1.0 and sample.quota is not None
            case Phase.THROTTLE:
                return sample.factor == 0.0
            case Phase.STOP:
                lasted = sample.at_seconds - self._since_seconds
                return lasted >= _STOPPED_SECONDS and sample.produced < _STANDS_STILL * self.load
            case Phase.RECOVERY:
                return self._are_back(sample)
        return False

    def _are_back(self, sample: DemoSample) -> bool:
        if sample.factor < 1.0 or sample.quota is not None or sample.produced < _IS_BACK * self.load:
            self._back_since = None
        elif self._back_since is None:
            self._back_since = sample.at_seconds
        return self._back_since is not None and sample.at_seconds - self._back_since >= _BACK_SECONDS


def describe_volume(volume: DemoVolume) -> str:
    """Describe the disk that fills up, for the first lines of the output."""
    size = human_bytes(volume.total_bytes)
    if volume.is_disk:
        return f"a disk of {size} in memory (tmpfs), mounted for this process alone"
    return (
        f"this system does not allow mounting a disk, so a folder stands for one of {size}: free space is its size "
        "minus the size of its files. Only the demo's own limits keep it from growing."
    )


FIRST_SETTINGS = """\
kafka: {bootstrap_servers: "loop-1:9092"}  # Headgate's own topics
clusters:
  payments: {kafka: {bootstrap_servers: "kafka-1:9092"}}
policies:
  throttle:
    mode: shadow
    soft: {available_ratio_below: 0.15}
    hard: {available_ratio_below: 0.05}
"""

NEXT = f"""
This is all that Headgate does here: it read how full the log dir is, decided one factor for the cluster, \
explained it, and set Kafka's own client quota. The broker needed no plugin.

Next:
  headgate up            the same loop on a Kafka it starts, watching your disks
  headgate check FILE    check the settings for your own clusters
  headgate run -s FILE   the loop on your clusters
  headgate status        what is in force; `headgate explain SUBJECT` says why

A first FILE, for a loop that decides but sets no quota yet (shadow):

{indent(FIRST_SETTINGS, "  ")}"""
