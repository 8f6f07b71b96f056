"""The sessions policy: what each member does when its ZooKeeper session is lost, and what becomes of its bundles.

Rules: docs/design/sessions.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter

from policies.alerts import Sender
from policies.book import Step
from policies.observations import Observation
from policies.sessions import NAME
from policies.sessions.alerts import Alerts
from policies.sessions.decisions import OwnershipVerdict, SessionVerdict
from policies.sessions.emit import RENEWED, DecisionPublisher, apply_step
from policies.sessions.facts import Facts, MemberFacts, join_facts
from policies.sessions.fold import ClusterState
from policies.sessions.judge import FINAL, judge, shutdown_delay_ms
from policies.sessions.rulings import unread_from_ms
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import HeldAlert, SessionsState, SessionTrack
from policies.units import millis_of, to_millis


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
        before = state or SessionsState()
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
            _make_state(after, alerts.list_held(found), published.sequence),
            conditions=alerts.gather(found),
            due_ms=(ms for ms in list_timers(after) if ms is not None),
            refused=cluster.refused,
            decisions=(*published.sessions, *published.bundles),
            stay=alerts.keep_unknown,
        )


def _make_state(after: Facts, held: tuple[HeldAlert, ...], sequence: int) -> SessionsState:
    claims = [claim.claim for member in after.members.values() for claim in member.claims]
    return SessionsState(
        tuple(after.members[name].member for name in sorted(after.members)),
        tuple(map(after.nodes.__getitem__, sorted(after.nodes))),
        tuple(sorted(claims, key=attrgetter("path", "member"))),
        tuple(after.sources[name] for name in sorted(after.sources)),
        after.budget.left_over(after.now_ms),
        held,
        sequence,
    )


def list_timers(facts: Facts) -> Iterator[int | None]:
    """When the next step may decide something, by the facts that remain after this one; some may be past."""
    for source in facts.sources.values():
        yield from (ms + facts.validity_ms + 1 for ms in (source.tried_ms, source.read_ms) if ms >= 0)
    yield facts.budget.free_ms(facts.now_ms)
    yield from (facts.orphan_ms(node) for node in facts.bundles if not node.exists)
    for member in facts.members.values():
        yield member.member.tried_ms + facts.validity_ms + 1
        yield facts.load_data_missed_ms(member)
        yield from (
            each.due_ms for each in (member.liveness.unregistered, member.liveness.unlisted) if each is not None
        )
        if (last := member.member.last_published) is not None and last.verdict in RENEWED:
            yield facts.schedule.due_ms(last.published_ms)
        if member.member.awaited_ms is not None:
            yield member.member.awaited_ms + millis_of(facts.settings.load_data_after)
        if member.track is not None:
            yield from _list_session_timers(member.track, member, facts)


def _list_session_timers(track: SessionTrack, member: MemberFacts, facts: Facts) -> Iterator[int | None]:
    settings, last = facts.settings, member.member.last_published
    yield track.lapse_ms
    yield track.read_ms + facts.validity_ms + 1
    if track.unsettled:
        yield track.since_ms + settings.settle_ms
    if track.lost_ms is not None:
        yield track.lost_ms + millis_of(settings.fleet_window)
    if track.is_lost:
        yield member.begun_ms + shutdown_delay_ms(member, track, settings)
        yield member.deadline_ms
    for claim in member.claims:
        ruled = claim.claim.last_published
        if ruled is not None:
            yield facts.schedule.due_ms(ruled.published_ms)
        elif member.member.recovering:
            yield unread_from_ms(claim, track)
        if claim.claim.verdict is OwnershipVerdict.WAIT and track.reestablished_ms is not None:
            yield track.reestablished_ms + settings.wait_for_deletion_ms(track.timeout_ms)
    has_begun = last is not None and last.verdict is SessionVerdict.RECOVER and last.published_ms == facts.now_ms
    if has_begun and all(claim.claim.verdict in FINAL for claim in member.claims):
        yield facts.now_ms + 1  # the plan published in this step is complete already
