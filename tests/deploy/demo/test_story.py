"""The demo's story goes on by what is decided, carried out and measured, and by nothing else."""

import pytest

from deploy.demo.story import Look, Phase, Story

LOAD = 8_000_000


def look(at: float, factor: float = 1.0, quota: int | None = None, produced: float = LOAD) -> Look:
    return Look(at, 100_000_000, factor, quota, produced)


def told(*looks: Look) -> list[Phase]:
    story = Story(LOAD)
    return [phase for each in looks if (phase := story.take(each)) is not None]


FILLED = [look(0), look(10, 0.9, 7_000_000)]
STOPPED = [*FILLED, look(20, 0.0, 500_000)]
FREED = [*STOPPED, look(30, 0.0, 65_536, produced=0)]
BACK = [*FREED, look(40), look(45.1)]


@pytest.mark.parametrize(
    ("looks", "last"),
    [
        (FILLED, Phase.THROTTLE),
        (STOPPED, Phase.STOP),
        (FREED, Phase.RECOVERY),
        (BACK, Phase.DONE),
    ],
    ids=["slowed", "stopped", "space is made", "producers are back"],
)
def test_each_phase_follows_the_one_before(looks: list[Look], last: Phase) -> None:
    phases = told(*looks)
    assert phases[-1] is last
    assert phases == list(Phase)[1 : len(phases) + 1]


@pytest.mark.parametrize(
    ("looks", "stays"),
    [
        ([look(0), look(10, 0.9)], []),
        ([*FILLED, look(20, 0.05, 500_000, produced=0)], [Phase.THROTTLE]),
        ([*STOPPED, look(27, 0.0, 65_536, produced=0)], [Phase.THROTTLE, Phase.STOP]),
        ([*STOPPED, look(60, 0.0, 65_536, produced=0.2 * LOAD)], [Phase.THROTTLE, Phase.STOP]),
        ([*FREED, look(40), look(44.9)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, look(40), look(43, produced=0), look(46)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, look(40, 1.0, 65_536), look(50, 1.0, 65_536)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
        ([*FREED, look(40, 0.9), look(50, 0.9)], [Phase.THROTTLE, Phase.STOP, Phase.RECOVERY]),
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
def test_a_phase_lasts_until_its_end_is_seen(looks: list[Look], stays: list[Phase]) -> None:
    assert told(*looks) == stays
