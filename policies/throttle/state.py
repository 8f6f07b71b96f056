"""The state of the throttle policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Brokers and volumes are sorted,
so equal states give equal bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Raw, Struct
from msgspec.msgpack import encode

from policies.alerts import AlertBook
from policies.free_space.effect import EffectState, VolumeGrowth
from policies.free_space.gate import Gate
from policies.free_space.repeats import LastPublished
from policies.free_space.volumes import NEVER, VolumeState
from policies.units import InstantMs

VolumeKey = tuple[int, str]
"""(broker, log dir)"""


def name_volume(volume: VolumeKey) -> str:
    """Name a volume in a sentence: ``broker 3 /data/a``; a broker whose log dirs are not known, ``broker 3``."""
    broker, log_dir = volume
    return f"broker {broker} {log_dir}".rstrip()


def describe_departure(volume: VolumeKey, *, was_taken_out: bool) -> str:
    """Write how a volume that held producers back left: with its broker, or its broker no longer lists it."""
    broker, log_dir = volume
    if was_taken_out:
        return f"{log_dir} was taken out of broker {broker}'s log dirs while it held producers back"
    return f"broker {broker} left the cluster while its {log_dir} held producers back"


class BrokerUsage(Struct, array_like=True, frozen=True, gc=False):
    """The last reading of a broker's replica sizes."""

    at_ms: InstantMs
    id: str
    volumes: tuple[tuple[str, str], ...]
    """(log dir, its `VolumeUsage` as JSON)"""


class BrokerState(Struct, array_like=True, frozen=True, gc=False):
    """One broker: `read_*` is its last good reading, `tried_*` the last attempt."""

    broker: int
    seen_ms: InstantMs
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    left_ms: InstantMs | None = None
    """When a membership first lacked it."""
    volumes: tuple[VolumeState, ...] = ()
    usage: BrokerUsage | None = None
    cordoned: tuple[str, ...] = ()
    """The log dirs on which it places no new partitions (KIP-1066), by its last good reading; in order."""
    errors: tuple[tuple[str, str], ...] = ()
    """(log dir, Kafka's error) of the log dirs that it reports as failed, by its last good reading; in order."""

    def find_error(self, log_dir: str) -> str | None:
        """Return the error with which the broker reports a log dir; None if it reports none."""
        return dict(self.errors).get(log_dir) if self.errors else None


class BrokerMembership(Struct, array_like=True, frozen=True):
    """The last good reading of the cluster's members."""

    at_ms: InstantMs
    id: str
    brokers: tuple[int, ...]
    """In order."""

    def has(self, broker: int) -> bool:
        """Return whether a broker is a member."""
        index = bisect_left(self.brokers, broker)
        return index < len(self.brokers) and self.brokers[index] == broker


class KafkaClusterState(Struct, array_like=True, frozen=True):
    """The brokers and volumes of one cluster, and its members."""

    membership: BrokerMembership | None = None
    brokers: tuple[BrokerState, ...] = ()
    ever_read: bool = False
    cluster_id: str | None = None
    """Kafka's id of the cluster that is read, decided on and throttled; None if it is not known."""
    other_id: str | None = None
    """The id of another cluster that answers at the address now; its readings do not count until it is adopted."""


class ForgottenVolume(Struct, array_like=True, frozen=True, order=True):
    """A departed volume that limited the cluster, and when it was forgotten."""

    broker: int
    log_dir: str
    forgotten_ms: InstantMs
    was_taken_out: bool = False
    """Whether its broker is there, and lists it no longer."""

    @property
    def key(self) -> VolumeKey:
        """The volume, as in the rest of the state."""
        return (self.broker, self.log_dir)


class GrowthBefore(Struct, array_like=True, frozen=True):
    """How fast a limiting volume grew before the quotas of the throttle were all in force."""

    volume: VolumeKey
    bytes_per_second: float


class ThrottleState(Struct, array_like=True, frozen=True, weakref=True):
    """The stored state of the policy for one cluster."""

    started_ms: InstantMs
    gate: Gate[VolumeKey]
    cluster: KafkaClusterState = KafkaClusterState()
    last_published: LastPublished[VolumeKey] | None = None
    alerts: AlertBook = AlertBook()
    forgotten: tuple[ForgottenVolume, ...] = ()
    effect: EffectState = EffectState()
    growths: tuple[VolumeGrowth[VolumeKey], ...] = ()
    growths_before: tuple[GrowthBefore, ...] = ()


def encode_state(state: ThrottleState, brokers: Iterable[Raw]) -> bytes:
    """Encode a state whose brokers are encoded already."""
    known = state.cluster
    cluster = (known.membership, tuple(brokers), known.ever_read, known.cluster_id, known.other_id)
    rest = (state.last_published, state.alerts, state.forgotten, state.effect, state.growths, state.growths_before)
    return encode((state.started_ms, state.gate, cluster, *rest))
