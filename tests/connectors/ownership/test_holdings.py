"""What a watch or a new session changes about a bundle at once, before anybody has looked."""

import pytest
from kazoo.protocol.states import EventType

from connectors.ownership.holding import Holding, Stage
from connectors.ownership.holdings import Holdings

PATH = "/namespace/a"


@pytest.fixture
def holding() -> Holding:
    return Holding(PATH, b"", 0.0)


@pytest.fixture
def holdings(holding: Holding) -> Holdings:
    holdings = Holdings()
    holdings.add(holding)
    return holdings


def test_the_node_of_an_owned_bundle_is_deleted_and_it_is_owned_no_more(holdings: Holdings, holding: Holding) -> None:
    holding.own("0x1")
    assert holdings.changed(PATH, EventType.DELETED)
    assert (holding.stage, holding.session, holding.due) == (Stage.WANTED, None, 0.0)


def test_a_node_that_appears_while_the_bundle_is_wanted_is_suspected(holdings: Holdings, holding: Holding) -> None:
    assert holdings.changed(PATH, EventType.CREATED)
    assert holding.suspected


def test_a_node_that_is_created_here_is_not(holdings: Holdings, holding: Holding) -> None:
    holding.writing = True
    holdings.changed(PATH, EventType.CREATED)
    assert not holding.suspected


def test_what_is_given_up_or_unknown_concerns_nobody(holdings: Holdings, holding: Holding) -> None:
    assert not holdings.changed("/namespace/b", EventType.CREATED)
    holding.give_up(None)
    assert not holdings.changed(PATH, EventType.CREATED)


@pytest.mark.parametrize(("owned_in", "suspected"), [("0x1", True), ("0x2", False)])
def test_what_another_has_taken_is_suspected_unless_it_is_owned_in_the_new_session(
    holdings: Holdings, holding: Holding, owned_in: str, *, suspected: bool
) -> None:
    holding.own(owned_in)
    holdings.suspect(holding, "0x2", taken=True)
    assert holding.suspected is suspected
