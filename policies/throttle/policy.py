"""The throttle policy: one factor for a whole cluster whose disks fill up.

Because of replication, producers on one broker fill the disk of another; so the whole cluster slows down.
Rules: docs/design/throttle.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from policies.alerts import AlertEntry, Condition, OpenAlerts, Sender
from policies.observations import Observation
from policies.policy import Step
from policies.throttle.alerts import conditions_of_cluster
from policies.throttle.decisions import ThrottleReason
from policies.throttle.emit import emit, heartbeat_ms
from policies.throttle.facts import Freshness
from policies.throttle.judgement import ThrottleJudgement, judge
from policies.throttle.settings import ThrottleSettings
from policies.throttle.standing import AlertKey, ClusterStanding
from policies.throttle.state import Gate, LastPublishedFactor, ThrottleState
from policies.units import from_millis, millis_of, to_millis

NAME = "throttle"

_MOST_ALERTS = 500
"""So many are said in one step: a cluster of which thousands of volumes are full must not hold others up."""


class ThrottlePolicy:
    """Decides the factor of one cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: ThrottleSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)
        self._warm: _Warm | None = None

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        """Fold the observations in, judge what is the case, and publish what differs."""
        before = state or ThrottleState(to_millis(now), Gate(self._settings.start_factor))
        warm, self._warm = self._warm, None  # what a step leaves half done is built anew
        if warm is None or warm.state is not state:
            warm = self._taken_over(before, warm, now)
        standing, opened = warm.standing, warm.alerts
        due = [*opened.due(now), *(opened.entries() if warm.vanished else ())]
        standing.take(observations, now, stopped_by=before.gate.stopped_by, firing=opened, also=_brokers_of(due))
        judgement = judge(standing, before)
        emitted = emit(judgement, standing, before.last_published, self._sender.issuer)
        of_cluster = _of_cluster(standing, judgement)
        over = dict.fromkeys([*warm.vanished, *warm.told, *((e.alert, e.subject) for e in due)])
        changed = {**over, **standing.changed, **of_cluster}
        book, alerts, review_at = opened.review(changed, now)
        after = ThrottleState(
            started_ms=before.started_ms,
            gate=judgement.move.gate,
            cluster=standing.known.state(),
            last_published=emitted.last_published,
            alerts=book,
            forgotten=judgement.forgotten,
        )
        self._warm = _Warm(after, standing, opened, tuple(of_cluster))
        decisions = (*((emitted.decision,) if emitted.decision else ()), *alerts)
        wake_at = _wake_at(standing, judgement, after, emitted.last_published, review_at)
        encode = partial(after.encoded, standing.known.encoded())
        return Step(after, decisions, wake_at, (emitted.note,) if emitted.note else (), encode)

    def _taken_over(self, state: ThrottleState, own: "_Warm | None", now: datetime) -> "_Warm":
        """Go on from a state that another process left, or none of this one's; `own` is what this one left last.

        Where a step is repeated, its own knowledge is ahead of the state: then all is built anew.
        """
        standing = own.standing if own is not None and own.standing.now < now else None
        if standing is None or not standing.catch_up(state.cluster):
            standing = ClusterStanding(self._cluster, self._settings, state.cluster)
        opened = OpenAlerts(state.alerts, self._sender, most=_MOST_ALERTS)
        # Of everything that was said it is to be seen whether it still is the case.
        return _Warm(state, standing, opened, vanished=tuple(opened))


@dataclass(frozen=True, slots=True)
class _Warm:
    """What one step leaves to the next, if that goes on from the same state: what stood before need not be built anew.

    It decides nothing: without it the same comes out, later.
    """

    state: ThrottleState
    standing: ClusterStanding
    alerts: OpenAlerts
    told: tuple[AlertKey, ...] = ()
    """The conditions of the cluster as a whole that were the case."""
    vanished: tuple[AlertKey, ...] = ()
    """What was said and is over, unless it is seen again."""


def _brokers_of(due: Iterable[AlertEntry]) -> list[int]:
    """The brokers of whose alerts something is to be said by now."""
    return [int(entry.labels["broker"]) for entry in due if "broker" in entry.labels]


def _of_cluster(standing: ClusterStanding, judgement: ThrottleJudgement) -> dict[AlertKey, Condition]:
    """The conditions of the cluster as a whole."""
    counts = standing.volume_counts
    unreadable = standing.unread or counts[Freshness.STALE]  # brokers that say nothing, or that cannot read their disks
    nothing_known = judgement.raw.reason is ThrottleReason.NO_DATA or bool(unreadable and not counts[Freshness.FRESH])
    unread = [standing.known.brokers[number] for number in sorted(standing.unread)] if nothing_known else []
    conditions = conditions_of_cluster(standing.cluster, judgement.forgotten, unread, nothing_known=nothing_known)
    return {condition.key: condition for condition in conditions}


def _wake_at(
    standing: ClusterStanding,
    judgement: ThrottleJudgement,
    after: ThrottleState,
    published: LastPublishedFactor,
    review_at: datetime | None,
) -> datetime:
    """When something may change without an observation; the heartbeat is always among it."""
    hold_ms = millis_of(standing.settings.departed_hold)
    due_ms = [
        heartbeat_ms(published, standing.settings),
        after.started_ms + millis_of(standing.settings.validity),
        *(forgotten.forgotten_ms + hold_ms for forgotten in judgement.forgotten),
    ]
    due_ms += [ms for ms in (judgement.move.rises_at_ms, standing.next_ms()) if ms is not None]
    if review_at is not None:
        due_ms.append(to_millis(review_at))
    return from_millis(min(ms for ms in due_ms if ms > standing.now_ms))
