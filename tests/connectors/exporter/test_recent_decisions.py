"""The last decisions that changed anything: what somebody looks for is not pushed out by the steps of a switch."""

from datetime import timedelta
from itertools import permutations

from connectors.exporter.samples import RecentDecisions
from connectors.views import MAX_RECENT_DECISIONS
from policies.decisions import Decision
from policies.switching.decisions import SwitchDecision
from policies.switching.state import SwitchStage
from tests.policies.switching.wire import WireWorld


def promotions(count: int) -> list[Decision]:
    world = WireWorld()
    world.to(SwitchStage.BUILD)
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
    world = WireWorld()
    world.to(SwitchStage.BUILD)
    record = world.records()[0].model_copy(update={"decided_at": first.decided_at})
    news = RecentDecisions()
    for each in (record, first, another, second):
        news.add(each)
    assert sorted(subjects(news)) == sorted([record.subject, "another", "ledgers/1"])


def test_it_keeps_so_many_and_the_newest() -> None:
    world = WireWorld()
    world.to(SwitchStage.BUILD)
    record, news = world.records()[0], RecentDecisions()
    for n in range(MAX_RECENT_DECISIONS + 5):
        at = record.decided_at + timedelta(seconds=n)
        news.add(record.model_copy(update={"subject": str(n), "decided_at": at}))
    assert subjects(news) == [str(n) for n in range(MAX_RECENT_DECISIONS + 4, 4, -1)]
