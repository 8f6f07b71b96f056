"""The sentence about a bundle names what decided."""

import pytest

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.emit import explain_ruling
from policies.sessions.facts import ClaimFacts
from policies.sessions.judge import RuledClaim
from policies.sessions.judge.ownership_table import BundleRuling
from policies.sessions.state import Claim, NodeRecord
from tests.policies.sessions.course import BUNDLE

NODE = NodeRecord(BUNDLE, 1, "n", owner="b2", session="0xold", version=4)
WAIT, RE_OWN, UNLOAD = OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN, OwnershipVerdict.UNLOAD


def message(ruling: BundleRuling, node: NodeRecord | None = NODE, *rivals: str) -> str:
    claim = ClaimFacts(Claim(BUNDLE, "b1", 0), node, is_stale=False, rivals=dict.fromkeys(rivals))
    return explain_ruling("t/ns/0x0", RuledClaim(claim, ruling), "0xnew")


@pytest.mark.parametrize(
    ("ruling", "rivals", "expected"),
    [
        (
            BundleRuling(WAIT, OwnershipReason.OLD_SESSION, left_ms=12_000), (),
            "b1 is to wait: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now), 12 s left.",
        ),
        (
            BundleRuling(RE_OWN, OwnershipReason.OLD_SESSION, expected_version=4, delete_first=True), (),
            "b1 is to own it again: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now) and is "
            "replaced at version 4.",
        ),
        (
            BundleRuling(UNLOAD, OwnershipReason.DOUBLE_OWNERSHIP), ("b3", "b2"),
            "b1 is to unload it: bundle t/ns/0x0 is claimed by b2, b3 as well; its node names b2, session 0xold.",
        ),
        (
            BundleRuling(WAIT, OwnershipReason.UNREADABLE, retry_ms=200), (),
            "b1 is to wait and read it again after 200 ms: bundle t/ns/0x0 has a node that cannot be told apart: value "
            "of b2, session 0xold.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_about_a_bundle(ruling: BundleRuling, rivals: tuple[str, ...], expected: str) -> None:
    assert message(ruling, NODE, *rivals) == expected


@pytest.mark.parametrize("reason", OwnershipReason)
def test_there_is_a_sentence_for_every_reason_with_and_without_a_node_and_what_it_says(reason: OwnershipReason) -> None:
    for node in (NODE, NodeRecord(BUNDLE, 1, "n"), None):
        said = message(BundleRuling(UNLOAD, reason), node, "b3")
        assert "bundle t/ns/0x0" in said
        assert "None" not in said
