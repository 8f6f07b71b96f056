"""When a verdict may change by time alone, without a new observation."""

from collections.abc import Iterator
from datetime import datetime

from policies.sessions.decisions import OwnershipVerdict, SessionVerdict
from policies.sessions.emit import RENEWED, lapses_ms
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.fold.session_machine import Timeouts
from policies.sessions.judge.members import shutdown_delay_ms
from policies.sessions.judge.recovery import FINAL
from policies.sessions.state import Claim, SessionTrack
from policies.units import from_millis, millis_of, to_millis


def wake_at(facts: Facts, timeouts: Timeouts, review_at: datetime | None) -> datetime | None:
    """When the next step may have something to say; None when only a reading can change anything.

    Args:
        facts: those that remain after the step.
        timeouts: those of the sessions' state machines.
        review_at: when an alert is due.
    """
    due = [ms for ms in _due_ms(facts, timeouts, review_at) if ms > facts.now_ms]
    return from_millis(min(due)) if due else None


def _due_ms(facts: Facts, timeouts: Timeouts, review_at: datetime | None) -> Iterator[int]:
    if review_at is not None:
        yield to_millis(review_at)
    for source in facts.sources.values():
        yield from (ms + facts.validity_ms + 1 for ms in (source.tried_ms, source.read_ms) if ms >= 0)
    free_ms = facts.budget.free_ms(facts.now_ms)
    if free_ms is not None:
        yield free_ms
    for member in facts.members.values():
        yield from _of_member(member, facts, timeouts)
        for claim in member.claims:
            yield from _of_claim(claim.claim, member.track, facts)
    for node in facts.bundles():
        if not node.exists:
            yield from (ms for ms in (facts.orphan_ms(node), facts.orphan_ends_ms(node)) if ms is not None)


def _of_member(member: MemberFacts, facts: Facts, timeouts: Timeouts) -> Iterator[int]:
    record, last = member.member, member.member.last_published
    yield record.tried_ms + facts.validity_ms + 1
    for absence in (member.liveness.unregistered, member.liveness.unlisted):
        if absence is not None:
            yield absence.due_ms
    if last is not None and last.verdict in RENEWED:
        yield lapses_ms(last.published_ms, facts)
    if record.awaited_ms is not None:
        yield record.awaited_ms + millis_of(facts.settings.load_data_after)
    missed_ms = facts.load_data_missed_ms(member)
    if missed_ms is not None:
        yield missed_ms
    if member.track is not None:
        yield from _of_session(member.track, timeouts)
        yield from _of_loss(member.track, member, facts)


def _of_session(track: SessionTrack, timeouts: Timeouts) -> Iterator[int]:
    if track.lapse_ms is not None:
        yield track.lapse_ms
    if track.unsettled:
        yield track.since_ms + timeouts.settle_ms
    yield track.read_ms + timeouts.validity_ms + 1


def _of_loss(track: SessionTrack, member: MemberFacts, facts: Facts) -> Iterator[int]:
    settings, lost_ms, last = facts.settings, track.lost_ms, member.member.last_published
    if lost_ms is None:
        return
    yield lost_ms + millis_of(settings.fleet_window)
    if track.is_lost:
        yield lost_ms + shutdown_delay_ms(track, settings)
        yield lost_ms + millis_of(settings.reconnect_deadline)
    begun = last is not None and last.verdict is SessionVerdict.RECOVER and last.published_ms == facts.now_ms
    if begun and all(c.claim.verdict in FINAL for c in member.claims):
        yield facts.now_ms + 1  # the plan that was published in this step is already carried out


def _of_claim(claim: Claim, track: SessionTrack | None, facts: Facts) -> Iterator[int]:
    if claim.last_published is not None:
        yield lapses_ms(claim.last_published.published_ms, facts)
    if track is not None and track.reestablished_ms is not None and claim.verdict is OwnershipVerdict.WAIT:
        yield track.reestablished_ms + facts.settings.wait_for_deletion_ms(track.timeout_ms)
