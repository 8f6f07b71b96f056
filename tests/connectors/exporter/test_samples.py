"""How long decisions took: only those that a new reading caused, only news, stage by stage."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import permutations

import pytest

from connectors.exporter import samples
from connectors.exporter.loop_view import LoopView
from connectors.exporter.samples import RecentDecisions
from connectors.views import MAX_RECENT_DECISIONS
from policies.decisions import Decision
from policies.observations import Reading
from policies.switching.decisions import SwitchDecision
from policies.switching.state import SwitchStage
from tests.cases import for_each
from tests.connectors.exporter.loop import OBSERVED, PREFIX, START, Loop, decided, log_dirs, members, observed, series
from tests.policies.switching.wire import WireWorld

NAME = "headgate_decision_latency_seconds"
STAGES = ("observed_to_appended", "appended_to_decided", "decided_to_published")


def count(loop: Loop) -> float:
    return loop.series(NAME).get(("throttle", "appended_to_decided", "count"), 0)


def played(*delays_ms: int) -> LoopView:
    """One reading that lowers the factor: delays from it to its append, to the batch, to the decision's append."""
    loop = Loop()
    loop.step(log_dirs(900))
    read_at = START + timedelta(seconds=30)
    appended, decided_at, published = (read_at + timedelta(milliseconds=sum(delays_ms[: n + 1])) for n in range(3))
    decision, *_ = loop.step(log_dirs(300), after=30)
    view = LoopView(PREFIX, {"throttle": loop.settings})
    view.fold(loop.records[:2], live=False)
    batch = [
        # In whatever order partitions are read.
        decided(decision.model_copy(update={"decided_at": decided_at}), published),
        observed(log_dirs(300), appended, id=decision.evidence[0], read_at=read_at),
    ]
    view.fold(batch, live=True)
    return view


@for_each(
    ("delays_ms", "seconds"),
    [((20, 180, 90), (0.02, 0.18, 0.09)), ((-5, -3, 90), (0, 0, 0.09))],
    ids=["measured by the records' own instants", "a batch that began before the append"],
)
def test_each_stage_is_measured(delays_ms: tuple[int, ...], seconds: tuple[float, ...]) -> None:
    values = series(played(*delays_ms), NAME, START)
    assert [values["throttle", stage, "count"] for stage in STAGES] == [1, 1, 1]
    assert [values["throttle", stage, "sum"] for stage in STAGES] == pytest.approx(seconds)


Moment = tuple[float, Sequence[Reading]]


@for_each(
    ("script", "counted"),
    [
        pytest.param([(0, [log_dirs(300)])], 0, id="the first decision has no one before it"),
        pytest.param([(0, [log_dirs(900)]), (10, [log_dirs(300)])], 1, id="lowered by a reading"),
        pytest.param([(0, [log_dirs(300)]), (60, [log_dirs(300)])], 0, id="a heartbeat with a newer reading"),
        pytest.param([(0, [log_dirs(300)]), (60, [])], 0, id="a heartbeat without one"),
        pytest.param([(0, [log_dirs(300)]), (10, [log_dirs(700)]), (20, [])], 0, id="held, then raised by time"),
        pytest.param([(0, [members(1), log_dirs(900)]), (300, [])], 0, id="stale by time"),
        pytest.param([(0, [members(1), log_dirs(300)]), (300, []), (5, [log_dirs(200)])], 1, id="read again"),
        pytest.param(
            [(0, [members(1, 2), log_dirs(300), log_dirs(900, broker=2)]), (10, [members(2)])], 0, id="its broker left"
        ),
        pytest.param(
            [(0, [log_dirs(300), log_dirs(400, broker=2)]), (9, [log_dirs(200, broker=2)])],
            1,
            id="another volume decides because it is worse",
        ),
    ],
)
def test_only_decisions_that_their_evidence_caused_are_counted(script: list[Moment], counted: int) -> None:
    loop = Loop(validity="5m", min_hold="30s")
    for after, readings in script:
        loop.step(*readings, after=after)
    assert count(loop) == counted


def test_history_is_no_latency() -> None:
    loop = Loop()
    loop.step(log_dirs(900), live=False)
    loop.step(log_dirs(300), after=10, live=False)
    assert loop.series(NAME) == {}
    loop.step(log_dirs(200), after=10)
    assert count(loop) == 1


def test_a_decision_may_be_read_before_its_cause() -> None:
    loop = Loop()
    loop.step(log_dirs(900))
    loop.step(log_dirs(300), after=10)
    view = LoopView(PREFIX, {"throttle": loop.settings})
    readings = [record for record in loop.records if record.topic == OBSERVED]
    view.fold([record for record in loop.records if record.topic != OBSERVED], live=True)
    assert series(view, NAME, loop.now) == {}
    for _ in range(2):
        view.fold(readings, live=True)
    assert series(view, NAME, loop.now)["throttle", "appended_to_decided", "count"] == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "REMEMBERED_OBSERVATIONS", 2)
    monkeypatch.setattr(samples, "_WAITING_DECISIONS", 2)
    loop = Loop()
    decision = loop.step(log_dirs(900))[0]
    recent = samples.DecisionLatency()
    for number in range(5):
        recent.observe(f"o{number}", START, 0)
        recent.decide(decision.model_copy(update={"evidence": (f"later{number}",)}), 0)
    assert list(recent._recent) == ["o3", "o4"]
    assert list(recent._waiting) == ["later3", "later4"]


# The last decisions that changed anything: what somebody looks for is not pushed out by the steps of a switch.


def promotions(count: int) -> list[Decision]:
    world = WireWorld().to(SwitchStage.BUILD)
    (step, *_) = [each for each in world.published if isinstance(each, SwitchDecision)]
    return [
        step.model_copy(update={"subject": f"ledgers/{n}", "decided_at": step.decided_at + timedelta(seconds=n)})
        for n in range(count)
    ]


def subjects(news: RecentDecisions) -> list[str]:
    return [each.subject for each in news.newest_first()]


def test_of_like_steps_the_last_one_is_told_whatever_order_they_come_in() -> None:
    for order in permutations(promotions(3)):
        news = RecentDecisions()
        for each in order:
            news.add(each)
        assert subjects(news) == ["ledgers/2"]


def test_steps_of_another_kind_and_what_is_no_step_stay() -> None:
    first, second = promotions(2)
    another = second.model_copy(update={"verdict": "delete", "subject": "another"})
    world = WireWorld().to(SwitchStage.BUILD)
    record = world.records()[0].model_copy(update={"decided_at": first.decided_at})
    news = RecentDecisions()
    for each in (record, first, another, second):
        news.add(each)
    assert sorted(subjects(news)) == sorted([record.subject, "another", "ledgers/1"])


def test_it_keeps_so_many_and_the_newest() -> None:
    world = WireWorld().to(SwitchStage.BUILD)
    record, news = world.records()[0], RecentDecisions()
    for n in range(MAX_RECENT_DECISIONS + 5):
        at = record.decided_at + timedelta(seconds=n)
        news.add(record.model_copy(update={"subject": str(n), "decided_at": at}))
    assert subjects(news) == [str(n) for n in range(MAX_RECENT_DECISIONS + 4, 4, -1)]
