"""What the isolation policy warns of: conditions that are the case now.

Absence of data neither raises nor resolves anything: while the readings a condition rests on are unread, what was said
stays said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from policies.alerts import AlertBook, Condition, Entry
from policies.decisions import Mode, Severity
from policies.isolation.decision import PlacementVerdict
from policies.isolation.knowledge import NEVER, Bookie, Presence, Source, is_fresh
from policies.isolation.quarantine import Order, Scene, is_pending
from policies.isolation.verdicts import Judged
from policies.isolation.words import NAMED_LIMIT, listed
from policies.units import counted, format_duration, millis_of, to_millis

UNASSIGNED = "unassigned-bookie"
IDLE = "unassigned-bookie-idle"
MISSING = "group-member-missing"
LEAK = "isolation-leak"
INFEASIBLE = "placement-infeasible"
HEADROOM = "isolation-headroom"
UNREAD = "bookies-unread"
OVERDUE = "quarantine-overdue"

OVERDUE_MS = 60_000
"""An order that nobody has carried out for so long is overdue."""

_OF_BOOKIES = frozenset({UNASSIGNED, IDLE, MISSING, OVERDUE})
_OF_NAMESPACES = frozenset({LEAK, INFEASIBLE, HEADROOM})
_UNREAD_READINGS = {
    "bookies": "the registrations of its bookies",
    "racks": "its bookie groups",
    "affinity": "the affinity of its namespaces",
}


@dataclass(frozen=True, slots=True)
class View:
    """What the conditions are read from."""

    cluster: str
    scene: Scene
    orders: Sequence[Order]
    book: AlertBook
    started_ms: int
    evidence: tuple[str, ...]


def conditions(view: View) -> Iterator[Condition]:
    """Everything that is the case now."""
    yield from _unread(view)
    if view.scene.registrations_fresh:
        yield from _unassigned(view)
        yield from _idle(view)
        yield from _missing(view)
        yield from _overdue(view)
    else:
        yield from _kept(view.book, _OF_BOOKIES)
    if view.scene.all_fresh:
        yield from _of_namespaces(view)
    else:
        yield from _kept(view.book, _OF_NAMESPACES)


def due_ms(view: View) -> Iterator[int]:
    """When (milliseconds) a condition may begin to hold without a reading; some may have passed."""
    settings = view.scene.settings
    yield view.started_ms + millis_of(settings.validity)
    yield from (
        source.read_ms + millis_of(settings.validity)
        for source in view.scene.knowledge.sources.values()
        if source.read_ms != NEVER
    )
    for bookie in view.scene.knowledge.bookies:
        if bookie.assigned is False:
            yield bookie.since_ms + millis_of(settings.grace)
        elif bookie.assigned and (missing_ms := _missing_ms(bookie)) is not None:
            yield missing_ms + millis_of(settings.member_missing_after)
    yield from (order.since_ms + OVERDUE_MS for order in view.orders if is_pending(order, view.scene))


def _unread(view: View) -> Iterator[Condition]:
    """One for the cluster, when any of the three readings has been unread for `validity`."""
    scene, validity_ms = view.scene, millis_of(view.scene.settings.validity)
    unread = {
        name: source
        for name, source in scene.knowledge.sources.items()
        if not is_fresh(source, scene.settings, scene.now)
        and to_millis(scene.now) - max(source.read_ms, view.started_ms) >= validity_ms
    }
    if not unread:
        return
    which = "; ".join(f"{_UNREAD_READINGS[name]} ({_why_unread(source)})" for name, source in unread.items())
    yield Condition(
        alert=UNREAD,
        subject=view.cluster,
        severity=Severity.WARNING,
        reason=_why_unread(next(iter(unread.values()))),
        summary=f"{view.cluster} is unread for {format_duration(scene.settings.validity)}, "
        f"and nothing new is decided on what is not known: {which}",
        labels={"cluster": view.cluster, "readings": ",".join(unread)},
        evidence=tuple(source.tried_id for source in unread.values() if source.tried_id),
    )


def _why_unread(source: Source) -> str:
    return source.outcome if source.outcome not in ("", "ok") else "silence"


def _unassigned(view: View) -> Iterator[Condition]:
    scene, said = view.scene, view.book.keys()
    grace_ms, now_ms = millis_of(scene.settings.grace), to_millis(scene.now)
    for bookie in _without_group(view, Presence.WRITABLE):
        fires = (UNASSIGNED, _subject(view, bookie.bookie)) in said
        if not fires and (bookie.missing_ms is not None or now_ms < bookie.since_ms + grace_ms):
            continue
        if bookie.bookie in scene.quarantined:
            summary = f"bookie {bookie.bookie} of {view.cluster} is in quarantine until somebody puts it into a group"
            yield _of_bookie(view, UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            yield _exposed(view, bookie.bookie)


def _exposed(view: View, bookie: str) -> Condition:
    """Of a writable bookie in no group: critical when isolated namespaces place data on it."""
    users = [j for j in view.scene.judged if j.is_isolated and bookie in j.placed.candidates]
    count = sum(len(j.namespaces) for j in users)
    summary = f"bookie {bookie} of {view.cluster} takes data and is in no group"
    if not count:
        return _of_bookie(view, UNASSIGNED, Severity.WARNING, "unassigned", bookie, summary)
    first = list(islice(merge(*(j.namespaces for j in users)), NAMED_LIMIT))
    return _of_bookie(
        view, UNASSIGNED, Severity.CRITICAL, "unassigned", bookie,
        f"{summary}; {counted(count, 'isolated namespace')} can place data on it now: {listed(first, count)}",
        {"namespaces": ",".join(first), "namespace_count": str(count)},
    )  # fmt: skip


def _idle(view: View) -> Iterator[Condition]:
    """Unassigned bookies that take no data now; they would as soon as they are back."""
    grace_ms, now_ms = millis_of(view.scene.settings.grace), to_millis(view.scene.now)
    for presence, how in ((Presence.READ_ONLY, "read-only"), (Presence.OFFLINE, "not registered")):
        for bookie in _without_group(view, presence):
            if now_ms >= bookie.since_ms + grace_ms:
                summary = f"bookie {bookie.bookie} of {view.cluster} is {how} and in no group"
                yield _of_bookie(view, IDLE, Severity.INFO, presence.value, bookie.bookie, summary)


def _without_group(view: View, presence: Presence) -> Iterator[Bookie]:
    return (b for b in view.scene.knowledge.bookies if b.presence is presence and b.assigned is False)


def _missing(view: View) -> Iterator[Condition]:
    after = view.scene.settings.member_missing_after
    for bookie in view.scene.knowledge.bookies:
        missing_ms = _missing_ms(bookie)
        if bookie.assigned and missing_ms is not None and to_millis(view.scene.now) >= missing_ms + millis_of(after):
            groups = [g for g, members in (view.scene.knowledge.groups or ()) if bookie.bookie in members]
            yield _of_bookie(
                view, MISSING, Severity.WARNING, "not_registered", bookie.bookie,
                f"bookie {bookie.bookie} of {view.cluster} is in {listed(groups, len(groups))}, "
                f"but has not been registered for {format_duration(after)}",
                {"groups": ",".join(groups[:NAMED_LIMIT])},
            )  # fmt: skip


def _missing_ms(bookie: Bookie) -> int | None:
    """Since when it is not registered; null while it is."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms


def _overdue(view: View) -> Iterator[Condition]:
    """In shadow mode nobody is to carry anything out."""
    for order in view.orders:
        overdue = to_millis(view.scene.now) >= order.since_ms + OVERDUE_MS
        if overdue and order.mode is Mode.ACTIVE and is_pending(order, view.scene):
            summary = f"bookie {order.bookie} of {view.cluster} was to be put into quarantine, and nobody has done so"
            yield _of_bookie(view, OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, summary)


def _of_namespaces(view: View) -> Iterator[Condition]:
    for judged in view.scene.judged:
        for alert, severity, what in _of_judged(judged):
            for namespace in judged.namespaces:
                yield Condition(
                    alert=alert,
                    subject=_subject(view, namespace),
                    severity=severity,
                    reason=judged.reason.value,
                    summary=f"{namespace} of {view.cluster} {what}",
                    labels={"cluster": view.cluster, "namespace": namespace},
                    evidence=view.evidence,
                )


def _of_judged(judged: Judged) -> Iterator[tuple[str, Severity, str]]:
    if not judged.placed.feasible:
        yield INFEASIBLE, Severity.CRITICAL, judged.what
    if judged.verdict is PlacementVerdict.LEAKS:
        yield LEAK, Severity.CRITICAL, judged.what
    if judged.placed.headroom == 1 and judged.verdict is not PlacementVerdict.UNCONSTRAINED:
        yield HEADROOM, Severity.WARNING, f"must reach further when one more bookie is lost: it {judged.what}"


def _kept(book: AlertBook, names: frozenset[str]) -> Iterator[Condition]:
    """What was said of these alerts, said again as it was; what waits for its grace waits anew."""
    return (_as_said(entry) for entry in book.entries if entry.alert in names and entry.said_ms is not None)


def _as_said(entry: Entry) -> Condition:
    severity = Severity(entry.severity)
    return Condition(entry.alert, entry.subject, severity, entry.reason, entry.summary, entry.labels)


def _of_bookie(
    view: View, alert: str, severity: Severity, reason: str, bookie: str, summary: str,
    labels: Mapping[str, str] | None = None,
) -> Condition:  # fmt: skip
    return Condition(
        alert=alert,
        subject=_subject(view, bookie),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": view.cluster, "bookie": bookie, **(labels or {})},
        evidence=view.evidence,
    )


def _subject(view: View, name: str) -> str:
    return f"{view.cluster}/{name}"
