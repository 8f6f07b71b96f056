"""The interface to where bookie groups are stored: read, and write only if nothing changed since the read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from connectors.actuation.reports import ActionError


class ConflictError(ActionError):
    """Somebody else wrote since the look: to be decided afresh."""


@dataclass(frozen=True, slots=True)
class StoredRegistration:
    """A bookie's registration, as far as the store can tell."""

    session: str | None = None
    """The ZooKeeper session that owns it, as `0x…`; None where the store cannot tell."""
    czxid: int | None = None
    """The transaction that made it; None where the store cannot tell."""
    registered_at: datetime | None = None
    """By ZooKeeper's clock; None where the store cannot tell."""


@dataclass(frozen=True, slots=True)
class RacksSnapshot:
    """What one look has found."""

    groups: Mapping[str, Mapping[str, object]]
    """Members by group."""
    registration: StoredRegistration | None
    """Of the bookie that was looked at; None when it has none."""
    changed_at: datetime
    """When the groups were last changed, by ZooKeeper's clock where known."""
    write: Callable[[str, str], datetime]
    """Add the bookie to a group with a rack, if the groups are still as found; gives when it took effect.

    Raises ConflictError, UnknownOutcomeError or another ActionError.
    """


class RackStore(Protocol):
    """The groups of one cluster's bookies. Used from one thread."""

    def look(self, bookie: str) -> RacksSnapshot:
        """Read the groups, and whether a bookie is registered, as they are now.

        Raises:
            ActionError: they cannot be read, or must not be written as they are.
        """
        ...

    def close(self) -> None:
        """Give up the connection; the next look makes a new one."""
        ...
