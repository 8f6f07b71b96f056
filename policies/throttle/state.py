"""The state of the throttle policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Brokers and volumes are sorted,
so that equal knowledge gives equal bytes.
"""

from bisect import bisect_left

from msgspec import Struct

from policies.alerts import AlertBook
from policies.throttle.trend import Rise, Samples, Trend, TrendLine
from policies.units import InstantMs

NEVER = -1

VolumeKey = tuple[int, str]
"""(broker, log dir)"""


def place(volume: VolumeKey) -> str:
    """``broker 3 /data/a``."""
    broker, log_dir = volume
    return f"broker {broker} {log_dir}"


class VolumeState(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of one log dir. `read_ms` is NEVER when it was only ever reported unreadable."""

    log_dir: str
    total_bytes: int
    usable_bytes: int
    read_ms: InstantMs
    missing_ms: InstantMs | None = None
    """When its broker's newer good reading no longer had it."""
    samples: Samples = ()
    fill_bytes_per_second: float | None = None
    """None when it does not fill, or when that is not to be believed."""
    line: TrendLine | None = None
    rises: tuple[Rise, ...] = ()
    fill_confidence: float | None = None
    """None: what fills is not known; a rate without one, of an earlier version, is not said."""

    @property
    def trend(self) -> Trend:
        """What its readings tell of its rate."""
        return Trend(self.samples, self.line, self.rises)


class BrokerState(Struct, array_like=True, frozen=True, gc=False):
    """What is known of one broker. `read_*` is its last good reading, `tried_*` the last attempt."""

    broker: int
    seen_ms: InstantMs
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    left_ms: InstantMs | None = None
    """When a membership reading first lacked it."""
    volumes: tuple[VolumeState, ...] = ()


class BrokerMembership(Struct, array_like=True, frozen=True):
    """The last good reading of who belongs to the cluster."""

    at_ms: InstantMs
    id: str
    brokers: tuple[int, ...]
    """In order."""

    def has(self, broker: int) -> bool:
        """Whether it is among them."""
        place = bisect_left(self.brokers, broker)
        return place < len(self.brokers) and self.brokers[place] == broker


class KafkaClusterState(Struct, array_like=True, frozen=True):
    """Everything known of one cluster's brokers and their volumes."""

    membership: BrokerMembership | None = None
    brokers: tuple[BrokerState, ...] = ()
    ever_read: bool = False


class Gate(Struct, array_like=True, frozen=True):
    """The factor in force and what its next rise depends on."""

    factor: float
    changed_ms: InstantMs | None = None
    stopped_by: tuple[VolumeKey, ...] = ()
    """The volumes that stopped the cluster and have not recovered; empty unless stopped."""


class LastPublishedFactor(Struct, array_like=True, frozen=True):
    """The last published decision, as far as the next one depends on it."""

    sequence: int
    at_ms: InstantMs
    factor: float
    reason: str
    limiting: VolumeKey | None
    noted: tuple[str, ...] = ()
    """Verdicts the audit has had since the factor, its reason or the limiting volume last changed."""
    full_ms: InstantMs | None = None
    """When a volume is full, as it was said."""
    mode: str = ""
    """As it was said; empty: not known."""
    repeat_at_ms: InstantMs | None = None
    """When it is to be repeated at the latest: other settings make it hold no longer. None: not known."""


class ForgottenVolume(Struct, array_like=True, frozen=True, order=True):
    """A departed volume that limited the cluster, and when it was forgotten."""

    broker: int
    log_dir: str
    forgotten_ms: InstantMs

    @property
    def key(self) -> VolumeKey:
        """Which one."""
        return (self.broker, self.log_dir)


class ThrottleState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: InstantMs
    gate: Gate
    cluster: KafkaClusterState = KafkaClusterState()
    last_published: LastPublishedFactor | None = None
    alerts: AlertBook = AlertBook()
    forgotten: tuple[ForgottenVolume, ...] = ()
