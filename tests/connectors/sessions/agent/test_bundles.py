"""What a watch or a new session changes about a bundle at once, before anybody has looked."""

import pytest
from kazoo.protocol.states import EventType

from connectors.sessions.agent.bundles import Bundle, Bundles, BundleStage

PATH = "/namespace/a"


@pytest.fixture
def bundle() -> Bundle:
    return Bundle(PATH, b"", 0.0)


@pytest.fixture
def bundles(bundle: Bundle) -> Bundles:
    bundles = Bundles()
    bundles.add(bundle)
    return bundles


def test_the_node_of_an_owned_bundle_is_deleted_and_it_is_owned_no_more(bundles: Bundles, bundle: Bundle) -> None:
    bundle.mark_owned("0x1")
    assert bundles.handle_watch(PATH, EventType.DELETED)
    assert (bundle.stage, bundle.session, bundle.due) == (BundleStage.WANTED, None, 0.0)


def test_a_node_that_appears_while_the_bundle_is_wanted_is_suspected(bundles: Bundles, bundle: Bundle) -> None:
    assert bundles.handle_watch(PATH, EventType.CREATED)
    assert bundle.suspected


def test_a_node_that_is_created_here_is_not(bundles: Bundles, bundle: Bundle) -> None:
    bundle.writing = True
    bundles.handle_watch(PATH, EventType.CREATED)
    assert not bundle.suspected


def test_what_is_given_up_or_unknown_concerns_nobody(bundles: Bundles, bundle: Bundle) -> None:
    assert not bundles.handle_watch("/namespace/b", EventType.CREATED)
    bundle.give_up(None)
    assert not bundles.handle_watch(PATH, EventType.CREATED)


@pytest.mark.parametrize(("owned_in", "suspected"), [("0x1", True), ("0x2", False)])
def test_what_another_has_taken_is_suspected_unless_it_is_owned_in_the_new_session(
    bundles: Bundles, bundle: Bundle, owned_in: str, *, suspected: bool
) -> None:
    bundle.mark_owned(owned_in)
    bundles.suspect(bundle, "0x2", taken=True)
    assert bundle.suspected is suspected
