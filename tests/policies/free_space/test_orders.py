"""What an order asks for now: as decided, expired, in shadow mode, during a pause and after it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policies.bookie_disks.publish_plan import PublishReason
from policies.decisions import Mode
from policies.free_space.publication import FactorOrder, WantedFactor
from policies.throttle.quota_plan import QuotaReason
from policies.units import ClosedEnum
from tests.policies.scenario import HARD, throttle

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
SETTINGS = throttle(HARD, fallback_factor=0.2)
EACH_ACTUATOR = pytest.mark.parametrize("reasons", [QuotaReason, PublishReason])


def order(*, valid: float = 60.0, mode: Mode = Mode.ACTIVE) -> FactorOrder:
    return FactorOrder("payments", "payments", "id-1", 1, 0.5, mode, NOW, NOW + timedelta(seconds=valid))


@EACH_ACTUATOR
@pytest.mark.parametrize(
    ("given", "factor", "reason", "slows"),
    [
        pytest.param(order(), 0.5, "decided", True, id="decided"),
        pytest.param(replace(order(), factor=1.0), 1.0, "decided", False, id="decided to open"),
        pytest.param(order(valid=0), 0.2, "stale", True, id="expired"),
        pytest.param(order(mode=Mode.SHADOW), 0.5, "shadow", False, id="shadow"),
        pytest.param(order(valid=0, mode=Mode.SHADOW), 0.5, "shadow", False, id="expired shadow"),
    ],
)
def test_what_it_asks_for(
    given: FactorOrder, factor: float, reason: str, slows: bool, reasons: type[ClosedEnum]
) -> None:
    wanted = given.choose_factor(NOW, SETTINGS, reasons)
    assert (wanted, wanted.slows) == (WantedFactor(factor, reasons(reason)), slows)


PAUSED = replace(order(mode=Mode.SHADOW), frozen_until=NOW + timedelta(seconds=30))


@EACH_ACTUATOR
@pytest.mark.parametrize(
    ("after_seconds", "is_frozen"),
    [
        pytest.param(0, True, id="while paused"),
        pytest.param(59, True, id="paused no more: until the next decision"),
        pytest.param(60, False, id="no decision comes: the fallback, and not what was there before"),
    ],
)
def test_a_pause_keeps_what_is_set(after_seconds: float, is_frozen: bool, reasons: type[ClosedEnum]) -> None:
    now = NOW + timedelta(seconds=after_seconds)
    assert PAUSED.is_frozen(now) is is_frozen
    assert is_frozen or PAUSED.choose_factor(now, SETTINGS, reasons) == WantedFactor(0.2, reasons("stale"))
    longer = replace(PAUSED, frozen_until=NOW + timedelta(hours=1))
    assert longer.is_frozen(now), "a loop that died while paused"
