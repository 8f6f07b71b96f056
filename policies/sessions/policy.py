"""The sessions policy: what each member does when its ZooKeeper session is lost, and what becomes of its bundles.

Rules: docs/design/sessions.md.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from policies.alerts import AlertBook, Sender, review
from policies.book import Published, find_wake_at
from policies.observations import Observation
from policies.sessions import NAME, alerts
from policies.sessions.emit import DecisionPublisher, apply_step
from policies.sessions.facts import Facts, join_facts
from policies.sessions.fold import ClusterState
from policies.sessions.judge import judge
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SessionsState
from policies.sessions.timers import due_ms
from policies.units import to_millis


class SessionsPolicy:
    """Decides for the members of one cluster, by the settings in force for it."""

    name = NAME

    def __init__(self, cluster: str, settings: SessionsSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.build(NAME, cluster, settings)

    def begin(self, now: datetime) -> SessionsState:
        """Return the state of a cluster that was never stepped."""
        return SessionsState(to_millis(now))

    def step(
        self, state: SessionsState | None, observations: Sequence[Observation], now: datetime
    ) -> Published[SessionsState]:
        """Fold, join facts, judge, emit, apply the effects, review alerts and set timers, each once."""
        before = state or self.begin(now)
        cluster = ClusterState(before, self._settings)
        cluster.fold(observations, to_millis(now))
        facts = join_facts(cluster, before.spent, self._settings, to_millis(now))
        verdicts = judge(facts)
        published = DecisionPublisher(self._sender.issuer, facts, before.sequence).emit(verdicts)
        after = apply_step(facts, verdicts, published)
        context = alerts.AlertContext(self._cluster, after, before.alerts)
        held = tuple(alerts.conditions(context))
        ends = alerts.find_ends(context, held)
        book, raised, review_at = review(before.alerts, held, now, self._sender, end=ends.get)
        decisions = (*published.sessions, *published.bundles, *raised)
        state_after = _make_state(after, before.started_ms, book, published.sequence)
        wake_at = find_wake_at([*due_ms(after)], review_at, after.now_ms)
        return Published(state_after, decisions, wake_at, refused=cluster.refused)


def _make_state(after: Facts, started_ms: int, book: AlertBook, sequence: int) -> SessionsState:
    claims = [claim.claim for member in after.members.values() for claim in member.claims]
    return SessionsState(
        started_ms,
        tuple(after.members[name].member for name in sorted(after.members)),
        tuple(map(after.nodes.__getitem__, sorted(after.nodes))),
        tuple(sorted(claims, key=attrgetter("path", "member"))),
        tuple(after.sources[name] for name in sorted(after.sources)),
        after.budget.left_over(after.now_ms),
        book,
        sequence,
    )
