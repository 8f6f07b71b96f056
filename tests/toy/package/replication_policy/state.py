"""What the replication policy remembers of one cluster."""

from msgspec import Struct

from policies.alerts import AlertBook
from policies.units import InstantMs


class LastReading(Struct, array_like=True, frozen=True):
    """The last good reading."""

    at_ms: InstantMs
    id: str
    under_replicated: int


class LastPublishedReplication(Struct, array_like=True, frozen=True):
    """The last published decision, as far as the next one depends on it."""

    sequence: int
    at_ms: InstantMs
    verdict: str
    reason: str


class ReplicationState(Struct, array_like=True, frozen=True):
    """Everything remembered."""

    reading: LastReading | None = None
    well_since_ms: InstantMs | None = None
    last_published: LastPublishedReplication | None = None
    alerts: AlertBook = AlertBook()
