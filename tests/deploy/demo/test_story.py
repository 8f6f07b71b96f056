"""The demo's story goes on by what is decided, carried out and measured, and by nothing else."""

import pytest

from deploy.demo.story import DemoSample, Phase, Story
from tests.cases import for_each

LOAD = 8_000_000


def sample(at: float, factor: float = 1.0, quota: int | None = None, produced: float = LOAD) -> DemoSample:
    return DemoSample(at, 100_000_000, factor, quota, produced)


def phases_after(*samples: DemoSample) -> list[Phase]:
    story = Story(LOAD)
    return [phase for each in samples if (phase := story.advance(each)) is not None]


FILLED = [sample(0), sample(10, 0.9, 7_000_000)]
STOPPED = [*FILLED, sample(20, 0.0, 500_000)]
FREED = [*STOPPED, sample(30, 0.0, 65_536, produced=0)]
BACK = [*FREED, sample(40), sample(45.1)]


@pytest.mark.parametrize(
    ("samples", "last"),
    [
        (FILLED, Phase.THROTTLE),
        (STOPPED, Phase.STOP),
        (FREED, Phase.RECOVERY),
        (BACK, Phase.DONE),
    ],
    ids=["slowed", "stopped", "space is made", "producers are back"],
)
def test_each_phase_follows_the_one_before(samples: list[DemoSample], last: Phase) -> None:
    phases = phases_after(*samples)
    assert phases[-1] is last
    assert phases == list(Phase)[1 : len(phases) + 1]


@for_each(
    ("samples", "stays"),
    [
        ([sample(0), sample(10, 0.9)], []),
        ([*FILLED, sample(20, 0.05, 500_000, produced=0)], [Phase.THROTTLE]),
        ([*STOPPED, sample(24, 0.0, 65_536, produced=0)], [Phase.THROTTLE, Phase.STOP]),
        ([*STOPPED, sample(60, 0.0, 65_536, produced=0.2 * LOAD)], [Phase.THROTTLE, Phase.STOP]),
        ([*FREED, sample(40), sample(42.9)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, sample(40), sample(42, produced=0), sample(44)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, sample(40, 1.0, 65_536), sample(50, 1.0, 65_536)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, sample(40, 0.9), sample(50, 0.9)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
    ],
    ids=[
        "decided, not carried out",
        "slow is not stopped",
        "a stop is shown for a while",
        "producers do not stand still yet",
        "back for too short a time",
        "back with a gap",
        "the quota is still there",
        "the factor is not back",
    ],
)
def test_a_phase_lasts_until_its_end_is_seen(samples: list[DemoSample], stays: list[Phase]) -> None:
    assert phases_after(*samples) == stays
