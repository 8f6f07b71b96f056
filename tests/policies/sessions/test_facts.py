"""What holds of each member and of each claim as of one moment."""

import pytest

from policies.observations import Observation
from policies.sessions import SessionsState
from policies.sessions.state import SpentShutdown
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import (
    BUNDLE,
    absent,
    at,
    health,
    owned,
    recovery,
    registered,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.joined import connected, expired, joined

FLEET = ("b1", "b2", "b3")


def test_a_loss_is_the_fleet_s_while_others_lose_theirs_or_zookeeper_is_unread() -> None:
    alone = joined(*connected(*FLEET), *expired("b1", seconds=10), until=12)
    both = joined(*connected(*FLEET), *expired("b1", "b2", seconds=10), until=12)
    blind = joined(*connected(*FLEET), *expired("b1", seconds=10), unread(11), until=12)
    assert [f.members["b1"].member.fleet_wide for f in (alone, both, blind)] == [False, True, True]
    new = session(20, "b1", "connected", "0xnew")
    back = joined(*connected(*FLEET), *expired("b1", seconds=10), new, unread(25), until=26)
    assert not back.members["b1"].member.fleet_wide
    assert [f.members["b3"].member.fleet_wide for f in (alone, both, blind)] == [False, False, False]


@pytest.mark.parametrize(("until", "is_evidence"), [(301, True), (301.001, False)])
def test_a_registration_is_evidence_for_its_validity(until: float, is_evidence: bool) -> None:
    readings = [*connected("b1"), registered(1, "b1", "0xb1")]
    assert (readings[-1].id in joined(*readings, until=until).members["b1"].evidence) is is_evidence


@pytest.mark.parametrize(
    ("attempts", "until", "exhausted"), [(9, 30, False), (10, 30, True), (0, 309, False), (0, 310, True)]
)
def test_a_member_is_exhausted_after_enough_attempts_or_time(attempts: int, until: float, exhausted: bool) -> None:
    failed = recovery(20, "b1", "reconnect", "failed", attempt=attempts) if attempts else unread(20, "b9")
    facts = joined(*connected(*FLEET), *expired("b1", seconds=10), failed, until=until)
    assert facts.members["b1"].is_exhausted is exhausted


def test_load_data_is_published_by_a_registration_of_the_present_session_or_by_word() -> None:
    back = [*connected("b1"), *expired("b1", seconds=10), session(20, "b1", "connected", "0xnew")]
    assert not joined(*back, registered(21, "b1", "0xb1"), until=30).members["b1"].has_published
    assert joined(*back, registered(21, "b1", "0xnew"), until=30).members["b1"].has_published
    assert joined(*back, recovery(21, "b1", "republish-load-data"), until=30).members["b1"].has_published
    nameless = [session(0, "b1", "connected"), session(10, "b1", "expired"), session(20, "b1", "connected")]
    unknown = owned(21, "b1", None, "/loadbalance/brokers/b1")
    assert not joined(*nameless, unknown, until=30).members["b1"].has_published, "neither session is known"


def test_a_bundle_is_an_orphan_when_its_owner_is_settled_and_does_not_come_for_it() -> None:
    gone = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), absent(10)]
    settled = joined(*gone, until=20)
    assert settled.orphan_ms(settled.nodes[BUNDLE]) == to_millis(at(70))
    lost = joined(*gone, *expired("b1", seconds=15), until=20)
    assert lost.orphan_ms(lost.nodes[BUNDLE]) is None
    back = joined(*gone, *expired("b1", seconds=15), session(18, "b1", "connected", "0xnew"), until=20)
    assert back.orphan_ms(back.nodes[BUNDLE]) == to_millis(at(78))
    heartbeat = "/namespace/t/b1/0x0_0x1"
    own = joined(*connected("b1"), owned(1, "b1", "0xb1", heartbeat), tree(10), until=20)
    assert own.orphan_ms(own.nodes[heartbeat]) is None


CUT_OFF = (session(12, "b1", "disconnected", "0xb1"), session(14, "b1", "connected", "0xb1"))
LISTED = (registered(5, "b1", "0xb1"), health(12, "b1", listed=True))


@for_each(
    ("then", "is_back"),
    [
        pytest.param((), False, id="it has its session as before"),
        pytest.param(CUT_OFF, True, id="it was cut off since, and is connected again"),
        pytest.param((*CUT_OFF[:1],), False, id="it is cut off"),
        pytest.param((*CUT_OFF, registered(5, "b1", "0xb1")), True, id="connected again, and registered as before"),
        pytest.param((registered(12, "b1", "0xb1"), unregistered(13, "b1")), False, id="registered until then"),
        pytest.param((*CUT_OFF, unregistered(5, "b1")), False, id="connected again, and not registered yet"),
        pytest.param(LISTED, True, id="registered as before, and listed since"),
        pytest.param((*LISTED, unregistered(13, "b1")), False, id="listed since, and no longer registered"),
        pytest.param((*LISTED, *expired("b1", seconds=13)), False, id="listed since, and without a session"),
    ],
)
def test_a_member_that_was_ordered_down_is_back(then: tuple[Observation, ...], is_back: bool) -> None:
    state = SessionsState(spent=(SpentShutdown(to_millis(at(10)), "b1"),))
    facts = joined(*connected(*FLEET), *then, until=15, state=state)
    assert facts.budget.down() == (set() if is_back else {"b1"})
