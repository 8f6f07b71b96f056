"""The throttle policy: one factor for a cluster whose disks fill up.

Because of replication a full disk on one broker is filled by producers on another, so the whole cluster slows down.
Rules: docs/design/throttle.md.
"""

from collections.abc import Sequence
from datetime import datetime

from policies.alerts import Sender, review
from policies.observations import Observation
from policies.policy import Step
from policies.throttle.alerts import ThrottleAlertContext, conditions
from policies.throttle.emit import emit
from policies.throttle.facts import ThrottleFacts, facts_as_of
from policies.throttle.fold import fold
from policies.throttle.judge import ThrottleJudgement, expiries_ms, judge, remembered
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import Gate, LastPublishedFactor, ThrottleState
from policies.units import from_millis, millis_of, to_millis

NAME = "throttle"


class ThrottlePolicy:
    """Decides the factor of one cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: ThrottleSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        """Fold the observations in, judge what is the case, and publish what differs."""
        before = state or ThrottleState(to_millis(now), Gate(self._settings.start_factor))
        known = fold(before.cluster, observations)
        facts = facts_as_of(now, self._cluster, known, self._settings)
        judgement = judge(facts, before)
        emitted = emit(judgement, facts, before.last_published, self._sender.issuer)
        warned_of = conditions(ThrottleAlertContext(facts, judgement, before.alerts.keys()))
        book, alerts, review_at = review(before.alerts, warned_of, now, self._sender)
        after = ThrottleState(
            started_ms=before.started_ms,
            gate=judgement.move.gate,
            cluster=known.keeping(remembered(facts, judgement.volumes)),
            last_published=emitted.last_published,
            alerts=book,
            forgotten=judgement.forgotten,
        )
        decisions = (*((emitted.decision,) if emitted.decision else ()), *alerts)
        wake_at = _wake_at(facts, judgement, after, emitted.last_published, review_at)
        return Step(after, decisions, wake_at, (emitted.note,) if emitted.note else ())


def _wake_at(
    facts: ThrottleFacts,
    judgement: ThrottleJudgement,
    after: ThrottleState,
    published: LastPublishedFactor,
    review_at: datetime | None,
) -> datetime:
    """When something may change without an observation; the heartbeat is always among it."""
    now_ms, hold_ms = to_millis(facts.now), millis_of(facts.settings.departed_hold)
    due_ms = [
        published.at_ms + millis_of(facts.settings.heartbeat),
        after.started_ms + millis_of(facts.settings.validity),
        *expiries_ms(judgement.brokers, judgement.volumes, facts.settings),
        *(forgotten.forgotten_ms + hold_ms for forgotten in judgement.forgotten),
    ]
    if judgement.move.rises_at_ms is not None:
        due_ms.append(judgement.move.rises_at_ms)
    if review_at is not None:
        due_ms.append(to_millis(review_at))
    return from_millis(min(ms for ms in due_ms if ms > now_ms))
