"""Confirms once a minute that a policy still watches a cluster, so that its last decisions may be taken as current.

A decision about a member or a namespace may stand for months without a successor, so its age says nothing. When nobody
watches any more, this confirmation expires within minutes, and every consumer can tell.
"""

from datetime import timedelta

from msgspec import Struct

from policies.decisions import Issuer, Standing, StandingReason, StandingVerdict
from policies.maintenance import Quiet, describe
from policies.succession import next_sequence
from policies.units import from_millis
from policies.wire import decision_event
from streaming.output import Output

INTERVAL_MS = 60_000
VALIDITY = timedelta(minutes=3)


class LastStanding(Struct, array_like=True, frozen=True):
    """When it was said last, and its number; 0: never."""

    at_ms: int = 0
    sequence: int = 0
    quiet_until_ms: int | None = None
    """That the policy only watches, and until when, as it was said."""

    @property
    def due_ms(self) -> int:
        """When it is to be said again: at whole minutes, so that all clusters share a batch."""
        return (self.at_ms // INTERVAL_MS + 1) * INTERVAL_MS

    def is_due(self, now_ms: int, quiet: Quiet | None = None) -> bool:
        """Whether to say it now; also when it was said at a time that has not come yet, or is otherwise now."""
        quiet_until_ms = None if quiet is None else quiet.until_ms
        return self.quiet_until_ms != quiet_until_ms or not self.at_ms <= now_ms < self.due_ms


def emit_standing(
    issuer: Issuer, before: LastStanding, now_ms: int, quiet: Quiet | None = None
) -> tuple[LastStanding, Output]:
    """That the policy watches the cluster, for the next minutes; and whether it does no more than that."""
    sequence = next_sequence(before.sequence, now_ms, is_first=before.sequence == 0)
    now, subject = from_millis(now_ms), f"{issuer.policy}/{issuer.cluster}"
    standing = Standing(
        **issuer.header(subject, sequence, now, about=("standing",)),
        verdict=StandingVerdict.STANDS,
        reason=StandingReason.WATCHED if quiet is None else StandingReason.ONLY_WATCHED,
        explanation=(
            f"Policy {issuer.policy} watches {issuer.cluster}: what it decided last stands"
            if quiet is None
            else describe(quiet, issuer.policy, issuer.cluster)
        ),
        valid_until=now + VALIDITY,
        quiet_until=None if quiet is None else from_millis(quiet.until_ms),
    )
    after = LastStanding(now_ms, sequence, None if quiet is None else quiet.until_ms)
    return after, Output(Standing.topic, standing.record_key(), decision_event(standing))
