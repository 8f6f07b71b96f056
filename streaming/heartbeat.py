"""The heartbeat of a policy: each minute it confirms that the policy still watches a cluster.

A decision about a member or a namespace may stand for months without a successor, so its age proves nothing. When the
policy no longer watches the cluster, the heartbeat expires within minutes, and every consumer sees that.
"""

from datetime import timedelta
from typing import Any

from msgspec import Struct

from policies.decisions import Issuer, Standing, StandingReason, StandingVerdict
from policies.pauses import PolicyPause, describe
from policies.records import Output
from policies.succession import next_sequence
from policies.units import from_millis
from policies.wire import decision_event

INTERVAL_MS = 60_000
VALIDITY = timedelta(minutes=3)


class LastHeartbeat(Struct, array_like=True, frozen=True):
    """When the last heartbeat was published, and its sequence; 0: never."""

    at_ms: int = 0
    sequence: int = 0
    quiet: PolicyPause | None = None
    """The pause that it named, if any."""

    @property
    def due_ms(self) -> int:
        """When the next one is due: at whole minutes, so that all clusters share a batch."""
        return (self.at_ms // INTERVAL_MS + 1) * INTERVAL_MS

    def is_due(self, now_ms: int, quiet: PolicyPause | None = None) -> bool:
        """Whether to publish one now: its minute has passed, it lies in the future, or `quiet` has changed."""
        return self.quiet != quiet or not self.at_ms <= now_ms < self.due_ms


def emit_heartbeat(
    issuer: Issuer, before: LastHeartbeat, now_ms: int, quiet: PolicyPause | None = None
) -> tuple[LastHeartbeat, Output]:
    """Make the heartbeat for the next minutes; it names the pause `quiet`, if one is in force."""
    sequence = next_sequence(before.sequence, now_ms, is_first=before.sequence == 0)
    now, subject = from_millis(now_ms), f"{issuer.policy}/{issuer.cluster}"
    paused: dict[str, Any] = {}
    if quiet is not None:
        paused = {"paused_by": quiet.actor, "pause_reason": quiet.reason, "pause_keeps": quiet.keeps}
    heartbeat = Standing(
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
        **paused,
    )
    after = LastHeartbeat(now_ms, sequence, quiet)
    return after, Output(Standing.topic, heartbeat.record_key(), decision_event(heartbeat))
