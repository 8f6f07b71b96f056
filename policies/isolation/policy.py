"""The isolation policy: where the data of each namespace may lie, and which bookies nobody has assigned.

One step folds the readings in, judges every namespace by the cluster's rules and by the promise, and says what changed.
Nothing is decided on what is not known. Rules: docs/design/isolation.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from policies.alerts import AlertBook, Sender, review
from policies.decisions import EVIDENCE_LIMIT, Decision, deterministic_id
from policies.isolation import alerts
from policies.isolation.decision import (
    QUARANTINE_GROUP,
    QUARANTINE_RACK,
    BookieQuarantine,
    Placement,
    QuarantineReason,
    QuarantineVerdict,
)
from policies.isolation.knowledge import Cohort, Knowledge, is_fresh, observe
from policies.isolation.placement import Affinity, Membership
from policies.isolation.quarantine import Order, Scene, is_pending, renewal_ms, review_orders
from policies.isolation.settings import IsolationSettings
from policies.isolation.verdicts import Judged, judge, judge_one
from policies.observations import Observation
from policies.policy import Step
from policies.succession import ends_at, next_sequence
from policies.units import counted, format_duration, from_millis, to_millis

NAME = "isolation"

_NO_AFFINITY = Affinity(frozenset(), frozenset())


class Published(Struct, array_like=True, frozen=True):
    """Namespaces of which the same was published last."""

    fingerprint: str
    namespaces: tuple[str, ...]


class IsolationState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: int
    knowledge: Knowledge = Knowledge()
    published: tuple[Published, ...] = ()
    orders: tuple[Order, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """Numbers everything published but alerts; one for the cluster, so it only grows for each subject."""


@dataclass(slots=True)
class _Numbers:
    """Hands out sequence numbers within a step."""

    last: int
    now_ms: int

    def next(self, *, is_first: bool) -> int:
        self.last = next_sequence(self.last, self.now_ms, is_first=is_first)
        return self.last


@dataclass(frozen=True, slots=True)
class _Memo:
    """The verdicts of the last step and what they are a function of; without it they come out the same."""

    cohorts: tuple[Cohort, ...] = ()
    membership: Membership | None = None
    judged: tuple[Judged, ...] = ()


class IsolationPolicy:
    """Decides for the namespaces and bookies of one cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: IsolationSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)
        self._last = _Memo()

    def step(
        self, state: IsolationState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[IsolationState]:
        """Fold the observations in, judge every namespace, and say what changed."""
        before = state or IsolationState(to_millis(now))
        scene = self._scene(observe(before.knowledge, observations, self._settings), now)
        numbers, evidence = _Numbers(before.sequence, to_millis(now)), _evidence(scene.knowledge)
        published, placements = self._publish(before.published, scene, numbers, evidence)
        orders, news = review_orders(before.orders, scene)
        ordered = {order.bookie for order in before.orders}
        quarantines = [
            self._quarantine(order, scene, numbers.next(is_first=order.bookie not in ordered), evidence)
            for order in news
        ]
        view = alerts.View(self._cluster, scene, orders, before.alerts, before.started_ms, evidence)
        book, raised, review_at = review(before.alerts, alerts.conditions(view), now, self._sender)
        after = IsolationState(before.started_ms, scene.knowledge, published, orders, book, numbers.last)
        decisions: tuple[Decision, ...] = (*placements, *quarantines, *raised)
        return Step(after, decisions, _wake_at(view, review_at))

    def _scene(self, knowledge: Knowledge, now: datetime) -> Scene:
        membership = knowledge.membership()
        fresh = {name: is_fresh(source, self._settings, now) for name, source in knowledge.sources.items()}
        return Scene(
            knowledge=knowledge,
            membership=membership,
            judged=self._judged(knowledge.cohorts, membership),
            settings=self._settings,
            now=now,
            registrations_fresh=fresh["bookies"] and fresh["racks"],
            all_fresh=all(fresh.values()),
        )

    def _judged(self, cohorts: tuple[Cohort, ...], membership: Membership) -> tuple[Judged, ...]:
        """Judges anew only what changed since the last step: most readings say what the one before them said."""
        if (cohorts, membership) != (self._last.cohorts, self._last.membership):
            self._last = _Memo(cohorts, membership, judge(cohorts, membership, self._settings))
        return self._last.judged

    def _publish(
        self, before: tuple[Published, ...], scene: Scene, numbers: _Numbers, evidence: tuple[str, ...]
    ) -> tuple[tuple[Published, ...], list[Placement]]:
        """What is now published, and the placements that are news; a namespace that left is named a last time."""
        if not scene.all_fresh:
            return before, []
        known = {name: said.fingerprint for said in before for name in said.namespaces}
        placed = frozenset(known)
        marks = [f"{j.fingerprint}-{self._settings.mode}" for j in scene.judged]
        news = [
            (name, judged)
            for judged, mark in zip(scene.judged, marks, strict=True)
            for name in judged.namespaces
            if known.pop(name, None) != mark
        ]
        if known:
            without = judge_one((), _NO_AFFINITY, None, None, scene.membership, self._settings)
            news += [(name, without) for name in sorted(known)]
        placements = [
            self._placement(name, judged, numbers.next(is_first=name not in placed), scene, evidence)
            for name, judged in news
        ]
        return (_published(scene.judged, marks) if news else before), placements

    def _placement(
        self, namespace: str, judged: Judged, sequence: int, scene: Scene, evidence: tuple[str, ...]
    ) -> Placement:
        subject = f"{self._cluster}/{namespace}"
        return Placement(
            decision_id=deterministic_id(NAME, self._cluster, "placement", subject, sequence),
            policy=NAME,
            cluster=self._cluster,
            subject=subject,
            sequence=sequence,
            verdict=judged.verdict,
            reason=judged.reason,
            explanation=f"{namespace} {judged.what}.",
            decided_at=scene.now,
            mode=self._settings.mode,
            settings_hash=self._sender.issuer.settings_hash,
            evidence=evidence,
            numbers=_numbers(judged),
            namespace=namespace,
            rules=judged.rules,
            promise=judged.promise,
            ensemble_size=judged.ensemble_size,
            tier=judged.placed.tier,
            feasible=judged.placed.feasible,
            candidates=judged.candidates,
            promised_candidates=judged.promised_candidates,
            promised_feasible=judged.promised.feasible,
            leak=tuple(sorted(judged.leak)),
            headroom=judged.placed.headroom,
        )

    def _quarantine(self, order: Order, scene: Scene, sequence: int, evidence: tuple[str, ...]) -> BookieQuarantine:
        subject = f"{self._cluster}/{order.bookie}"
        return BookieQuarantine(
            decision_id=deterministic_id(NAME, self._cluster, "quarantine", subject, sequence),
            policy=NAME,
            cluster=self._cluster,
            subject=subject,
            sequence=sequence,
            verdict=order.verdict,
            reason=order.reason,
            explanation=_explain(order, scene),
            decided_at=scene.now,
            mode=self._settings.mode,
            settings_hash=self._sender.issuer.settings_hash,
            evidence=evidence,
            numbers={"quarantined": sorted(scene.quarantined), "max_quarantined": self._settings.max_quarantined},
            bookie=order.bookie,
            group=QUARANTINE_GROUP,
            rack=QUARANTINE_RACK,
            session=order.session,
            czxid=order.czxid,
            registered_at=from_millis(order.registered_ms),
            valid_until=ends_at(scene.now, self._settings.validity),
        )


def _published(judged: Sequence[Judged], marks: Sequence[str]) -> tuple[Published, ...]:
    alike: dict[str, list[str]] = {}
    for one, mark in zip(judged, marks, strict=True):
        alike.setdefault(mark, []).extend(one.namespaces)
    return tuple(Published(mark, tuple(sorted(alike[mark]))) for mark in sorted(alike))


def _evidence(knowledge: Knowledge) -> tuple[str, ...]:
    """The good readings that all of this rests on, the newest first."""
    newest = sorted(knowledge.sources.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    return tuple(dict.fromkeys(source.read_id for source in newest if source.read_id))[:EVIDENCE_LIMIT]


def _numbers(judged: Judged) -> dict[str, object]:
    """For the audit: how many bookies of each kind there were."""
    return {
        "writable": judged.writable,
        "primary": len(judged.placed.primary),
        "secondary": len(judged.placed.secondary),
        "unassigned": len(judged.placed.unassigned),
        "promised_tier": judged.promised.tier.value,
        "promised_headroom": judged.promised.headroom,
    }


def _explain(order: Order, scene: Scene) -> str:
    """One plain sentence from the values that decided."""
    settings, bookie = scene.settings, order.bookie
    allowed = counted(settings.max_quarantined, "bookie")
    whys = {
        QuarantineReason.UNASSIGNED: f"has been in no group for {format_duration(settings.grace)} or longer",
        QuarantineReason.MAX_QUARANTINED: f"is in no group, but the {allowed} that max_quarantined allows "
        "are in quarantine or on their way there",
        QuarantineReason.WOULD_BE_INFEASIBLE: f"is in no group, but without it {order.starved} could not place data",
        QuarantineReason.NO_GROUPS: "is in no group, but the cluster has none, and the first would constrain everyone",
        QuarantineReason.ASSIGNED: "is in a group now",
        QuarantineReason.GONE: "is no longer registered",
        QuarantineReason.SWITCHED_OFF: "is no longer of concern: quarantine is switched off",
    }
    what = {
        QuarantineVerdict.QUARANTINE: f"it is to be put into {QUARANTINE_GROUP}",
        QuarantineVerdict.WITHHOLD: "it is left to a person",
        QuarantineVerdict.LIFT: "nothing is to be done about it",
    }
    return f"Bookie {bookie} {whys[order.reason]}: {what[order.verdict]}."


def _wake_at(view: alerts.View, review_at: datetime | None) -> datetime | None:
    now_ms = to_millis(view.scene.now)
    due = [ms for ms in _due_ms(view, review_at) if ms > now_ms]
    return from_millis(min(due)) if due else None


def _due_ms(view: alerts.View, review_at: datetime | None) -> Iterator[int]:
    """When (milliseconds) something may change without an observation."""
    if review_at is not None:
        yield to_millis(review_at)
    yield from alerts.due_ms(view)
    yield from (renewal_ms(o, view.scene.settings) for o in view.orders if is_pending(o, view.scene))
