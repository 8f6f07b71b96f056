"""Fencing of decisions, for every consumer: whether a decision supersedes the one in force.

A decision is in force until one with a higher sequence arrives for its subject. An expired decision also gives way to a
valid one with a lower sequence, and one that was made while Kafka's clock was far ahead gives way to any later one.
An alert, or one without end, also gives way to any that was made after it was appended: otherwise one forged record
would fence out all later ones for good. Nothing else supersedes it, so repeated and late records have no effect.

A subject's first sequence is the time of its batch in milliseconds; each later one is one more (where several subjects
share a counter, at least one more). So sequences keep growing across a lost checkpoint without reading anything back,
and a decision id, which is built from them, never returns with other content.

Invariants: of two decisions about one subject at most one succeeds the other while both are valid; `succeeds` is never
true of a decision and itself; a decision dated further ahead of its append time than `FARTHEST_AHEAD` never succeeds,
so that one forged record cannot fence out all later ones.
"""

from datetime import datetime, timedelta
from typing import Protocol

from policies.units import to_millis

LONGEST_VALIDITY = timedelta(days=1)
"""No decision holds longer without a successor."""
FARTHEST_AHEAD = LONGEST_VALIDITY + timedelta(minutes=5)
"""How far a decision's sequence (as a time) and its end may lie ahead of when its record was appended: a day, plus
the difference between the clocks of two machines."""


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


def succeeds(
    new: Successive,
    in_force: Successive | None,
    *,
    now: datetime,
    appended_at: datetime,
    yields_since: datetime | None = None,
) -> bool:
    """Whether a decision takes the place of the one in force for its subject.

    Args:
        new: the decision that came in.
        in_force: the one it would succeed; None when there is none.
        now: the consumer's time, which determines whether a decision has expired.
        appended_at: when the record of `new` was appended to its topic.
        yields_since: when the record of `in_force` was appended, if it gives way to any that was made later.
    """
    if not is_credible(new, appended_at):
        return False
    if in_force is None or new.sequence > in_force.sequence or not is_credible(in_force, appended_at):
        return True
    # Of the same sequence, a record that was made later is no repetition: a forged one has used up its number.
    is_made_after = yields_since is not None and yields_since < new.decided_at != in_force.decided_at
    is_older = new.sequence < in_force.sequence
    return is_made_after or (is_older and has_expired(in_force, now) and not has_expired(new, now))


def has_expired(decision: Successive, now: datetime) -> bool:
    """Whether it has expired without a successor."""
    return decision.expires_at is not None and decision.expires_at <= now


def is_credible(decision: Successive, appended_at: datetime) -> bool:
    """Whether the query can have given it this sequence and this end, if its record was appended then."""
    farthest = appended_at + FARTHEST_AHEAD
    ends = decision.expires_at
    return decision.sequence <= to_millis(farthest) and (ends is None or ends <= farthest)


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
