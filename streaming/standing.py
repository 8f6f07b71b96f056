"""Says once a minute that a policy still watches a cluster, so that what it decided last may be taken as current.

A decision about a member or a namespace may stand for months without a successor: its age says nothing. When nobody
watches any more, this lapses within minutes, and every consumer can tell.
"""

from datetime import timedelta

from msgspec import Struct

from policies.decisions import Issuer, Standing, StandingReason, StandingVerdict
from policies.succession import next_sequence
from policies.units import from_millis
from policies.wire import decision_event
from streaming.output import Output

INTERVAL_MS = 60_000
VALIDITY = timedelta(minutes=3)


class Said(Struct, array_like=True, frozen=True):
    """When it was said last, and its number; 0: never."""

    at_ms: int = 0
    sequence: int = 0

    @property
    def due_ms(self) -> int:
        """When it is to be said again: at whole minutes, so that all clusters share a batch."""
        return (self.at_ms // INTERVAL_MS + 1) * INTERVAL_MS

    def is_due(self, now_ms: int) -> bool:
        """Whether to say it now; also when it was said at a time that has not come yet."""
        return not self.at_ms <= now_ms < self.due_ms


def say(issuer: Issuer, before: Said, now_ms: int) -> tuple[Said, Output]:
    """That the policy watches the cluster, for the next minutes."""
    sequence = next_sequence(before.sequence, now_ms, is_first=before.sequence == 0)
    now, subject = from_millis(now_ms), f"{issuer.policy}/{issuer.cluster}"
    standing = Standing(
        **issuer.header(subject, sequence, now, about=("standing",)),
        verdict=StandingVerdict.STANDS,
        reason=StandingReason.WATCHED,
        explanation=f"Policy {issuer.policy} watches {issuer.cluster}: what it decided last stands",
        valid_until=now + VALIDITY,
    )
    return Said(now_ms, sequence), Output(Standing.topic, standing.record_key(), decision_event(standing))
