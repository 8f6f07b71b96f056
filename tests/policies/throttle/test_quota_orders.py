"""What the decision in force means."""

from datetime import UTC, datetime, timedelta

import pytest

from policies.decisions import Mode
from policies.throttle.quota_plan import QuotaOrder, QuotaReason, WantedFactor, choose_factor
from tests.policies.scenario import HARD, throttle

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


def order(sequence: int, *, valid: float = 60.0, mode: Mode = Mode.ACTIVE) -> QuotaOrder:
    return QuotaOrder("payments", f"id-{sequence}", sequence, 0.5, mode, NOW + timedelta(seconds=valid))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(order(1), WantedFactor(0.5, 0.2, QuotaReason.DECIDED), id="decided"),
        pytest.param(order(1, valid=0), WantedFactor(0.2, 0.2, QuotaReason.STALE), id="expired"),
        pytest.param(order(1, mode=Mode.SHADOW), WantedFactor(0.5, 0.2, QuotaReason.SHADOW), id="shadow"),
        pytest.param(
            order(1, valid=0, mode=Mode.SHADOW), WantedFactor(0.5, 0.2, QuotaReason.SHADOW), id="expired shadow"
        ),
    ],
)
def test_what_it_means(given: QuotaOrder, expected: WantedFactor) -> None:
    assert choose_factor(given, NOW, throttle(HARD, fallback_factor=0.2)) == expected
