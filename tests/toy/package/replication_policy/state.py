"""What the replication policy remembers of one cluster."""

from msgspec import Struct

from policies.units import InstantMs


class LastReading(Struct, array_like=True, frozen=True):
    """The last good reading."""

    at_ms: InstantMs
    id: str
    under_replicated: int


class ReplicationState(Struct, array_like=True, frozen=True):
    """Everything remembered."""

    reading: LastReading | None = None
    well_since_ms: InstantMs | None = None
    is_degraded: bool = False
