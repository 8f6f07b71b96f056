"""A loss during an outage of ZooKeeper is fleet-wide, whichever collector reads first and however readings are cut."""

from collections.abc import Sequence
from typing import Any

import pytest

from policies.observations import Observation
from tests.policies.sessions.course import Run, session, tree, unread

TEN = tuple(f"b{n}" for n in range(10))
SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": "10h"}
DOWN = ("shutdown", "restart")


def poll(second: float, *lost: str, sessions_s: float = 0.0, trees_s: float = 0.1) -> list[Observation]:
    """One look of both collectors, each at its own moment."""
    states = [session(second + sessions_s, m, "expired" if m in lost else "connected", f"0x{m}") for m in TEN]
    return [*states, tree(second + trees_s), tree(second + trees_s, name="/loadbalance/brokers")]


def failed(second: float, *, sessions_s: float = 0.0, trees_s: float = 0.1) -> list[Observation]:
    return [unread(second + sessions_s), tree(second + trees_s, outcome="timeout")]


def outage(**moments: float) -> list[Observation]:
    """From 25 s on nothing can be read; at 60 s it can, and one of ten sessions has expired meanwhile."""
    readings: list[Observation] = []
    for second in range(0, 125, 5):
        if 25 <= second < 60:
            readings += failed(second, **moments)
        else:
            readings += poll(second, *(("b3",) if second >= 60 else ()), **moments)
    return readings


def by_event(readings: Sequence[Observation]) -> Run:
    return Run(**SHUTDOWN).feed(sorted(readings, key=lambda o: o.at))


def by_instant(readings: Sequence[Observation]) -> Run:
    run, moments = Run(**SHUTDOWN), sorted({o.at for o in readings})
    for moment in moments:
        run.together(*(o for o in readings if o.at == moment))
    return run


def by_minute(readings: Sequence[Observation]) -> Run:
    run = Run(**SHUTDOWN)
    for minute in range(3):
        run.together(*(o for o in readings if o.at.minute == minute), seconds=60 * (minute + 1))
    return run


def last(run: Run) -> str:
    return run.told("b3")[-1][1]


@pytest.mark.parametrize("trees_s", [-0.1, 0.0, 0.1], ids=["trees first", "together", "sessions first"])
@pytest.mark.parametrize("cut", [by_event, by_instant, by_minute])
def test_a_session_that_expired_during_an_outage_shuts_nobody_down(cut: Any, trees_s: float) -> None:
    run = cut(outage(trees_s=trees_s + 0.2, sessions_s=0.2))
    assert last(run) == "reconnect fleet_wide"
    assert not [d for d in run.sessions if d.verdict in DOWN]


@pytest.mark.parametrize("cut", [by_event, by_instant])
def test_a_session_that_expired_after_the_outage_is_one_alone(cut: Any) -> None:
    alone = [o for second in range(0, 60, 5) for o in (failed(second) if 25 <= second < 40 else poll(second))]
    alone += [o for second in range(60, 125, 5) for o in poll(second, "b3")]
    assert last(cut(alone)) == "shutdown session_lost"


def test_a_failed_reading_of_one_tree_counts_though_it_arrives_after_the_loss_is_known() -> None:
    """Collectors are processes of their own: a record of one may be late by seconds."""
    run = Run(**SHUTDOWN).together(*poll(0)).together(*poll(10, "b3"))
    assert last(run) == "hold confirming"
    run.together(tree(5, outcome="timeout"), seconds=12)
    assert last(run) == "reconnect fleet_wide"


def test_others_that_lost_theirs_and_came_back_within_the_same_batch_count() -> None:
    """As they do if each reading is a step of its own."""
    lost_and_back = [
        *poll(0),
        *poll(10, "b1", "b2", "b3"),
        *(session(15, m, "connected", f"0x{m}-2") for m in ("b1", "b2")),
        *(session(second, "b3", "expired", "0xb3") for second in (15, 20, 25)),
    ]
    stepwise = Run(**SHUTDOWN).feed(sorted(lost_and_back, key=lambda o: o.at)).until(60)
    merged = Run(**SHUTDOWN).together(*lost_and_back).until(60)
    assert last(stepwise) == last(merged) == "reconnect fleet_wide"
