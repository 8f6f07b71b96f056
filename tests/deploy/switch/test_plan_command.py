"""What a plan says of brokers, of the way back, and of how long it takes."""

from typing import Any

from deploy.switch.plan import broker_lines, way_back_lines
from tests.cases import for_each

PLAN: dict[str, Any] = {
    "source": "old", "target": "new", "rollback_window_seconds": 36 * 3600, "cleanup_after_seconds": 40 * 3600,
}  # fmt: skip


@for_each(("brokers", "says"), [(("a", "b"), "2 live brokers"), (None, "not known which")])
def test_it_says_who_must_follow(brokers: tuple[str, ...] | None, says: str) -> None:
    assert says in next(broker_lines(PLAN | {"brokers": brokers}))


def test_the_way_back_counts_from_going_live_and_ends_with_the_clean_up() -> None:
    back, cleanup = way_back_lines(PLAN)
    assert "36.0 h from going live" in back
    assert "from 40.0 h on" in cleanup
