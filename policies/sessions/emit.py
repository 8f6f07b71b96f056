"""Turns verdicts into decisions: only those that differ from what is in force, with all values that decided."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policies.decisions import EVIDENCE_LIMIT, Issuer, Mode
from policies.sessions.decisions import (
    OwnershipDecision,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionVerdict,
)
from policies.sessions.facts import Facts, MemberFacts, ids
from policies.sessions.judge import MemberVerdict, Verdicts
from policies.sessions.judge.claims import RuledClaim
from policies.sessions.judge.orders import MemberOrder
from policies.sessions.messages import ruling_message
from policies.sessions.otherwise import bundle_otherwise, member_otherwise
from policies.sessions.readings import bundle_of
from policies.sessions.state import LastPublishedOrder, LastPublishedRuling
from policies.succession import ends_at, next_sequence, repeated_after
from policies.units import from_millis, millis_of

NAME = "sessions"
NAMED_BUNDLES = 100

RENEWED = frozenset({SessionVerdict.HOLD, SessionVerdict.RECONNECT, SessionVerdict.RECOVER})
"""Published again when they lapse and still hold; a shutdown is published once."""
_RENEWED_BUNDLES = frozenset({OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN})


@dataclass(frozen=True, slots=True)
class Published:
    """What is published in one step, and is in force from now on."""

    sessions: tuple[SessionDecision, ...]
    bundles: tuple[OwnershipDecision, ...]
    orders: Mapping[str, LastPublishedOrder]
    """By member."""
    rulings: Mapping[tuple[str, str], LastPublishedRuling]
    """By path and member."""
    sequence: int
    """Of the last of them."""


class DecisionPublisher:
    """Turns verdicts into decisions, and numbers them.

    Args:
        issuer: what all decisions about the cluster have in common.
        facts: those that were judged.
        sequence: of the last decision before.
    """

    def __init__(self, issuer: Issuer, facts: Facts, sequence: int) -> None:
        self._issuer = issuer
        self._facts = facts
        self._sequence = sequence
        self._orders: dict[str, LastPublishedOrder] = {}
        self._rulings: dict[tuple[str, str], LastPublishedRuling] = {}

    def emit(self, verdicts: Verdicts) -> Published:
        """What is news: bundles first, by path and member; then members in the order of their losses."""
        ruled = [(r, v.member) for v in verdicts.members for r in v.rulings]
        ruled.sort(key=lambda pair: pair[0].claim.claim.key)
        bundles = [self._bundle(ruling, member) for ruling, member in ruled if self._is_news(ruling, member)]
        sessions = [
            self._session(verdict, verdict.order)
            for verdict in verdicts.members
            if verdict.order is not None and self._is_order_news(verdict.member, verdict.order)
        ]
        return Published(tuple(sessions), tuple(bundles), self._orders, self._rulings, self._sequence)

    def _is_order_news(self, member: MemberFacts, order: MemberOrder) -> bool:
        last = member.member.last_published
        if last is None or last.fingerprint != self._order_fingerprint(member, order):
            return True
        return order.verdict in RENEWED and self._has_lapsed(last.published_ms)

    def _is_news(self, ruled: RuledClaim, member: MemberFacts) -> bool:
        last = ruled.claim.claim.last_published
        if last is None or last.fingerprint != self._ruling_fingerprint(ruled, member):
            return True
        return ruled.ruling.verdict in _RENEWED_BUNDLES and self._has_lapsed(last.published_ms)

    def _has_lapsed(self, published_ms: int) -> bool:
        return self._facts.now_ms >= lapses_ms(published_ms, self._facts)

    def _order_fingerprint(self, member: MemberFacts, order: MemberOrder) -> str:
        """What must differ for a decision to be news; while a member flaps, only that it does."""
        parts: list[object] = [order.verdict, order.reason, self._facts.settings.mode]
        track = member.track
        if track is not None and order.reason is not SessionReason.UNSETTLED:
            parts += [track.status, track.session, track.lost_ms]
            if order.reason in (SessionReason.CONNECTION_LOST, SessionReason.RECONNECTED):
                parts.append(track.since_ms)
        return _joined(parts)

    def _ruling_fingerprint(self, ruled: RuledClaim, member: MemberFacts) -> str:
        ruling, claim = ruled.ruling, ruled.claim.claim
        retry = (ruling.retry_ms, ruling.expected_version, ruling.delete_first)
        session, mode = member.member.session, self._facts.settings.mode
        return _joined([ruling.verdict, ruling.reason, *retry, session, claim.since_ms, mode])

    def _session(self, verdict: MemberVerdict, order: MemberOrder) -> SessionDecision:
        facts, member, track = self._facts, verdict.member.member, verdict.member.track
        paths = tuple(c.claim.path for c in verdict.member.claims)
        recover = order.verdict is SessionVerdict.RECOVER
        self._orders[member.member] = LastPublishedOrder(
            order.verdict, order.reason, facts.now_ms, self._order_fingerprint(verdict.member, order),
            track.lost_ms if track else None, facts.settings.mode is Mode.SHADOW,
        )  # fmt: skip
        decision = SessionDecision(
            **self._header("session", member.member, is_first=member.last_published is None),
            verdict=order.verdict,
            reason=order.reason,
            explanation=f"{member.role.capitalize()} {member.member} {order.message}.",
            evidence=ids(*order.evidence)[:EVIDENCE_LIMIT],
            numbers={"fleet_wide": member.fleet_wide, "shutdowns_spent": verdict.shutdowns_spent},
            member=member.member,
            role=member.role,
            status=track.status if track else None,
            events=member.events,
            session=track.session if track else None,
            timeout_ms=member.timeout_ms,
            seconds_left=None if order.left_ms is None else max(0, order.left_ms) / 1000,
            plan=facts.settings.recovery_order if recover else (),
            bundles=paths[:NAMED_BUNDLES] if recover else (),
            bundle_count=len(paths),
            losses=len(track.losses) if track else 0,
            attempts=member.attempts,
            recovery_seconds=None if order.recovery_ms is None else order.recovery_ms / 1000,
        )
        return decision.model_copy(update={"otherwise": member_otherwise(decision, facts.settings)})

    def _bundle(self, ruled: RuledClaim, member: MemberFacts) -> OwnershipDecision:
        facts, claim, node, ruling = self._facts, ruled.claim.claim, ruled.claim.node, ruled.ruling
        session, bundle = member.member.session, bundle_of(claim.path)
        self._rulings[claim.key] = LastPublishedRuling(
            ruling.verdict, ruling.reason, facts.now_ms, self._ruling_fingerprint(ruled, member)
        )
        decision = OwnershipDecision(
            **self._header("ownership", f"{claim.member}/{bundle}", is_first=claim.last_published is None),
            verdict=ruling.verdict,
            reason=ruling.reason,
            explanation=ruling_message(bundle, ruled, session),
            evidence=ids(node.read_id if node else "", member.member.read_id),
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
        return decision.model_copy(update={"otherwise": bundle_otherwise(decision)})

    def _header(self, kind: str, name: str, *, is_first: bool) -> dict[str, Any]:
        """What both kinds of decisions begin with; takes the next number."""
        self._sequence = next_sequence(self._sequence, self._facts.now_ms, is_first=is_first)
        subject, now = f"{self._issuer.cluster}/{name}", from_millis(self._facts.now_ms)
        header = self._issuer.header(subject, self._sequence, now, about=(kind, subject))
        return {**header, "valid_until": ends_at(now, self._facts.settings.validity)}


def lapses_ms(published_ms: int, facts: Facts) -> int:
    """When what was published then ceases to hold, in milliseconds since the epoch."""
    return published_ms + millis_of(repeated_after(facts.settings.validity, valid_for=1))


def _joined(parts: list[object]) -> str:
    return "|".join(map(str, parts))
