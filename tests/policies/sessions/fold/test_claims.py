"""Who claims what: after a loss, after a member's own word, and where two believe they own a bundle."""

from collections.abc import Iterable

from policies.observations import Observation
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.fold import ClusterState
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Claim, LastPublishedRuling, SessionsState
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, absent, at, node, owned, recovery, session, tree

CONNECTED = tuple(session(0, m, "connected", f"0x{m}") for m in ("b1", "b2"))
OWNED = owned(1, "b1", "0xb1")
LOST = session(10, "b1", "expired", "0xb1")
TOLD_TO_UNLOAD = LastPublishedRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER, 1)


def claimants(*readings: Observation, claims: Iterable[Claim] = ()) -> list[str]:
    """Who claims the bundle after these readings."""
    cluster = ClusterState(SessionsState(0, claims=tuple(claims)), SessionsSettings())
    cluster.fold((*CONNECTED, *readings), to_millis(at(60)))
    return sorted(cluster.claims.by_path.get(BUNDLE, ()))


@for_each(
    ("readings", "expected"),
    [
        ([OWNED], []),
        ([OWNED, LOST], ["b1"]),
        ([OWNED, absent(5), LOST], ["b1"]),
        ([OWNED, owned(5, None, "0xb1"), LOST], ["b1"]),
        ([OWNED, owned(5, "b2", "0xb2"), LOST], ["b1", "b2"]),
        ([OWNED, owned(5, "b2", "0xb2"), session(7, "b1", "connected", "0xb1"), LOST], []),
        ([OWNED, LOST, owned(12, "b2", "0xb2")], ["b1", "b2"]),
        ([OWNED, LOST, tree(12, node("b2", "0xb2"))], ["b1", "b2"]),
        ([OWNED, LOST, owned(12, "b9", "0xb9")], ["b1"]),
        ([OWNED, LOST, session(12, "b1", "closed", "0xb1")], []),
        ([OWNED, owned(5, "b1", "0xb2")], ["b1", "b2"]),
    ],
    ids=[
        "nobody while nothing is lost",
        "who lost its session what it owned",
        "what was deleted since it was last connected",
        "what was its own and cannot be read now",
        "what another took since it was last connected, both",
        "not what another took before it was last connected",
        "another that takes it later, as well",
        "another that a tree names, as well",
        "nobody that is not known",
        "nobody after an orderly end",
        "whom a node names and whose session it is of",
    ],
)
def test_who_claims_a_bundle(readings: list[Observation], expected: list[str]) -> None:
    assert claimants(*readings) == expected


def test_a_member_s_own_word_is_a_claim_where_the_node_names_another() -> None:
    says = recovery(12, "b1", "re-own", path=BUNDLE)
    assert claimants(owned(5, "b2", "0xb2"), says) == ["b1", "b2"]
    assert claimants(OWNED, says) == []
    assert claimants(owned(20, "b2", "0xb2"), says) == []
    assert claimants(owned(5, "b2", "0xb2"), recovery(12, "b1", "re-own", "failed", path=BUNDLE)) == []


def test_what_a_member_has_unloaded_since_the_loss_is_claimed_no_more() -> None:
    """Also before the loop has told it to: an agent that waits in vain goes by the same rules, and reports once."""
    done = recovery(12, "b1", "unload", path=BUNDLE)
    assert claimants(done, claims=[Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD)]) == []
    assert claimants(done, claims=[Claim(BUNDLE, "b1", 0)]) == []
    assert claimants(done, claims=[Claim(BUNDLE, "b1", to_millis(at(13)))]) == ["b1"]


def test_a_new_loss_begins_a_new_claim() -> None:
    cluster = ClusterState(SessionsState(0, claims=(Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD),)), SessionsSettings())
    cluster.fold((*CONNECTED, OWNED, LOST), to_millis(at(60)))
    assert cluster.claims.by_path[BUNDLE]["b1"] == Claim(BUNDLE, "b1", to_millis(at(10)))
