"""The policy beside a plain model of its rules, written from their text: one broker that is read all the time."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from tests.examples import seeds
from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, members, throttle

HARD, SOFT, MARGIN, MIN_HOLD, MIN_CHANGE = GB, 5 * GB, 0.1, 30.0, 0.05
LEVELS = (HARD, HARD + 1, SOFT, SOFT + 1, int(1.1 * GB), int(1.1 * GB) + 1, 60 * GB)
"""Where rules change their mind."""


@dataclass
class Model:
    """What is in force, and since when."""

    factor: float = 1.0
    changed_at: float = float("-inf")
    free: list[int] = field(default_factory=list)
    stopped_by: set[int] = field(default_factory=set)

    def read(self, at: float, free: list[int]) -> None:
        """Lower at once; higher when it has been held for long enough."""
        self.wait(at)
        self.free = free
        if self._raw() == 0.0 or self.factor == 0.0:
            self.stopped_by |= {n for n, each in enumerate(free) if each <= HARD}
        if self._raw() < self.factor or at >= self.changed_at + MIN_HOLD:
            self._move(at)

    def wait(self, until: float) -> None:
        """A hold that ends meanwhile."""
        ends = self.changed_at + MIN_HOLD
        if self.free and ends < until and self._raw() > self.factor:
            self._move(ends)

    def _move(self, at: float) -> None:
        raw = self._raw()
        blocked = raw > self.factor == 0.0 and any(self.free[n] <= HARD * (1 + MARGIN) for n in self.stopped_by)
        if not blocked and raw != self.factor and (abs(raw - self.factor) >= MIN_CHANGE or raw in (0.0, 1.0)):
            self.factor, self.changed_at = raw, at
        if self.factor > 0.0:
            self.stopped_by.clear()

    def _raw(self) -> float:
        return min(_factor(each) for each in self.free)


def _factor(free: int) -> float:
    if free <= HARD:
        return 0.0
    return 1.0 if free > SOFT else (free - HARD) / (SOFT - HARD)


def course(draw: Random) -> list[tuple[float, list[int]]]:
    """When what is free; never at the very instant at which a hold ends."""
    at, free = 0.0, [draw.choice((50 * GB, 6 * GB, 3 * GB, GB)) for _ in range(draw.randint(1, 3))]
    found = []
    for _ in range(40):
        free = [max(0, each + draw.choice((0, draw.randint(-GB, GB), draw.randint(-4 * GB, 4 * GB)))) for each in free]
        free = [draw.choice(LEVELS) if draw.random() < 0.1 else min(each, 100 * GB) for each in free]
        found.append((at, free))
        at = round(at + draw.choice((1, 5, 10, 20, 40)) + draw.randint(1, 997) / 1000, 3)
    return found


@pytest.mark.parametrize("seed", seeds(1.5))
def test_it_does_what_the_rules_say(seed: int) -> None:
    run, model = Run(throttle(SOFT_AND_HARD)), Model()
    run.see(members(0, 1))
    for (at, free), (following, _) in pairwise(course(Random(seed))):
        run.see(log_dirs(at, 1, {f"/{n}": each for n, each in enumerate(free)}))
        model.read(at, free)
        assert run.factor == pytest.approx(model.factor), at
        run.until(following - 0.002)
        model.wait(following - 0.002)
        assert run.factor == pytest.approx(model.factor), following
