"""Publishes the verdict if it differs from the decision in force, or if the heartbeat is due."""

from datetime import datetime

from policies.decisions import Issuer, Publication, RepeatSchedule

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
    """Return what is published last after this step, and the decision, if there is one."""
    verdict, reason = judgement
    content = (verdict.value, reason.value)
    in_force = None if last is None else (last.verdict, last.reason)
    due_ms = None if last is None else repeat_schedule(settings).due_ms(last.at_ms)
    publication = Publication(facts.now_ms, last.sequence if last else 0)
    if last is not None and not publication.is_needed(content, in_force, due_ms):
        return last, ()
    sequence = publication.next(is_first=last is None)
    count = facts.reading.under_replicated if facts.reading else None
    decision = ReplicationDecision(
        **issuer.header(issuer.cluster, sequence, now),
        verdict=verdict,
        reason=reason,
        explanation=f"{issuer.cluster} is {verdict}: {reason.meaning} Under-replicated: {count}.",
        evidence=(facts.reading.id,) if facts.reading else (),
        under_replicated=count,
        valid_until=repeat_schedule(settings).ends_at(now),
    )
    return LastPublishedReplication(sequence, facts.now_ms, *content), (decision,)


def repeat_schedule(settings: ReplicationSettings) -> RepeatSchedule:
    """Return when a decision is repeated: two heartbeats may be late before it expires."""
    return RepeatSchedule(settings.heartbeat, valid_for=3)
