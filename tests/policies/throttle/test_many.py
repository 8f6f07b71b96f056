"""A cluster with more than anybody has, or that somebody made up, holds no other up: work and memory are bounded."""

from policies.decisions import Alert
from tests.calls import count_calls
from tests.policies.scenario import GB, HARD, Run, at, log_dirs, throttle

DIRS = 1000


def full(broker: int, free: int = 0, name: str = "d") -> dict[str, int | None]:
    return {f"/data/{name}-{number}": free for number in range(DIRS)}


def alerts(run: Run) -> list[Alert]:
    return [d for _, step in run.steps for d in step.decisions if isinstance(d, Alert)]


def test_thousands_of_full_volumes_are_stopped_for_at_once_and_told_of_in_one_alert() -> None:
    run = Run(throttle(HARD))
    run.step([log_dirs(0, broker, full(broker)) for broker in range(3)], at(0))
    assert run.last.factor == 0.0
    (told,) = alerts(run)
    assert told.explanation.startswith("3000 volumes of payments are at their hard limit: 0/data/d-0, 0/data/d-1, ")
    run.step([log_dirs(60, broker, full(broker, 50 * GB)) for broker in range(3)], at(60))
    _, over = alerts(run)
    assert (over.alert_id, over.status.value) == (told.alert_id, "resolved")
    assert not run.book.alerts.entries


def test_the_work_for_a_reading_grows_with_its_volumes_and_no_faster() -> None:
    def work_for(brokers: int) -> int:
        run = Run(throttle(HARD))
        batch = [log_dirs(0, broker, full(broker, 50 * GB)) for broker in range(brokers)]
        return count_calls(lambda: run.step(batch, at(0)))

    assert work_for(8) < 4 * work_for(2) * 1.2
