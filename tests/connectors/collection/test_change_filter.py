"""A reading is published when it has changed, when it is due again, and never else."""

import pytest
from structlog.testing import capture_logs

from connectors.collection import ChangeFilter
from policies.bookie_readings import BookieRacks
from policies.observations import Outcome, Reading


def racks(groups: int = 0, outcome: Outcome = Outcome.OK) -> BookieRacks:
    return BookieRacks(cluster="c1", outcome=outcome, groups={f"g{number}": {} for number in range(groups)})


class Filter:
    """One that republishes after 15 s, in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.published: list[Reading] = []
        self.filter = ChangeFilter(self.published.append, 15.0, lambda: self.now)

    def offer(self, reading: Reading, key: str = "a", after: float = 1.0) -> list[Reading]:
        """What is published of it."""
        self.now += after
        self.published.clear()
        self.filter.publish_if_due(key, reading)
        return list(self.published)


@pytest.fixture
def given() -> Filter:
    return Filter()


def test_the_first_reading_is_published(given: Filter) -> None:
    assert given.offer(racks()) == [racks()]


def test_the_same_again_is_not_published_before_it_is_due(given: Filter) -> None:
    given.offer(racks())
    assert given.offer(racks(), after=14.9) == []
    assert given.offer(racks(), after=0.1) == [racks()]
    assert given.offer(racks(), after=14.9) == []


def test_a_change_is_published_at_once_and_so_is_the_change_back(given: Filter) -> None:
    given.offer(racks())
    assert given.offer(racks(groups=1), after=0.0) == [racks(groups=1)]
    assert given.offer(racks(), after=0.0) == [racks()]


def test_keys_do_not_hide_each_other(given: Filter) -> None:
    given.offer(racks(), key="a")
    assert given.offer(racks(), key="b") == [racks()]


def test_where_nothing_was_known_of_the_others_their_next_readings_are_published(given: Filter) -> None:
    given.offer(racks(), key="a")
    given.offer(racks(), key="b")
    given.filter.republish_others("a")
    assert given.offer(racks(), key="a") == []
    assert given.offer(racks(), key="b") == [racks()]


def test_what_was_forgotten_is_new(given: Filter) -> None:
    given.offer(racks(), key="a")
    given.offer(racks(), key="b")
    given.filter.keep_only(["b"])
    assert given.offer(racks(), key="a") == [racks()]
    assert given.offer(racks(), key="b") == []


def test_the_log_tells_how_readings_end_also_of_those_that_are_not_published(given: Filter) -> None:
    with capture_logs() as lines:
        for outcome in (Outcome.OK, Outcome.OK, Outcome.TIMEOUT, Outcome.OK):
            given.offer(racks(outcome=outcome))
    assert [(line["what"], line["outcome"]) for line in lines] == [("a", "ok"), ("a", "timeout"), ("a", "ok")]
