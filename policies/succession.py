"""Fencing of decisions, for every consumer: whether a decision supersedes the one in force.

A decision is in force until one with a higher sequence arrives for its subject, or one that was made after it was
appended. Sequences order the records of one author. They are no fence against another: a forged record, a second loop,
or a loop that lost its checkpoint is superseded by the next decision, whatever their sequences.

A subject's first sequence is the time of its batch in milliseconds; each later one is one more (where several subjects
share a counter, at least one more). So sequences keep growing across a lost checkpoint without reading anything back,
and a decision id, which is built from them, never returns with other content.

Invariants: repeated and late records have no effect, because they were made before the one in force was appended. Of
two decisions that are repeated in turn, each is in force from its repeat to the other's. A decision that ends further
ahead of its append time than `FARTHEST_AHEAD` never passes, so whatever is in force without a successor ends.
"""

from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, Protocol, TypeVar

LONGEST_VALIDITY = timedelta(days=1)
"""No decision holds longer without a successor."""
CLOCKS_APART = timedelta(minutes=5)
"""The clocks of two machines may differ by this much; a greater difference proves that a clock jumped."""
FARTHEST_AHEAD = LONGEST_VALIDITY + CLOCKS_APART
"""How far a decision's end may lie ahead of when its record was appended."""


class Successive(Protocol):
    """The fields of a decision that fencing needs."""

    @property
    def sequence(self) -> int:
        """Only grows for a subject."""
        ...

    @property
    def decided_at(self) -> datetime:
        """The time of the batch that decided."""
        ...

    @property
    def expires_at(self) -> datetime | None:
        """When it expires without a successor; None: it holds until one comes."""
        ...


class Passed(NamedTuple):
    """The fields of a decision in force that the next one is compared with; there may be 100,000 of them."""

    sequence: int
    decided_at: datetime
    appended_at: datetime


def succeeds(new: Successive, in_force: Passed | None, appended_at: datetime) -> bool:
    """Whether a decision whose record was appended at `appended_at` takes the place of the one in force, if any."""
    if new.expires_at is not None and new.expires_at > appended_at + FARTHEST_AHEAD:
        return False
    if in_force is None or new.sequence > in_force.sequence:
        return True
    # The records are read in the order in which they were appended. So a record in force that is dated after this one
    # was dated by a clock that has been set back since, and its time proves nothing.
    is_made_after = in_force.appended_at < new.decided_at or in_force.appended_at > appended_at + CLOCKS_APART
    return is_made_after and new.decided_at != in_force.decided_at


Key = TypeVar("Key", bound=Hashable)


class Fence(Generic[Key]):
    """The last decision that passed for each key. Not thread-safe."""

    def __init__(self) -> None:
        self._passed: dict[Key, Passed] = {}

    def passes(self, key: Key, decision: Successive, appended_at: datetime) -> bool:
        """Return whether a decision is in force from now on; call it in the order of the records.

        Args:
            appended_at: when its record was appended.
        """
        if not succeeds(decision, self._passed.get(key), appended_at):
            return False
        self._passed[key] = Passed(decision.sequence, decision.decided_at, appended_at)
        return True

    def drop(self, key: Key) -> None:
        """Forget the decision of a key, after its tombstone."""
        self._passed.pop(key, None)


def has_expired(decision: Successive, now: datetime) -> bool:
    """Whether it has expired without a successor."""
    return decision.expires_at is not None and decision.expires_at <= now


def ends_at(decided_at: datetime, validity: timedelta) -> datetime:
    """The end of a decision with this validity, within the limit that consumers accept."""
    return decided_at + min(validity, LONGEST_VALIDITY)


def next_sequence(last: int, now_ms: int, *, is_first: bool) -> int:
    """The number after `last` in a counter (0: none was given).

    Args:
        last: the last number of the counter, which one subject has for itself or several share.
        now_ms: the time of the batch, in milliseconds since the epoch.
        is_first: whether it is its subject's first.
    """
    return max(last + 1, now_ms) if is_first else last + 1
