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
from streaming.standing import LastStanding, emit_standing


class KeyTransition(NamedTuple):
    """What came of it."""

    remembered: Remembered | None
    """What is to be kept; None: nothing."""
    wake_ms: int | None
    """When the key is to be stepped next, records or not."""
    outputs: tuple[Output, ...]
    decisions: tuple[Decision, ...]
    """Those among the outputs that were decided."""


def reconcile(
    host: PolicyHost,
    prefix: str,
    key: tuple[str, str],
    before: Remembered | None,
    records: Iterable[ObservedRecord],
    now_ms: int,
    signatures: Signatures | None = None,
) -> KeyTransition:
    """Take the records of a batch; without any, and before its time, nothing is decided.

    Args:
        host: the policies.
        prefix: of all topics.
        key: (policy, cluster); without a cluster come the records that name none there is.
        before: what the last transition kept; None: nothing.
        records: in whatever order.
        now_ms: the time of the batch.
        signatures: by which records are believed; None: nobody signs.
    """
    kept = before or NEVER
    box = LetterBox(*key, kept.letters, now_ms)
    leapt_ms, places = kept.now_ms - now_ms, kept.places
    if leapt_ms > LEAP_MS:
        # As the host does with the state: held against times that have not come yet, all that comes now would tie.
        places = turned_back(places, now_ms, leapt_ms)
    order = Order(places, kept.now_ms if 0 < leapt_ms <= LEAP_MS else now_ms, signatures)
    intake = Intake(host, prefix, key[1], box, order)
    outputs = [*box.counted(), *intake.take(records)]
    taken, now = intake.observed(), from_millis(now_ms)
    pause, observed = _paused(kept.pause, taken), [each for each in taken if not _is_command(each)]
    was_quiet, quiet = _quiet(host, key, kept.pause, kept.now_ms), _quiet(host, key, pause, now_ms)
    is_otherwise = kept.has_stepped and (was_quiet is None) != (quiet is None)
    decisions: tuple[Decision, ...] = ()
    if observed or is_otherwise or (kept.wake_ms is not None and kept.wake_ms <= now_ms):
        stepped = host.step(*key, before if kept.has_stepped else None, [o for _, o in observed], now, pause)
        if stepped.failure is not None:
            failed = BadRecordError(DeadLetterReason.POLICY_FAILED, f"{key[0]}: {stepped.failure}")
            outputs += [letter for record, _ in observed for letter in box.put(record, failed)]
        outputs += stepped.outputs
        kept, decisions = stepped.remembered, stepped.step.decisions
    last_standing, wakes = before.last_standing if before else LastStanding(), [kept.wake_ms, box.book().due_ms]
    if kept.has_stepped and not kept.failures:
        if last_standing.is_due(now_ms, quiet):
            last_standing, standing = emit_standing(host.issuer(*key), last_standing, now_ms, quiet)
            outputs.append(standing)
        wakes += [last_standing.due_ms, host.next_edge_ms(*key, pause, now)]
    after = msgspec.structs.replace(
        kept, letters=box.book(), places=order.places(), last_standing=last_standing, pause=pause
    )
    return KeyTransition(
        None if after.is_empty else after,
        min((at_ms for at_ms in wakes if at_ms is not None), default=None),
        tuple(outputs),
        decisions,
    )


def _is_command(taken: tuple[ObservedRecord, Observation]) -> bool:
    return isinstance(taken[1].reading, PauseCommand)


def _paused(before: PolicyPause | None, taken: Iterable[tuple[ObservedRecord, Observation]]) -> PolicyPause | None:
    found = ((o.at, o.reading) for _, o in taken)
    return commanded(before, [(at, reading) for at, reading in found if isinstance(reading, PauseCommand)])


def _quiet(host: PolicyHost, key: tuple[str, str], pause: PolicyPause | None, now_ms: int) -> Quiet | None:
    return host.quiet(*key, pause, from_millis(now_ms)) if key[1] else None
