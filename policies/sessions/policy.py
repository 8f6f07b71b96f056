"""The sessions policy: what each member does when its ZooKeeper session is lost, and what becomes of its bundles.

Rules: docs/design/sessions.md.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from policies.alerts import Sender
from policies.book import Step
from policies.observations import Observation
from policies.sessions import NAME
from policies.sessions.alerts import Alerts
from policies.sessions.emit import DecisionPublisher, apply_step
from policies.sessions.facts import Facts, join_facts
from policies.sessions.fold import ClusterState
from policies.sessions.judge import judge
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import HeldAlert, SessionsState
from policies.sessions.timers import due_ms
from policies.units import to_millis


class SessionsPolicy:
    """Decides for the members of one cluster, by the settings in force for it."""

    name = NAME

    def __init__(self, cluster: str, settings: SessionsSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: SessionsState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SessionsState]:
        """Fold, join facts, judge, emit, apply the effects, find alert conditions and set timers, each once."""
        before = state or SessionsState(to_millis(now))
        cluster = ClusterState(before, self._settings)
        cluster.fold(observations, to_millis(now))
        facts = join_facts(cluster, before.spent, self._settings, to_millis(now))
        verdicts, budget = judge(facts)
        published = DecisionPublisher(self._issuer, facts, before.sequence).emit(verdicts)
        after = apply_step(facts, verdicts, budget, published)
        held = {(alert, subject): since_ms for alert, subject, since_ms in before.held}
        alerts = Alerts(self._cluster, after, held)
        found = [*alerts.find()]
        return Step(
            _make_state(after, before.started_ms, alerts.list_held(found), published.sequence),
            conditions=alerts.gather(found),
            due_ms=due_ms(after),
            refused=cluster.refused,
            decisions=(*published.sessions, *published.bundles),
            stay=alerts.keep_unknown,
        )


def _make_state(after: Facts, started_ms: int, held: tuple[HeldAlert, ...], sequence: int) -> SessionsState:
    claims = [claim.claim for member in after.members.values() for claim in member.claims]
    return SessionsState(
        started_ms,
        tuple(after.members[name].member for name in sorted(after.members)),
        tuple(map(after.nodes.__getitem__, sorted(after.nodes))),
        tuple(sorted(claims, key=attrgetter("path", "member"))),
        tuple(after.sources[name] for name in sorted(after.sources)),
        after.budget.left_over(after.now_ms),
        held,
        sequence,
    )
