"""One key's share of a batch: takes its records, steps its policy, and returns what is to be stored and written.

Pure, and the same for the query and for the replay of its batches.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from policies.decisions import Decision
from policies.maintenance import PauseCommand, PolicyPause, Quiet, commanded
from policies.observations import Observation
from policies.signatures import Signatures
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.dead_letters import ObservedRecord
from streaming.host import NEVER, PolicyHost, Remembered
from streaming.intake import Intake
from streaming.leap import turned_back
from streaming.letter_box import LetterBox
from streaming.order import LEAP_MS, Order
from streaming.output import Output
from streaming.standing import emit_standing


class KeyTransition(NamedTuple):
    """The result of `reconcile`."""

    remembered: Remembered | None
    """The state to store; None: delete it."""
    wake_ms: int | None
    """When to step the key next even without records, in milliseconds since the epoch; None: never."""
    outputs: tuple[Output, ...]
    """The records to write."""
    decisions: tuple[Decision, ...]
    """The decisions among the outputs."""


def reconcile(
    host: PolicyHost,
    prefix: str,
    key: tuple[str, str],
    before: Remembered | None,
    records: Iterable[ObservedRecord],
    now_ms: int,
    signatures: Signatures | None = None,
) -> KeyTransition:
    """Take one key's records of a batch, and step its policy if there are observations or a timer is due.

    Args:
        host: hosts the policies.
        prefix: of all topic names.
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
        before: the state stored by the last transition; None: there is none.
        records: in any order.
        now_ms: the batch's time, in milliseconds since the epoch.
        signatures: verifies records; None: records are not signed.
    """
    previous = before or NEVER
    box = LetterBox(*key, previous.letters, now_ms)
    order = _order(previous, now_ms, signatures)
    intake = Intake(host, prefix, key[1], box, order)
    outputs = [*box.counted(), *intake.take(records)]
    taken = intake.observed()
    pause, observed = _paused(previous.pause, taken), [each for each in taken if not _is_command(each)]
    quiet = _quiet(host, key, pause, now_ms)
    kept: Remembered = previous
    decisions: tuple[Decision, ...] = ()
    if observed or _is_due(previous, now_ms) or _quiet_changed(host, key, previous, quiet):
        state = before if previous.has_stepped else None
        stepped = host.step(*key, state, [o for _, o in observed], from_millis(now_ms), pause)
        if stepped.failure is not None:
            failed = BadRecordError(DeadLetterReason.POLICY_FAILED, f"{key[0]}: {stepped.failure}")
            outputs += [letter for record, _ in observed for letter in box.put(record, failed)]
        outputs += stepped.outputs
        kept, decisions = stepped.remembered, stepped.step.decisions
    last_standing, wakes = previous.last_standing, [kept.wake_ms, box.book().due_ms]
    if kept.has_stepped and not kept.failures:
        if last_standing.is_due(now_ms, quiet):
            last_standing, standing = emit_standing(host.issuer(*key), last_standing, now_ms, quiet)
            outputs.append(standing)
        wakes += [last_standing.due_ms, host.next_edge_ms(*key, pause, from_millis(now_ms))]
    after = msgspec.structs.replace(
        kept, letters=box.book(), places=order.places(), last_standing=last_standing, pause=pause
    )
    wake_ms = min((at_ms for at_ms in wakes if at_ms is not None), default=None)
    return KeyTransition(None if after.is_empty else after, wake_ms, tuple(outputs), decisions)


def _order(previous: Remembered, now_ms: int, signatures: Signatures | None) -> Order:
    """The order of this batch's records; after a leap of the clock, positions move back as the host moves the state."""
    leapt_ms = previous.now_ms - now_ms
    if leapt_ms > LEAP_MS:  # compared with times that have not come yet, all new records would tie
        return Order(turned_back(previous.places, now_ms, leapt_ms), now_ms, signatures)
    return Order(previous.places, max(previous.now_ms, now_ms), signatures)


def _is_due(previous: Remembered, now_ms: int) -> bool:
    return previous.wake_ms is not None and previous.wake_ms <= now_ms


def _quiet_changed(host: PolicyHost, key: tuple[str, str], previous: Remembered, quiet: Quiet | None) -> bool:
    """Whether a pause or a maintenance window has begun or ended since the last step."""
    was_quiet = _quiet(host, key, previous.pause, previous.now_ms)
    return previous.has_stepped and (was_quiet is None) != (quiet is None)


def _is_command(taken: tuple[ObservedRecord, Observation]) -> bool:
    return isinstance(taken[1].reading, PauseCommand)


def _paused(before: PolicyPause | None, taken: Iterable[tuple[ObservedRecord, Observation]]) -> PolicyPause | None:
    found = ((o.at, o.reading) for _, o in taken)
    return commanded(before, [(at, reading) for at, reading in found if isinstance(reading, PauseCommand)])


def _quiet(host: PolicyHost, key: tuple[str, str], pause: PolicyPause | None, now_ms: int) -> Quiet | None:
    return host.quiet(*key, pause, from_millis(now_ms)) if key[1] else None
