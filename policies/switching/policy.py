"""The switching policy of one broker cluster: folds readings, joins facts, judges, publishes, and raises alerts.

Rules: docs/design/switching.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.alerts import Sender, review
from policies.book import Published
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
from policies.units import from_millis, to_millis


class SwitchingPolicy:
    """Decides about the switch of one broker cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.build(NAME, cluster, settings)

    def begin(self, now: datetime) -> SwitchingState:  # noqa: ARG002
        """Return the state of a cluster that was never stepped."""
        return SwitchingState()

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Published[SwitchingState]:
        """Take the observations, let time pass, and return the decisions that follow."""
        before, now_ms, limits = state or self.begin(now), to_millis(now), self._settings.limits
        seen, transition = sort_observations(tuple(observations)), Transition(before, limits, now_ms)
        drafts = reconcile(transition, (*seen, None))
        after, issuer = transition.packed(), self._sender.issuer
        facts = transition.facts()
        holds = tuple(find_holds(facts))
        after, decisions = emit(after, drafts, transition.plan, tuple(each.id for each in seen), issuer, now)
        after, record = emit_record(before, after, facts, holds, drafts, issuer, now)
        found = conditions(self._cluster, facts, holds)
        book, raised, review_at = review(after.alerts, found, now, self._sender)
        due_ms = [ms for ms in _due_ms(after, facts, holds) if ms > now_ms]
        due_ms += [to_millis(review_at)] if review_at else []
        wake_at = from_millis(min(due_ms)) if due_ms else None
        return Published(replace(after, alerts=book), (*decisions, *record, *raised), wake_at)


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
