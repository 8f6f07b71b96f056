"""Turns verdicts into decisions: those that differ from the decision in force, or renew one that lapsed."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

from msgspec.structs import replace as update

from policies.decisions import EVIDENCE_LIMIT, Issuer, Mode, Publication, unique_ids
from policies.sessions.decisions import (
    OwnershipDecision,
    OwnershipReason,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionStatus,
    SessionVerdict,
)
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.judge import MemberVerdict, RuledClaim, Verdicts
from policies.sessions.orders import MemberOrder
from policies.sessions.readings import bundle_of, registration_path
from policies.sessions.state import (
    NEVER,
    SESSIONS,
    LastPublishedOrder,
    LastPublishedRuling,
    Member,
    NodeRecord,
    SourceRecord,
)
from policies.units import from_millis, human_seconds

NAMED_BUNDLES = 100

RENEWED = frozenset({SessionVerdict.HOLD, SessionVerdict.RECONNECT, SessionVerdict.RECOVER})
"""These are published again when they lapse and still apply; a shutdown is published once."""
_RENEWED_BUNDLES = frozenset({OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN})
_ACTIONS = {
    OwnershipVerdict.KEEP: "keep it",
    OwnershipVerdict.RE_OWN: "own it again",
    OwnershipVerdict.WAIT: "wait",
    OwnershipVerdict.UNLOAD: "unload it",
}


@dataclass(frozen=True, slots=True)
class Published:
    """The publications of one step."""

    sessions: tuple[SessionDecision, ...]
    bundles: tuple[OwnershipDecision, ...]
    orders: Mapping[str, LastPublishedOrder]
    """The orders published now, by member."""
    rulings: Mapping[tuple[str, str], LastPublishedRuling]
    """The rulings published now, by path and member."""
    sequence: int


class DecisionPublisher:
    """Turns verdicts into decisions, and numbers them.

    Args:
        sequence: the last sequence before this step.
    """

    def __init__(self, issuer: Issuer, facts: Facts, sequence: int) -> None:
        self._issuer = issuer
        self._facts = facts
        self._publication = Publication(facts.now_ms, sequence)
        self._orders: dict[str, LastPublishedOrder] = {}
        self._rulings: dict[tuple[str, str], LastPublishedRuling] = {}

    def emit(self, verdicts: Verdicts) -> Published:
        """Return the decisions to publish: bundles by path and member, then members in the order of their losses."""
        ruled = [(r, v.member) for v in verdicts.members for r in v.rulings]
        ruled.sort(key=lambda pair: pair[0].claim.claim.key)
        bundles: list[OwnershipDecision] = []
        for ruling, member in ruled:
            last = ruling.claim.claim.last_published
            is_in_turn = ruling.claim.node is not None and ruling.claim.node.is_in_turn
            if last is not None and is_in_turn and ruling.ruling.verdict is not last.verdict:
                continue
            fingerprint = self._ruling_fingerprint(ruling, member)
            is_renewed = ruling.ruling.verdict in _RENEWED_BUNDLES
            if self._is_needed(fingerprint, last, is_renewed=is_renewed):
                bundles.append(self._rule(ruling, member, fingerprint))
        sessions: list[SessionDecision] = []
        for verdict in verdicts.members:
            if (order := verdict.order) is not None:
                fingerprint, before = (
                    self._order_fingerprint(verdict.member, order),
                    verdict.member.member.last_published,
                )
                if order.brings_down or self._is_needed(fingerprint, before, is_renewed=order.verdict in RENEWED):
                    sessions.append(self._order(verdict, order, fingerprint))
        sequence = self._publication.sequence
        return Published(tuple(sessions), tuple(bundles), self._orders, self._rulings, sequence)

    def _is_needed(
        self, fingerprint: str, last: LastPublishedOrder | LastPublishedRuling | None, *, is_renewed: bool
    ) -> bool:
        if last is None:
            return True
        due_ms = self._facts.schedule.due_ms(last.published_ms) if is_renewed else None
        return self._publication.is_needed(fingerprint, last.fingerprint, due_ms)

    def _order_fingerprint(self, member: MemberFacts, order: MemberOrder) -> str:
        """The content of an order; a change of it is published. While a member flaps, its losses do not count."""
        parts: list[object] = [order.verdict, order.reason, self._facts.settings.mode]
        track = member.track
        if track is not None and order.reason is not SessionReason.UNSETTLED:
            parts += [track.status, track.session, track.lost_ms]
            if order.reason in (SessionReason.CONNECTION_LOST, SessionReason.RECONNECTED):
                parts.append(track.since_ms)
        return "|".join(map(str, parts))

    def _ruling_fingerprint(self, ruled: RuledClaim, member: MemberFacts) -> str:
        ruling, claim = ruled.ruling, ruled.claim.claim
        retry = (ruling.retry_ms, ruling.expected_version, ruling.delete_first)
        session, mode = member.member.session, self._facts.settings.mode
        return "|".join(map(str, (ruling.verdict, ruling.reason, *retry, session, claim.since_ms, mode)))

    def _order(self, verdict: MemberVerdict, order: MemberOrder, fingerprint: str) -> SessionDecision:
        facts, member, track = self._facts, verdict.member.member, verdict.member.track
        paths = tuple(c.claim.path for c in verdict.member.owned)
        is_recovery = order.verdict is SessionVerdict.RECOVER
        self._orders[member.member] = LastPublishedOrder(
            order.verdict, order.reason, facts.now_ms, fingerprint,
            track.lost_ms if track else None, facts.settings.mode is Mode.SHADOW,
        )  # fmt: skip
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
            bundles=paths[:NAMED_BUNDLES] if is_recovery and facts.has_ownership else (),
            bundle_count=len(paths) if facts.has_ownership else None,
            losses=len(track.losses) if track else 0,
            attempts=member.attempts,
            recovery_seconds=None if order.recovery_ms is None else order.recovery_ms / 1000,
        )

    def _rule(self, ruled: RuledClaim, member: MemberFacts, fingerprint: str) -> OwnershipDecision:
        facts, claim, node, ruling = self._facts, ruled.claim.claim, ruled.claim.node, ruled.ruling
        session, bundle = member.member.session, bundle_of(claim.path)
        published = LastPublishedRuling(ruling.verdict, ruling.reason, facts.now_ms, fingerprint)
        self._rulings[claim.key] = published
        return OwnershipDecision(
            **self._next_header("ownership", f"{claim.member}/{bundle}", is_first=claim.last_published is None),
            verdict=ruling.verdict,
            reason=ruling.reason,
            explanation=explain_ruling(bundle, ruled, session),
            evidence=unique_ids(node.read_id if node else "", member.member.read_id),
            numbers={"rivals": sorted(ruled.claim.rivals), "czxid": node.czxid if node else None},
            member=claim.member,
            bundle=bundle,
            path=claim.path,
            rules=facts.settings.ownership_rules,
            owner=node.owner if node and node.exists else None,
            node_session=node.session if node and node.exists else None,
            session=session,
            expected_version=ruling.expected_version,
            delete_first=ruling.delete_first,
            preload=ruling.verdict is OwnershipVerdict.RE_OWN,
            close_first=ruling.verdict is OwnershipVerdict.UNLOAD,
            retry_ms=ruling.retry_ms,
            seconds_left=None if ruling.left_ms is None else ruling.left_ms / 1000,
        )

    def _next_header(self, kind: str, name: str, *, is_first: bool) -> dict[str, Any]:
        subject, now = f"{self._issuer.cluster}/{name}", from_millis(self._facts.now_ms)
        header = self._issuer.header(subject, self._publication.next(is_first=is_first), now, about=(kind, subject))
        return {**header, "valid_until": self._facts.schedule.ends_at(now)}


def explain_ruling(bundle: str, ruled: RuledClaim, session: str | None) -> str:
    """The sentence of a decision about one bundle, from the values that decided."""
    ruling, node, member = ruled.ruling, ruled.claim.node, ruled.claim.claim.member
    found = (node.session if node is not None else None) or "unknown"
    owner = (node.owner if node is not None else None) or "an unknown member"
    left = "" if ruling.left_ms is None else f", {human_seconds(ruling.left_ms / 1000)} left"
    replaced = f" and is replaced at version {ruling.expected_version}" if ruling.delete_first else ""
    names = f"its node names {owner}, session {found}"
    rivals = ", ".join(sorted(ruled.claim.rivals))
    reasons = {
        OwnershipReason.ABSENT: "has no node",
        OwnershipReason.OWN_SESSION: f"has a node of its session {session}",
        OwnershipReason.OLD_SESSION: f"has a node of its old session {found} (it has {session} now){replaced}{left}",
        OwnershipReason.OLD_SESSION_PERSISTS: f"still has a node of its old session {found}: ZooKeeper has kept it",
        OwnershipReason.OTHER_OWNER: f"is owned by {owner}, session {found}",
        OwnershipReason.DOUBLE_OWNERSHIP: f"is claimed by {rivals} as well; {names}",
        OwnershipReason.NOT_EPHEMERAL: "has a node that is not ephemeral",
        OwnershipReason.UNREADABLE: f"has a node whose owner or session cannot be read: {names}",
        OwnershipReason.UNREAD: f"has not been read since the session {session} began",
    }
    retry = "" if ruling.retry_ms is None else f" and read it again after {ruling.retry_ms} ms"
    return f"{member} must {_ACTIONS[ruling.verdict]}{retry}: bundle {bundle} {reasons[ruling.reason]}."


# Applies a step to the facts: its publications, the progress of each recovery, and the end of members and nodes.
#
# Nothing is decided here. The result is the input of alerts and timers, and the next state.

FORGET_MS = 3_600_000
"""A node that has been absent for this long is forgotten, with the alerts about it."""


def apply_step(facts: Facts, verdicts: Verdicts, published: Published) -> Facts:
    """Return the facts after a step: with its publications, without members, nodes and claims that are over."""
    after = {v.member.name: _apply_verdict(v, published, facts.now_ms) for v in verdicts.members}
    sessions, known = facts.sources.get(SESSIONS, SourceRecord(SESSIONS)), (m.member for m in after.values())
    forgotten = find_forgotten(known, sessions, facts.validity_ms, verdicts.budget.down())
    members = {name: after[name] for name in facts.members if name not in forgotten}
    claimants = Counter(claim.claim.path for member in after.values() for claim in member.claims)
    members = {name: _drop_claims(member, claimants, facts) for name, member in members.items()}
    claimed = {claim.claim.path for member in members.values() for claim in member.claims}
    needed = claimed | {registration_path(name) for name in members}
    absent = [node for node in facts.nodes.values() if not node.exists]
    gone = {node.path for node in absent if is_long_absent(node)} - needed
    nodes = {p: n for p, n in facts.nodes.items() if p not in gone} if gone else facts.nodes
    sources = {
        name: s for name, s in facts.sources.items() if name == SESSIONS or facts.now_ms - s.tried_ms < FORGET_MS
    }
    roles = facts.roles
    if len(members) < len(facts.members):
        kept = {name: tuple(m for m in role.members if m.member in members) for name, role in roles.items()}
        roles = {name: replace(role, members=kept[name]) for name, role in roles.items()}
    bundles = [n for n in facts.bundles if n.path not in gone] if gone else facts.bundles
    return replace(
        facts, members=members, roles=roles, nodes=nodes, bundles=bundles, sources=sources, budget=verdicts.budget
    )


def find_forgotten(
    members: Iterable[Member], sessions: SourceRecord, validity_ms: int, down: Container[str] = ()
) -> frozenset[str]:
    """Return the members that no reading names any more, though the cluster's sessions are read.

    A member whose session was never read is forgotten if others were asked for their health since, and it was not.

    Args:
        sessions: the source of the cluster's sessions. A gap in which they were not read proves no absence.
        down: the members that were ordered down and are not back.
    """
    known = tuple(members)
    asked_ms = max((m.health.before_ms for m in known if m.health is not None), default=NEVER)
    patience_ms = max(validity_ms, FORGET_MS)

    def is_forgotten(member: Member) -> bool:
        if member.track is None:
            return asked_ms - member.seen_ms > patience_ms
        # A member without a session counts in the fleet for longer: if it is unread, the others are not more alone.
        is_kept = member.member in down or member.track.is_lost
        unseen_ms = sessions.read_ms - max(member.seen_ms, sessions.since_ms)
        return unseen_ms > (patience_ms if is_kept else validity_ms)

    return frozenset(m.member for m in known if is_forgotten(m))


def is_long_absent(node: NodeRecord) -> bool:
    """Whether a node has been absent for so long that it is forgotten, unless a member still claims it."""
    return not node.exists and node.read_ms - node.changed_ms >= FORGET_MS


def _apply_verdict(verdict: MemberVerdict, published: Published, now_ms: int) -> MemberFacts:
    facts, member, order = verdict.member, verdict.member.member, verdict.order
    claims = []
    for claim in facts.claims:
        ruling = published.rulings.get(claim.claim.key)
        claims.append(claim if ruling is None else update(claim, claim=update(claim.claim, last_published=ruling)))
    if member.member in published.orders:
        member = update(member, last_published=published.orders[member.member], events=())
    if order is not None and order.verdict is SessionVerdict.GONE:
        member = update(member, recovering=False, awaited_ms=None)
    elif order is not None and order.reason is SessionReason.RECOVERED:
        member = update(member, recovering=False, awaited_ms=now_ms)
    elif facts.has_published and member.awaited_ms is not None:
        member = update(member, awaited_ms=None)
    is_same = member is facts.member and all(map(is_, claims, facts.claims)) and len(claims) == len(facts.claims)
    return facts if is_same else update(facts, member=member, claims=tuple(claims))


def _drop_claims(member: MemberFacts, claimants: Mapping[str, int], facts: Facts) -> MemberFacts:
    kept = tuple(c for c in member.claims if not _is_over(c, member, claimants[c.claim.path] > 1, facts))
    return member if len(kept) == len(member.claims) else update(member, claims=kept)


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
