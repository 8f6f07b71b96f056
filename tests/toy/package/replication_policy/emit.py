"""What differs from what is in force, or is due again, becomes a decision."""

from datetime import datetime

from policies.decisions import Issuer
from policies.succession import ends_at, next_sequence
from policies.units import millis_of

from .decisions import ReplicationDecision
from .facts import ReplicationFacts
from .judge import Judgement
from .settings import ReplicationSettings
from .state import LastPublishedReplication


def emit(
    judgement: Judgement,
    facts: ReplicationFacts,
    last: LastPublishedReplication | None,
    now: datetime,
    issuer: Issuer,
    settings: ReplicationSettings,
) -> tuple[LastPublishedReplication, tuple[ReplicationDecision, ...]]:
    """What was published last after this step, and the decision if there is one."""
    verdict, reason = judgement
    is_due = last is not None and facts.now_ms >= last.at_ms + millis_of(settings.heartbeat)
    if last is not None and (last.verdict, last.reason) == (verdict.value, reason.value) and not is_due:
        return last, ()
    sequence = next_sequence(last.sequence if last else 0, facts.now_ms, is_first=last is None)
    count = facts.reading.under_replicated if facts.reading else None
    decision = ReplicationDecision(
        **issuer.header(issuer.cluster, sequence, now),
        verdict=verdict,
        reason=reason,
        explanation=f"{issuer.cluster} is {verdict}: {reason.meaning} Under-replicated: {count}.",
        evidence=(facts.reading.id,) if facts.reading else (),
        under_replicated=count,
        valid_until=ends_at(now, 3 * settings.heartbeat),
    )
    return LastPublishedReplication(sequence, facts.now_ms, verdict.value, reason.value), (decision,)
