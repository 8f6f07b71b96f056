"""Whether slowing publishing down has an effect: the growth of ledger dirs, compared with what limits let through."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.bookie_disks.readings import PublishState
from policies.decisions import Alert, AlertStatus
from policies.observations import Observation, Outcome
from tests.cases import for_each
from tests.policies.bookie_disks.scenario import NO_PATIENCE, Run, all_disks, disks, let_through, settings
from tests.policies.virtual_run import at

ACTS = {"has_actuator": True, "heartbeat": "1d", "min_change": 1.0}
"""The factor stays as it is until it is 0.0."""
STOPPED, SLOWED = 12, 19.9
"""Free gigabytes of a hundred at the beginning."""
MB = 1_000_000


def firing(run: Run) -> bool:
    return ("publish-without-effect", "default", "critical") in run.firing()


def alert(run: Run) -> Alert:
    return [each for each in run.alerts if each.alert == "publish-without-effect"][-1]


def fill(run: Run, first: float, rate: float, until: int, *, since: int = 0) -> Run:
    """Readings of a bookie that decides, and of one with room; `rate` is in MB/s, and `first` in GB free at 0 s."""
    for second in range(since, until + 1, 30):
        run.see(*all_disks(second, b1=first - rate * second / 1000, b2=90))
    return run


@for_each(
    ("block", "first", "rate", "fires"),
    [
        pytest.param({}, STOPPED, 33.0, True, id="stopped, and full within half an hour"),
        pytest.param({}, STOPPED, 3.0, False, id="stopped, and full later"),
        pytest.param({}, SLOWED, 33.0, False, id="slowed: what topics may write is not known"),
        pytest.param({"has_actuator": False}, STOPPED, 33.0, False, id="without an actuator"),
        pytest.param({"mode": "shadow"}, STOPPED, 33.0, False, id="in shadow mode"),
        pytest.param({"time_to_full_alert": "0s"}, STOPPED, 33.0, False, id="the alert on the time to full is off"),
    ],
)
def test_without_a_known_rate_only_a_stop_is_judged_by_the_time_to_full(
    block: Mapping[str, Any], first: float, rate: float, *, fires: bool
) -> None:
    run = Run(settings({**ACTS, **block}))
    assert not firing(fill(run, first, rate, 150))
    assert firing(fill(run, first, rate, 180, since=180)) is fires


@pytest.mark.parametrize(
    ("rate", "fires"),
    [
        pytest.param(10.0, False, id="what is let through"),
        pytest.param(20.0, False, id="as much again in a journal on the same disk"),
        pytest.param(40.0, False, id="and one entry log of a gigabyte that is compacted"),
        pytest.param(43.0, True, id="more than three times what is let through, and an entry log"),
    ],
)
def test_growth_beyond_what_the_limits_explain_is_an_alert(rate: float, *, fires: bool) -> None:
    run = Run(settings(ACTS)).see(let_through(0, 10 * MB))
    assert firing(fill(run, SLOWED, rate, 180)) is fires


RAMP = {"soft": {"available_bytes_below": "60GB"}, "hard": {"available_bytes_below": "10GB"}}
"""Below 35 GB free the factor is below one half."""


@pytest.mark.parametrize(
    ("after", "limits", "dirs", "fires"),
    [
        pytest.param(60, None, 1, True, id="what topics may write is not known"),
        pytest.param(40, None, 1, False, id="it fell to below half"),
        pytest.param(60, {"topics_bytes_per_second": 20 * MB}, 1, True, id="limits of topics that write all of it"),
        pytest.param(60, {"topics_bytes_per_second": 31 * MB}, 1, False, id="one topic of each namespace may write it"),
        pytest.param(60, {"let_through_bytes_per_second": 20 * MB}, 2, True, id="several dirs"),
        pytest.param(60, {"let_through_bytes_per_second": 31 * MB}, 2, False, id="limits above what was written"),
    ],
)
def test_while_publishing_is_slowed_the_growth_is_compared_with_that_before(
    after: int, limits: Mapping[str, Any] | None, dirs: int, *, fires: bool
) -> None:
    """100 MB a second before."""
    run = Run(settings(NO_PATIENCE, RAMP, has_actuator=True, heartbeat="1d"))
    for second in range(0, 721, 30):
        free = 75 - 0.1 * min(second, 420) - after / 1000 * max(0, second - 420)
        if limits is not None:
            state = PublishState(cluster="c1", outcome=Outcome.OK, **limits)
            run.see(Observation(f"limits@{second}", at(second), state))
        run.see(disks(second, "b1", {"/l": free, "/m": 90} if dirs == 2 else free), *all_disks(second, b2=90))
    assert firing(run) is fires
    if fires:
        assert "slowed to 0." in alert(run).summary
        assert "fills by 60.0 MB/s" in alert(run).summary
        assert "(before: 100 MB/s)" in alert(run).summary


def test_a_rate_that_goes_down_counts_from_the_next_window_on() -> None:
    """Within the window in which it changes, the higher one may have been let through."""
    run = fill(Run(settings(ACTS)).see(let_through(0, 100 * MB)), SLOWED, 43.0, 60)
    run.see(let_through(61, MB))
    assert not firing(fill(run, SLOWED, 43.0, 180, since=90))
    assert firing(fill(run, SLOWED, 43.0, 270, since=210))


def test_the_alert_ends_when_growth_is_not_compared_any_more() -> None:
    run = fill(Run(settings(ACTS)).see(let_through(0, 10 * MB)), SLOWED, 43.0, 180)
    run.see(let_through(181, None), *all_disks(182, b1=13, b2=90))
    ended = alert(run)
    assert ended.summary == "publish-without-effect of c1/default is no longer reported"
    assert ended.status is AlertStatus.RESOLVED


def test_a_bookie_with_several_dirs_is_judged_in_a_stop_only() -> None:
    """The bytes of its dirs are exact only where their disks are of one size."""
    for first, fires in ((SLOWED, False), (STOPPED, True)):
        run = Run(settings(ACTS)).see(let_through(0, 10 * MB))
        for second in range(0, 181, 30):
            run.see(disks(second, "b1", {"/l": first - 0.043 * second, "/m": 50}), *all_disks(second, b2=90))
        assert firing(run) is fires


def test_readings_of_the_actuator_alone_decide_nothing() -> None:
    run = Run(settings(ACTS)).see(let_through(0, MB))
    assert not run.published
