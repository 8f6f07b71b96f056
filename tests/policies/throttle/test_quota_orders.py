"""What the decision in force means."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policies.decisions import Mode
from policies.throttle.quota_plan import QuotaOrder, QuotaReason, WantedFactor, choose_factor
from tests.policies.scenario import HARD, throttle

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


def order(sequence: int, *, valid: float = 60.0, mode: Mode = Mode.ACTIVE) -> QuotaOrder:
    return QuotaOrder("payments", f"id-{sequence}", sequence, 0.5, mode, NOW, NOW + timedelta(seconds=valid))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(order(1), WantedFactor(0.5, QuotaReason.DECIDED), id="decided"),
        pytest.param(order(1, valid=0), WantedFactor(0.2, QuotaReason.STALE), id="expired"),
        pytest.param(order(1, mode=Mode.SHADOW), WantedFactor(0.5, QuotaReason.SHADOW), id="shadow"),
        pytest.param(order(1, valid=0, mode=Mode.SHADOW), WantedFactor(0.5, QuotaReason.SHADOW), id="expired shadow"),
    ],
)
def test_what_it_means(given: QuotaOrder, expected: WantedFactor) -> None:
    assert choose_factor(given, NOW, throttle(HARD, fallback_factor=0.2)) == expected


PAUSED = replace(order(1, mode=Mode.SHADOW), frozen_until=NOW + timedelta(seconds=30))


@pytest.mark.parametrize(
    ("after_seconds", "is_frozen", "reason"),
    [
        pytest.param(0, True, None, id="while paused"),
        pytest.param(59, True, None, id="paused no more: until the next decision"),
        pytest.param(60, False, QuotaReason.STALE, id="no decision comes: the fallback, and not what was there before"),
    ],
)
def test_a_pause_keeps_what_is_set(after_seconds: float, is_frozen: bool, reason: QuotaReason | None) -> None:
    now = NOW + timedelta(seconds=after_seconds)
    assert PAUSED.is_frozen(now) is is_frozen
    assert is_frozen or choose_factor(PAUSED, now, throttle(HARD, fallback_factor=0.2)).reason is reason
    longer = replace(PAUSED, frozen_until=NOW + timedelta(hours=1))
    assert longer.is_frozen(now), "a loop that died while paused"
