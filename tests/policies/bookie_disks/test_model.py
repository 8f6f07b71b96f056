"""On random histories, the factors are those of the rules; neither the cut into steps nor restarts change them."""

from collections.abc import Mapping
from itertools import pairwise
from random import Random

import msgspec
import pytest

from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.policy import BookieDisksPolicy
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksState
from policies.observations import Observation
from tests.examples import seeds
from tests.policies.bookie_disks.model import Model, random_polls, random_settings
from tests.policies.bookie_disks.scenario import CLUSTER, Run
from tests.policies.virtual_run import START

HISTORIES = pytest.mark.parametrize("seed", seeds(1))


def in_force(run: Run) -> Mapping[str, float]:
    """The factor of each group that has not ended."""
    last = {each.group: each for each in run.published if isinstance(each, BookieThrottle)}
    return {group: each.factor for group, each in last.items() if each.reason != "group_ended"}


@HISTORIES
def test_each_factor_is_that_of_the_rules(seed: int) -> None:
    block = random_settings(seed, anticipate=False)
    run, model = Run(block), Model(block)
    for poll in random_polls(seed, 20):
        before = len(run.steps)
        run.together(*poll)
        for now, _ in run.steps[before:-1]:  # woken before the poll
            model.judge((now - START).total_seconds())
        for seen in sorted(poll, key=lambda seen: isinstance(seen.reading, BookieDisks), reverse=True):
            model.read(seen)
        expected = model.judge((run.steps[-1][0] - START).total_seconds())
        assert in_force(run) == pytest.approx(expected)


@HISTORIES
def test_restarts_order_repetition_and_the_order_of_dirs_change_no_decision(seed: int) -> None:
    block, random = random_settings(seed, min_hold="30s", recovery_margin=0.1, stop_time="2s"), Random(seed)
    plain, other = Run(block), Run(block)
    for poll in random_polls(seed, 20):
        plain.together(*poll)
        turned = [turn_dirs(seen) for seen in (*poll, *random.sample(poll, len(poll) // 2))]
        random.shuffle(turned)
        other.together(*turned)
        restart(other, block)
    assert other.until(20_000).published == plain.until(20_000).published


def turn_dirs(seen: Observation) -> Observation:
    reading = seen.reading
    if not isinstance(reading, BookieDisks):
        return seen
    return Observation(seen.id, seen.at, reading.model_copy(update={"dirs": reading.dirs[::-1]}))


def restart(run: Run, block: BookieDisksSettings) -> None:
    """Continue from the stored bytes in another process."""
    stored = run.steps[-1][1].encoded
    assert stored is not None
    run.state, run.policy = msgspec.msgpack.decode(stored, type=BookieDisksState), BookieDisksPolicy(CLUSTER, block)


@HISTORIES
def test_no_factor_rises_sooner_or_in_silence(seed: int) -> None:
    """A rise comes `min_hold` after the last change, and never with failed readings alone, but at the start."""
    run = Run(random_settings(seed, min_hold="30s", recovery_margin=0.1, anticipate=False))
    for poll in random_polls(seed, 20):
        run.together(*poll)
        if all(isinstance(seen.reading, BookieDisks) and seen.reading.outcome != "ok" for seen in poll):
            decided = [each for each in run.steps[-1][1].decisions if isinstance(each, BookieThrottle)]
            assert all(each.verdict != "raise" or each.reason == "initial" for each in decided)
    for group in {each.group for each in run.published if isinstance(each, BookieThrottle)}:
        decided = run.decided(group)
        pairs = pairwise(decided)
        changes = [(b.decided_at - START, a, b) for a, b in pairs if a.factor != b.factor]
        for (earlier, *_), (later, last, risen) in pairwise(changes):
            is_free = last.reason in ("too_few_bookies", "group_ended") or risen.reason == "group_ended"
            is_free |= last.previous_factor is None  # the first decision on a group has not changed its factor
            assert is_free or risen.factor < last.factor or (later - earlier).total_seconds() >= 30
