"""The switching policy for one broker cluster: folds readings, joins facts, judges, publishes, and raises alerts.

Rules: docs/design/switching.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.alerts import Sender, review
from policies.observations import Observation
from policies.policy import Step
from policies.switching.alerts import conditions
from policies.switching.emit.decisions import emit
from policies.switching.emit.record import emit_record, renewal_ms
from policies.switching.events import TimePassed
from policies.switching.fold import read
from policies.switching.machine import reconcile
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState
from policies.switching.transition import Transition
from policies.switching.watch import waits_end_ms
from policies.units import from_millis, to_millis

NAME = "switching"


class SwitchingPolicy:
    """Decides about the switch of one broker cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SwitchingState]:
        """Take what was observed, let time pass, and say what follows."""
        before, now_ms = state or SwitchingState(), to_millis(now)
        taken, events, ids = read(before, observations)
        transition = Transition(taken, self._settings.limits, now_ms)
        drafts = reconcile(transition, (*events, TimePassed()))
        after, decisions = emit(transition.packed(), drafts, transition.plan, ids, self._sender.issuer, now)
        after, record = emit_record(before, after, drafts, self._settings.limits, self._sender.issuer, now)
        found = conditions(self._cluster, transition.facts())
        book, raised, review_at = review(after.alerts, found, now, self._sender)
        waits = waits_end_ms(after, self._settings.limits.ack_timeout_ms)
        due_ms = [ms for ms in (*_due_ms(after), *waits) if ms > now_ms] + ([to_millis(review_at)] if review_at else [])
        wake_at = from_millis(min(due_ms)) if due_ms else None
        return Step(replace(after, alerts=book), (*decisions, *record, *raised), wake_at)


def _due_ms(state: SwitchingState) -> Iterator[int]:
    """When something may change without an observation."""
    if state.record:
        yield renewal_ms(state)
    switch = state.switch
    if switch is None:
        return
    yield from (switch.rollback_until_ms, switch.cleanup_from_ms)
    if state.lease is not None:
        yield state.lease.valid_until_ms
