"""Steps a policy apart from the readings that it cannot take, so that one bad reading takes no other with it.

If a step raises, the readings are halved until each failing part is one reading, and every part that succeeds is taken.
A part is like a batch of its own, and batches may be cut anywhere, so that changes nothing about the other readings.
The number of steps is bounded: with more culprits than that, whole parts are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from policies.host_alerts import POLICY_FAILED
from policies.maintenance import PolicyPause
from policies.observations import Observation
from policies.wire import BadRecordError, DeadLetterReason
from streaming.host import PolicyHost, StepResult
from streaming.key_state import KeyState

MOST_STEPS = 40
"""Steps of one key in one batch: enough to find one culprit among 5,000 readings twice."""


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
        host: hosts the policy.
        key: (policy, cluster).
        before: the key's state; None: it was never stepped.
        observations: of this batch.
        now: the batch's time.
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
