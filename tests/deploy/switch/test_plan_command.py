"""What a plan says of brokers, of the way back, and of how long it takes."""

import pytest

from deploy.switch.plan import Rates, SwitchPlan, broker_lines, way_back_lines
from policies.switching.settings import SwitchingSettings

RATES = Rates(100.0, 1e6, "as given")


def plan(brokers: tuple[str, ...] | None) -> SwitchPlan:
    return SwitchPlan("c1", "old", "new", True, 8, {"cursor": 5, "schema": 3}, 10**7, 1, 0, brokers, 10.0, 0.08, RATES)  # noqa: FBT003


@pytest.mark.parametrize(("brokers", "says"), [(("a", "b"), "2 live brokers"), (None, "not known which")])
def test_it_says_who_must_follow(brokers: tuple[str, ...] | None, says: str) -> None:
    assert says in next(broker_lines(plan(brokers)))


def test_the_way_back_counts_from_going_live_and_ends_with_the_clean_up() -> None:
    limits = SwitchingSettings.model_validate({"rollback_window": "36h", "cleanup_after": "1h"})
    back, cleanup = way_back_lines(limits)
    assert "36.0 h from going live" in back
    assert "from 36.0 h on" in cleanup, "a clean-up never comes before the end of the window"
