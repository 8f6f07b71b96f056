"""Where the groups of bookies are kept, as the actuator sees it: look, and write only what still fits the look."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class StoreError(Exception):
    """It cannot be done now; the message says why in one short line, without a secret. Nothing was written."""


class ConflictError(StoreError):
    """Somebody else wrote since the look: to be decided afresh."""


class UnknownOutcomeError(StoreError):
    """No answer to a write: it may have been done or not. The next look tells."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A bookie's registration, as far as the store can tell."""

    session: str | None = None
    """The ZooKeeper session that owns it, as `0x…`; null where the store cannot tell."""
    czxid: int | None = None
    """The transaction that made it; null where the store cannot tell."""
    registered_at: datetime | None = None
    """By ZooKeeper's clock; null where the store cannot tell."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look has found."""

    groups: Mapping[str, Mapping[str, object]]
    """Members by group."""
    registration: Registration | None
    """Of the bookie that was looked at; null when it has none."""
    changed_at: datetime
    """When the groups were last changed, by ZooKeeper's clock where known."""
    write: Callable[[str, str], datetime]
    """Add the bookie to a group with a rack, if the groups are still as found; gives when it took effect.

    Raises ConflictError, UnknownOutcomeError or another StoreError.
    """


class RackStore(Protocol):
    """The groups of one cluster's bookies. Used from one thread."""

    def look(self, bookie: str) -> Sight:
        """Read the groups, and whether a bookie is registered, as they are now.

        Raises:
            StoreError: they cannot be read, or must not be written as they are.
        """
        ...

    def close(self) -> None:
        """Give up the connection; the next look makes a new one."""
        ...
