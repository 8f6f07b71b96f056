"""The sessions policy: what each member does when its ZooKeeper session is lost, and what becomes of what it owned.

One step folds the readings in, rules on each bundle that is claimed, then on each member, and says what changed.
Rules: docs/design/sessions.md.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.alerts import Sender, review
from policies.decisions import Decision
from policies.observations import Observation
from policies.policy import Step
from policies.sessions import alerts, fleet, timers, verdicts
from policies.sessions.decision import OwnershipDecision, OwnershipVerdict, SessionReason, SessionVerdict, Status
from policies.sessions.fleet import Budget
from policies.sessions.knowledge import Knowledge
from policies.sessions.member import Patience
from policies.sessions.publish import NAME, Press
from policies.sessions.recovery import has_published, rule_all
from policies.sessions.scene import Order, Scene
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Claim, Member, SessionsState
from policies.units import from_millis, millis_of, to_millis

_LAST = 2**63


class SessionsPolicy:
    """Decides for the members of one cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: SessionsSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)
        self._patience = Patience(millis_of(settings.settle), millis_of(settings.validity))

    def step(
        self, state: SessionsState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SessionsState]:
        """Fold the observations in, rule on every claim and every member, and say what changed."""
        before = state or SessionsState(to_millis(now))
        known = self._known(before, observations, to_millis(now))
        scene = self._scene(known, before, to_millis(now))
        press = Press(self._cluster, self._sender.issuer.settings_hash, scene, before.sequence)
        bundles = _rule_bundles(press)
        sessions = _rule_members(press)
        known.tidy(scene.now_ms, self._patience.validity_ms)
        view = alerts.View(self._cluster, scene, before.alerts)
        book, raised, review_at = review(before.alerts, alerts.conditions(view), now, self._sender)
        after = SessionsState(
            before.started_ms,
            tuple(known.members[name] for name in sorted(known.members)),
            known.nodes.all(),
            tuple(known.claims[key] for key in sorted(known.claims)),
            tuple(known.sources[name] for name in sorted(known.sources)),
            scene.budget.left_over(scene.now_ms),
            book,
            press.sequence,
        )
        due = [ms for ms in timers.due_ms(scene, review_at) if ms > scene.now_ms]
        decisions: tuple[Decision, ...] = (*sessions, *bundles, *raised)
        return Step(after, decisions, from_millis(min(due)) if due else None)

    def _known(self, before: SessionsState, observations: Sequence[Observation], now_ms: int) -> Knowledge:
        known = Knowledge(before, self._patience)
        known.observe(observations, now_ms)
        known.contest_by_session()
        return known

    def _scene(self, known: Knowledge, before: SessionsState, now_ms: int) -> Scene:
        settings = self._settings
        unread = fleet.unread(known.members.values(), known.sources.values(), now_ms, settings)
        marked = fleet.marked(known.members, now_ms, settings)
        for member in list(known.members.values()):
            lost = member.track is not None and member.track.status is Status.SESSION_LOST
            # Once the fault was ZooKeeper's it stays ZooKeeper's, for this loss.
            if lost and not member.fleet_wide and (unread is not None or member.member in marked):
                known.update(replace(member, fleet_wide=True))
        budget = Budget(settings.shutdown_budget, millis_of(settings.shutdown_window), before.spent)
        return Scene(known, settings, now_ms, budget, unread)


def _rule_bundles(press: Press) -> list[OwnershipDecision]:
    known, found = press.scene.known, []
    for ruled in list(rule_all(press.scene)):
        claim, decision = press.bundle(ruled)
        known.claims[claim.path, claim.member] = claim
        if decision is not None:
            found.append(decision)
    return found


def _rule_members(press: Press) -> list[Decision]:
    """Who lost first is ruled on first: the budget is his."""
    known, found = press.scene.known, []
    known.index()
    for member in sorted(known.members.values(), key=_by_loss):
        order = verdicts.order_of(member, press.scene)
        if order is None:
            known.update(_published(member, press.scene))
            continue
        told, decision = press.session(member, order)
        known.update(_after(told, order, press.scene))
        if decision is not None:
            found.append(decision)
    return list(found)


def _by_loss(member: Member) -> tuple[int, str]:
    lost_ms = member.track.lost_ms if member.track else None
    return (_LAST if lost_ms is None else lost_ms, member.member)


def _after(member: Member, order: Order, scene: Scene) -> Member:
    """What follows from an order for what is remembered of the member."""
    claims = scene.known.claims_of(member.member)
    if order.verdict is SessionVerdict.GONE:
        if claims:
            scene.known.release(member.member)
        return replace(member, recovering=False, awaited_ms=None)
    if order.verdict is SessionVerdict.RECOVER and not claims:
        return replace(member, recovering=False)
    if order.reason is SessionReason.RECOVERED:
        return replace(member, recovering=False, awaited_ms=scene.now_ms if _kept(claims) else None)
    return _published(member, scene)


def _kept(claims: Sequence[Claim]) -> bool:
    return any(claim.said_verdict is OwnershipVerdict.KEEP for claim in claims)


def _published(member: Member, scene: Scene) -> Member:
    """Its load data is no longer awaited once it is there."""
    if member.awaited_ms is None or member.track is None:
        return member
    return replace(member, awaited_ms=None) if has_published(member, member.track, scene.node(member)) else member
