"""The isolation policy: the bookies that each namespace may use, and the bookies without a group.

It decides nothing while a reading that it needs is stale. Rules: docs/design/isolation.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from policies.alerts import Sender
from policies.book import Step
from policies.isolation import NAME
from policies.isolation.alert_kinds import IsolationAlertContext
from policies.isolation.alerts import conditions, due_ms, keep_unknown
from policies.isolation.emit import EmittedIsolation, emit, order_schedule, placement_schedule
from policies.isolation.facts import join_facts
from policies.isolation.fold import fold
from policies.isolation.judge import judge_isolation, quarantine_due_ms
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState, keep_within_bounds
from policies.observations import Observation
from policies.units import to_millis

_NEXT_PLACEMENTS_MS = 1000
"""When placements for which a step had no room are published."""


class IsolationPolicy:
    """Decides for the namespaces and bookies of one cluster, by the settings in force for it."""

    name = NAME

    def __init__(self, cluster: str, settings: IsolationSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: IsolationState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[IsolationState]:
        """Fold, join facts, judge, emit and find alert conditions, each once."""
        before = state or IsolationState(to_millis(now))
        kept, refused = keep_within_bounds(before.cluster, observations)
        known = fold(before.cluster, kept, self._settings)
        facts = join_facts(now, self._cluster, known, self._settings)
        judgement = judge_isolation(facts, before.orders, self._settings)
        emitted = emit(judgement, facts, before, self._issuer)
        context = IsolationAlertContext(facts, judgement, emitted.orders, before.started_ms)
        after = IsolationState(
            started_ms=before.started_ms,
            cluster=known,
            published=emitted.published,
            orders=emitted.orders,
            sequence=emitted.sequence,
        )
        return Step(
            after,
            conditions=conditions(context),
            due_ms=_due_ms(context, emitted),
            refused=refused,
            decisions=emitted.decisions,
            stay=partial(keep_unknown, facts),
        )


def _due_ms(context: IsolationAlertContext, emitted: EmittedIsolation) -> Iterator[int]:
    """When (milliseconds since the epoch) a verdict may change without an observation."""
    facts = context.facts
    yield from due_ms(context)
    yield from quarantine_due_ms(facts)
    pending = (order for order in context.orders if order.is_pending(facts.quarantined))
    schedule = order_schedule(facts.settings)
    yield from (schedule.due_ms(order.published_ms, order.repeat_at_ms) for order in pending)
    if emitted.has_more:
        yield facts.now_ms + _NEXT_PLACEMENTS_MS
    if facts.is_fresh:
        schedule = placement_schedule(facts.settings)
        yield from (schedule.due_ms(each.published_ms, each.repeat_at_ms) for each in emitted.published)
