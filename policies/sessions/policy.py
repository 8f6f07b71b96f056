"""The sessions policy: what each member does when its ZooKeeper session is lost, and what becomes of its bundles.

A step turns verdicts into decisions: those that differ from the decision in force, or renew one that lapsed.
Rules: docs/design/sessions.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec.structs import replace as update

from policies.alerts import Sender
from policies.book import Step
from policies.decisions import EVIDENCE_LIMIT, Issuer, Mode, Publication, unique_ids
from policies.observations import Observation
from policies.sessions import NAME, OwnershipDecision, SessionDecision, SessionsSettings, SessionsState
from policies.sessions.alerts import Alerts
from policies.sessions.decisions import OwnershipVerdict, SessionReason, SessionStatus, SessionVerdict
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts, join_facts
from policies.sessions.fleet import Budget
from policies.sessions.fold import ClusterState
from policies.sessions.judge import FINAL, MemberOrder, MemberVerdict, judge, shutdown_delay_ms
from policies.sessions.readings import bundle_of
from policies.sessions.rulings import BundleRuling, explain_ruling, unread_from_ms
from policies.sessions.state import HeldAlert, LastPublishedOrder, LastPublishedRuling, SessionTrack
from policies.units import from_millis, millis_of, to_millis

NAMED_BUNDLES = 100

RENEWED = frozenset({SessionVerdict.HOLD, SessionVerdict.RECONNECT, SessionVerdict.RECOVER})
"""These are published again when they lapse and still apply; a shutdown is published once."""
_RENEWED_BUNDLES = frozenset({OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN})


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
        """Fold, join facts, judge, decide, apply the effects, find alert conditions and set timers, each once."""
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
            conditions=found,
            due_ms=(ms for ms in list_timers(after) if ms is not None),
            refused=cluster.refused,
            decisions=(*published.sessions, *published.bundles),
            stay=alerts.keep_unknown,
        )


class DecisionPublisher:
    """Turns the verdicts of one step into decisions, and numbers them after the last `sequence`."""

    def __init__(self, issuer: Issuer, facts: Facts, sequence: int) -> None:
        self._issuer = issuer
        self._facts = facts
        self._publication = Publication(facts.now_ms, sequence)
        self.sequence = sequence
        self.sessions: list[SessionDecision] = []
        self.bundles: list[OwnershipDecision] = []
        self.orders: dict[str, LastPublishedOrder] = {}
        self.rulings: dict[tuple[str, str], LastPublishedRuling] = {}

    def emit(self, verdicts: Iterable[MemberVerdict]) -> "DecisionPublisher":
        """Make the decisions: bundles by path and member, then members in the order of their losses."""
        ruled = [(claim, ruling, v.member) for v in verdicts for claim, ruling in v.rulings]
        for claim, ruling, member in sorted(ruled, key=lambda each: each[0].claim.key):
            last, node = claim.claim.last_published, claim.node
            if last is not None and node is not None and node.is_in_turn and ruling.verdict is not last.verdict:
                continue
            retry = (ruling.retry_ms, ruling.expected_version)
            session, mode = member.member.session, self._facts.settings.mode
            content = _join(ruling.verdict, ruling.reason, *retry, session, claim.claim.since_ms, mode)
            if self._is_needed(content, last, is_renewed=ruling.verdict in _RENEWED_BUNDLES):
                published = LastPublishedRuling(ruling.verdict, ruling.reason, self._facts.now_ms, content)
                self.rulings[claim.claim.key] = published
                self.bundles.append(self._rule(claim, ruling, session, member.member.read_id))
        for verdict in verdicts:
            if (order := verdict.order) is not None:
                content, last_order = self._order_content(verdict.member, order), verdict.member.member.last_published
                is_renewed = order.verdict in RENEWED
                if order.brings_down or self._is_needed(content, last_order, is_renewed=is_renewed):
                    self.sessions.append(self._order(verdict, order, content))
        self.sequence = self._publication.sequence
        return self

    def _is_needed(
        self, content: str, last: LastPublishedOrder | LastPublishedRuling | None, *, is_renewed: bool
    ) -> bool:
        if last is None or content != last.fingerprint:
            return True
        return is_renewed and self._facts.now_ms >= self._facts.schedule.due_ms(last.published_ms)

    def _order_content(self, member: MemberFacts, order: MemberOrder) -> str:
        """The content of an order; a change of it is published. While a member flaps, its losses do not count."""
        parts: list[object] = [order.verdict, order.reason, self._facts.settings.mode]
        track = member.track
        if track is not None and order.reason is not SessionReason.UNSETTLED:
            parts += [track.status, track.session, track.lost_ms]
            if order.reason in (SessionReason.CONNECTION_LOST, SessionReason.RECONNECTED):
                parts.append(track.since_ms)
        return _join(*parts)

    def _order(self, verdict: MemberVerdict, order: MemberOrder, content: str) -> SessionDecision:
        facts, member, track = self._facts, verdict.member.member, verdict.member.track
        paths = tuple(c.claim.path for c in verdict.member.owned)
        is_recovery = order.verdict is SessionVerdict.RECOVER
        recovered_ms = facts.now_ms - (member.lost_ms or 0)
        self.orders[member.member] = LastPublishedOrder(
            order.verdict, order.reason, facts.now_ms, content, member.lost_ms, facts.settings.mode is Mode.SHADOW
        )
        return SessionDecision(
            **self._next_header("session", member.member, is_first=member.last_published is None),
            verdict=order.verdict,
            reason=order.reason,
            explanation=f"{member.role.capitalize()} {member.member} {order.message}.",
            evidence=unique_ids(*order.evidence)[:EVIDENCE_LIMIT],
            numbers={"fleet_wide": member.fleet_wide, "shutdowns_spent": verdict.shutdowns_spent},
            member=member.member,
            role=member.role,
            status=track.status if track else None,
            events=member.events,
            session=track.session if track else None,
            timeout_ms=member.timeout_ms,
            seconds_left=None if order.left_ms is None else max(0, order.left_ms) / 1000,
            plan=facts.settings.recovery_order if is_recovery else (),
            bundles=paths[:NAMED_BUNDLES] if is_recovery else (),
            bundle_count=len(paths) if facts.has_ownership else None,
            losses=len(track.losses) if track else 0,
            attempts=member.attempts,
            recovery_seconds=recovered_ms / 1000 if order.reason is SessionReason.RECOVERED else None,
        )

    def _rule(self, claim: ClaimFacts, ruling: BundleRuling, session: str | None, read_id: str) -> OwnershipDecision:
        facts, node, bundle = self._facts, claim.node, bundle_of(claim.claim.path)
        name, is_first = f"{claim.claim.member}/{bundle}", claim.claim.last_published is None
        return OwnershipDecision(
            **self._next_header("ownership", name, is_first=is_first),
            verdict=ruling.verdict,
            reason=ruling.reason,
            explanation=explain_ruling(bundle, (claim, ruling), session),
            evidence=unique_ids(node.read_id if node else "", read_id),
            numbers={"rivals": sorted(claim.rivals), "czxid": node.czxid if node else None},
            member=claim.claim.member,
            bundle=bundle,
            path=claim.claim.path,
            rules=facts.settings.ownership_rules,
            owner=node.owner if node and node.exists else None,
            node_session=node.session if node and node.exists else None,
            session=session,
            expected_version=ruling.expected_version,
            delete_first=ruling.expected_version is not None,
            preload=ruling.verdict is OwnershipVerdict.RE_OWN,
            close_first=ruling.verdict is OwnershipVerdict.UNLOAD,
            retry_ms=ruling.retry_ms,
            seconds_left=None if ruling.left_ms is None else ruling.left_ms / 1000,
        )

    def _next_header(self, kind: str, name: str, *, is_first: bool) -> dict[str, Any]:
        subject, now = f"{self._issuer.cluster}/{name}", from_millis(self._facts.now_ms)
        header = self._issuer.header(subject, self._publication.next(is_first=is_first), now, about=(kind, subject))
        return {**header, "valid_until": self._facts.schedule.ends_at(now)}


def _join(*parts: object) -> str:
    return "|".join(map(str, parts))


# Applies a step to the facts, without a decision. The result is the input of alerts and timers, and the next state.


def apply_step(facts: Facts, verdicts: Iterable[MemberVerdict], budget: Budget, published: DecisionPublisher) -> Facts:
    """Return the facts after a step: with its publications, and without claims that are over."""
    after = [_apply_verdict(verdict, published, facts.now_ms) for verdict in verdicts]
    claimants = Counter(claim.claim.path for member in after for claim in member.claims)
    members: dict[str, MemberFacts] = {}
    for member in after:
        kept = tuple(c for c in member.claims if not _is_over(c, member, claimants[c.claim.path] > 1, facts))
        members[member.name] = update(member, claims=kept)
    return replace(facts, members=members, budget=budget)


def _apply_verdict(verdict: MemberVerdict, published: DecisionPublisher, now_ms: int) -> MemberFacts:
    facts, member, order = verdict.member, verdict.member.member, verdict.order
    rulings = ((claim, published.rulings.get(claim.claim.key)) for claim in facts.claims)
    claims = (c if r is None else update(c, claim=update(c.claim, last_published=r)) for c, r in rulings)
    if member.member in published.orders:
        member = update(member, last_published=published.orders[member.member], events=())
    if order is not None and order.verdict is SessionVerdict.GONE:
        member = update(member, recovering=False, awaited_ms=None)
    elif order is not None and order.reason is SessionReason.RECOVERED:
        member = update(member, recovering=False, awaited_ms=now_ms)
    elif facts.has_published and member.awaited_ms is not None:
        member = update(member, awaited_ms=None)
    return update(facts, member=member, claims=tuple(claims))


def _is_over(claimed: ClaimFacts, member: MemberFacts, is_contested: bool, facts: Facts) -> bool:
    track, last = member.track, claimed.claim.last_published
    if track is None:
        return True
    if member.member.recovering:
        return False
    if last is not None and last.verdict is OwnershipVerdict.UNLOAD:
        # Without a report that the bundle is unloaded, the claim ends when the ruling expires. Member and node must
        # have been read since then, because silence does not end a claim.
        lapsed_ms, node = facts.schedule.due_ms(last.published_ms), claimed.node
        return node is not None and min(track.read_ms, node.read_ms) >= lapsed_ms
    return not is_contested and track.status is SessionStatus.ESTABLISHED


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
        yield member.member.begun_ms + shutdown_delay_ms(member, track, settings)
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
