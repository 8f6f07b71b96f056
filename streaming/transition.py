"""One key's part of a batch: takes its records, steps its policy, and returns the state to store and the outputs.

Pure, and the same for the query and for the replay of its batches.

A policy is stepped apart from the readings that it cannot take, so that one bad reading takes no other with it. If a
step raises, the readings are halved until each failing part is one reading, and every part that succeeds is taken. A
part is like a batch of its own, and batches may be cut anywhere, so that changes nothing about the other readings. The
number of steps is bounded: with more culprits than that, whole parts are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from policies.decisions import Decision
from policies.host_alerts import POLICY_FAILED, READINGS_REFUSED
from policies.observations import Observation
from policies.pauses import PauseCommand, PolicyPause, commanded, open_at
from policies.records import ObservedRecord, Output
from policies.recovery import OpenAlerts
from policies.registry import POLICIES
from policies.units import counted, from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.clocks import CLOCK_JUMP_MS, move_instants_back
from streaming.dead_letters import DeadLetterLimiter
from streaming.heartbeat import emit_heartbeat
from streaming.host import PolicyHost, StepResult
from streaming.intake import Intake
from streaming.key_state import NEVER_STEPPED, KeyState
from streaming.order import Order

MOST_STEPS = 40
"""Steps of one key in one batch: enough to find one culprit among 5,000 readings twice."""


class KeyTransition(NamedTuple):
    """The result of `reconcile`."""

    key_state: KeyState | None
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
    before: KeyState | None,
    records: Iterable[ObservedRecord],
    now_ms: int,
) -> KeyTransition:
    """Take one key's records of a batch, and step its policy if there are observations or a timer is due.

    Args:
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
        before: the state stored by the last transition; None: there is none.
        records: in any order.
    """
    previous, records = before or NEVER_STEPPED, tuple(records)
    if any(record.appended_ms >= previous.now_ms - CLOCK_JUMP_MS for record in records):
        # Kafka's clock confirms the last step's time: if the batch is dated before it, the batch's clock is wrong.
        now_ms = max(now_ms, previous.now_ms)
    limiter = DeadLetterLimiter(*key, previous.letters, now_ms)
    order = _order(previous, now_ms)
    intake = Intake(host, prefix, key, limiter, order)
    outputs = [*limiter.counted(), *intake.accept(records)]
    taken = intake.observed()
    readings = [(observation.at, observation.reading) for _, observation in taken]
    pause = commanded(previous.pause, [(at, each) for at, each in readings if isinstance(each, PauseCommand)])
    opened = [each for _, each in readings if isinstance(each, OpenAlerts)]
    if opened and opened[-1].policy == key[0]:
        entries = tuple(alert.entry() for alert in opened[-1].alerts)
        before = previous = msgspec.structs.replace(previous, recovered=entries)
    observed = [each for each in taken if not isinstance(each[1].reading, PauseCommand | OpenAlerts)]
    quiet = _quiet(key, pause, now_ms)
    after = previous
    decisions: tuple[Decision, ...] = ()
    is_due = previous.wake_ms is not None and previous.wake_ms <= now_ms
    if observed or is_due or (previous.has_stepped and _quiet(key, previous.pause, previous.now_ms) != quiet):
        why = {READINGS_REFUSED: f"{counted(intake.left_out, 'reading')} too many came at once"}
        result, refused = step_apart(
            host, key, before, [o for _, o in observed], from_millis(now_ms), pause,
            why if intake.left_out else {},
        )  # fmt: skip
        outputs += [
            letter for place, error in sorted(refused.items()) for letter in limiter.put(observed[place][0], error)
        ]
        outputs += result.outputs
        after, decisions = result.key_state, result.step.decisions
    heartbeat, wakes = previous.last_heartbeat, [after.wake_ms, limiter.counts().due_ms]
    if after.has_stepped and not after.failures and _watches(key[0], prefix, order):
        if heartbeat.is_due(now_ms, quiet):
            heartbeat, record = emit_heartbeat(host.issuer(*key), heartbeat, now_ms, quiet)
            outputs.append(record)
        wakes += [heartbeat.due_ms, None if quiet is None else quiet.until_ms]
    after = msgspec.structs.replace(
        after,
        letters=limiter.counts(),
        positions=order.positions(),
        last_heartbeat=heartbeat,
        pause=pause,
    )
    wake_ms = min((at_ms for at_ms in wakes if at_ms is not None), default=None)
    return KeyTransition(None if after.is_empty else after, wake_ms, tuple(outputs), decisions)


def _order(previous: KeyState, now_ms: int) -> Order:
    """The order of this batch's records; after a clock jump, positions move back as the host moves the state."""
    jump_ms = previous.now_ms - now_ms
    if jump_ms > CLOCK_JUMP_MS:  # compared with times in the future, all new records would tie
        return Order(move_instants_back(previous.positions, now_ms, jump_ms), now_ms)
    return Order(previous.positions, max(previous.now_ms, now_ms))


def _watches(policy: str, prefix: str, order: Order) -> bool:
    """Whether a policy has got a reading of its own, or takes none of others."""
    kind = POLICIES[policy]
    own = (position.topic.removeprefix(f"{prefix}.") in kind.observed for position in order.positions())
    return not kind.shares or any(own)


def _quiet(key: tuple[str, str], pause: PolicyPause | None, now_ms: int) -> PolicyPause | None:
    return open_at(pause, from_millis(now_ms)) if key[1] else None


class SteppedApart(NamedTuple):
    """The result of a step, and the readings that it did not take."""

    result: StepResult
    refused: Mapping[int, BadRecordError]
    """The refused observations, by their place among all."""


def step_apart(
    host: PolicyHost,
    key: tuple[str, str],
    before: KeyState | None,
    observations: Sequence[Observation],
    now: datetime,
    pause: PolicyPause | None = None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> SteppedApart:
    """Step a policy; if it raises, without the readings for which it does.

    Args:
        key: (policy, cluster).
        before: the key's state; None: it was never stepped.
        pause: set while an operator has paused the policy.
        refused: why other readings of the batch were refused, by alert.
    """
    first = host.step(*key, before, observations, now, pause, refused)
    if first.failure is None:
        return SteppedApart(first, _over_bounds(first, observations))
    if not observations or host.step(*key, before, (), now, pause, refused).failure is not None:
        failed = _failed(key[0], first)  # the policy fails without them, too
        return SteppedApart(first, dict.fromkeys(range(len(observations)), failed))
    results: list[StepResult] = []
    culprits: dict[int, BadRecordError] = {}
    ahead, steps = [range(len(observations))], 0
    while ahead:
        part, steps = ahead.pop(), steps + 1
        taken = [observations[place] for place in part]
        result = first if len(part) == len(observations) else host.step(*key, before, taken, now, pause, refused)
        if result.failure is None:
            results.append(result)
            before = result.key_state
            culprits |= {part[place]: error for place, error in _over_bounds(result, taken).items()}
        elif len(part) == 1 or steps > MOST_STEPS:
            culprits |= dict.fromkeys(part, _failed(key[0], result))
        else:
            middle = len(part) // 2
            ahead += [part[middle:], part[:middle]]
    results.append(host.step(*key, before, (), now, pause, {**refused, POLICY_FAILED: first.failure}))
    return SteppedApart(_join(results), culprits)


def _failed(policy: str, result: StepResult) -> BadRecordError:
    return BadRecordError(DeadLetterReason.POLICY_FAILED, f"{policy}: {result.failure}")


def _over_bounds(result: StepResult, observations: Sequence[Observation]) -> dict[int, BadRecordError]:
    why = result.step.refused
    return {
        place: BadRecordError(DeadLetterReason.TOO_MANY, why[each.id])
        for place, each in enumerate(observations)
        if each.id in why
    }


def _join(results: Sequence[StepResult]) -> StepResult:
    last = results[-1]
    decisions = tuple(decision for result in results for decision in result.step.decisions)
    outputs = tuple(output for result in results for output in result.outputs)
    return last._replace(step=replace(last.step, decisions=decisions), outputs=outputs)
