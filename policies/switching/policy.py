"""The switching policy of one broker cluster: folds readings, joins facts, judges, publishes, and raises alerts.

Rules: docs/design/switching.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from policies.alerts import Sender
from policies.book import Step
from policies.observations import Observation, sort_observations
from policies.switching import NAME
from policies.switching.alerts import conditions
from policies.switching.emit import emit, emit_record, renewal_ms
from policies.switching.facts import SwitchFacts, find_due_ms
from policies.switching.judge.holds import DatedHold, find_holds
from policies.switching.machine import reconcile
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState
from policies.switching.transition import Transition
from policies.units import to_millis


class SwitchingPolicy:
    """Decides about the switch of one broker cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SwitchingState]:
        """Take the observations, let time pass, and return the decisions and alert conditions that follow."""
        before, now_ms, limits = state or SwitchingState(), to_millis(now), self._settings.limits
        seen, transition = sort_observations(tuple(observations)), Transition(before, limits, now_ms)
        drafts = reconcile(transition, (*seen, None))
        after, issuer = transition.packed(), self._issuer
        facts = transition.facts()
        holds = tuple(find_holds(facts))
        after, decisions = emit(after, drafts, transition.plan, tuple(each.id for each in seen), issuer, now)
        after, record = emit_record(before, after, facts, holds, drafts, issuer, now)
        return Step(
            after,
            conditions=conditions(self._cluster, facts, holds),
            due_ms=_due_ms(after, facts, holds),
            decisions=(*decisions, *record),
        )


def _due_ms(state: SwitchingState, facts: SwitchFacts, holds: Sequence[DatedHold]) -> Iterator[int]:
    """Return the instants at which something may change without an observation."""
    yield from find_due_ms(facts)
    yield from (due_ms for _, _, due_ms in holds)
    if state.record:
        yield renewal_ms(state)
    if state.switch is not None:
        yield from (state.switch.rollback_until_ms, state.switch.cleanup_from_ms)
        if state.lease is not None:
            yield state.lease.valid_until_ms
