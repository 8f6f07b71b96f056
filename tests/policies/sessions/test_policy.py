"""What each member is told, from the first loss to the last bundle."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.facts import ClaimFacts
from policies.sessions.fold import FORGET_MS, find_forgotten
from policies.sessions.readings import registration_path
from policies.sessions.rulings import BundleRuling, explain_ruling
from policies.sessions.state import Claim, Health, Member, NodeRecord, SourceRecord
from tests.cases import for_each
from tests.policies.sessions.course import (
    BUNDLE,
    Run,
    absent,
    health,
    node,
    owned,
    recovery,
    registered,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.joined import after, connected, expired, joined, published

SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "shutdown_delay": "5s"}


def start(*members: str, **settings: Any) -> Run:
    return Run(**settings).together(*[session(0, m, "connected", f"0x{m}") for m in members])


def test_a_lost_connection_is_held_and_resumed() -> None:
    run = start("b1", "b2").see(session(5, "b1", "disconnected", "0xb1"), session(10, "b1", "connected", "0xb1"))
    assert run.told("b1") == [(5, "hold connection_lost"), (10, "resume reconnected")]
    assert run.sessions[0].seconds_left == 25
    assert run.sessions[0].explanation == (
        "Broker b1 is disconnected from ZooKeeper: it keeps serving, and has 25 s of 25 s left to reconnect."
    )
    assert run.sessions[1].events == ("reconnected",)
    assert run.alerts == []


def test_a_connection_lost_for_too_long_is_a_lost_session_without_another_reading() -> None:
    run = start("b1", "b2").see(session(5, "b1", "disconnected", "0xb1")).until(40)
    assert run.told("b1") == [(5, "hold connection_lost"), (30, "reconnect session_lost")]
    assert run.said("session-lost") == [(30, "b1", "firing")]


def test_a_lost_session_is_reconnected_and_recovered() -> None:
    run = reestablished().see(absent(21), owned(25, "b1", "0xnew"), registered(26, "b1", "0xnew")).until(90)
    assert run.told("b1") == [
        (10, "reconnect session_lost"), (20, "recover session_reestablished"), (25, "resume recovered"),
    ]  # fmt: skip
    recover, resume = run.sessions[1:]
    assert recover.plan == ("re-own", "republish-load-data", "invalidate-caches")
    assert recover.events[-2:] == ("reconnected", "session_reestablished")
    assert recover.bundles == (BUNDLE,)
    assert resume.recovery_seconds == 15
    assert run.ruled("b1") == [(21, "re-own absent"), (25, "keep own_session")]
    assert run.said("session-lost") == [(10, "b1", "firing"), (20, "b1", "resolved")]


def test_the_plan_follows_the_order_in_the_settings() -> None:
    order = ["invalidate-caches", "re-own"]
    run = reestablished(recovery_order=order)
    assert list(run.sessions[-1].plan) == order


def still_lost(*members: str, every: float = 5, first: float, last: float) -> list[Observation]:
    """Their sessions are read as expired over and over."""
    seconds = [first + every * n for n in range(int((last - first) // every) + 1)]
    return [session(s, m, "expired", f"0x{m}") for s in seconds for m in members]


def test_a_fleet_that_lost_its_sessions_is_not_shut_down() -> None:
    run = start("b1", "b2", "b3", **SHUTDOWN).see(session(10, "b1", "expired", "0xb1"))
    run.see(session(12, "b2", "expired", "0xb2")).until(200)
    assert run.told("b1") == [(10, "hold confirming"), (12, "reconnect fleet_wide")]
    assert run.told("b2") == [(12, "reconnect fleet_wide")]
    assert run.firing() == {("session-fleet-wide", "broker")}
    assert set(run.sessions[-1].evidence) == {"session-b1-expired-0xb1@10", "session-b2-expired-0xb2@12"}
    assert run.said("session-lost") == [(10, "b1", "firing"), (12, "b1", "resolved")]


def test_a_shutdown_is_decided_when_its_delay_is_over_without_another_reading() -> None:
    run = start("b1", "b2", "b3", **SHUTDOWN).see(*still_lost("b1", every=3, first=11, last=14)).until(30)
    assert run.told("b1") == [(11, "hold confirming"), (16, "shutdown session_lost")]


def test_members_of_another_role_are_another_fleet() -> None:
    run = Run(**SHUTDOWN).together(
        *[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3")],
        *[session(0, m, "connected", f"0x{m}", role="proxy") for m in ("p1", "p2", "p3")],
    )
    run.see(session(10, "b1", "expired", "0xb1"), session(11, "p1", "expired", "0xp1", role="proxy"))
    run.see(session(15, "b1", "expired", "0xb1"), session(16, "p1", "expired", "0xp1", role="proxy")).until(60)
    assert run.told("b1")[-1] == (15, "shutdown session_lost")
    assert run.told("p1")[-1] == (16, "reconnect shutdown_budget")


def test_an_unreadable_zookeeper_is_no_loss_of_sessions() -> None:
    run = start("b1", "b2", "b3", **SHUTDOWN).see(unread(10), unread(20, "b1"), unread(30))
    assert run.sessions == []
    assert run.firing() == {("zookeeper-unread", "messaging")}
    run.see(session(40, "b1", "connected", "0xb1"))
    assert run.firing() == set()


@pytest.mark.parametrize(
    ("policy", "delay", "second"), [("reconnect", "5s", 310), ("reconnect", "320s", 330), ("shutdown", "320s", 330)]
)
def test_a_member_that_does_not_come_back_by_its_deadline_is_given_up_after_the_delay_of_a_shutdown(
    policy: str, delay: str, second: int
) -> None:
    settings = {"on_session_lost": policy, "zombie_after": "1h", "shutdown_delay": delay}
    run = start("b1", "b2", "b3", **settings).see(*still_lost("b1", first=10, last=400))
    assert run.told("b1")[-1] == (second, "shutdown reconnect_exhausted")


@pytest.mark.parametrize("lost_together", [False, True])
def test_a_member_that_failed_ten_times_within_seconds_waits_until_others_cut_off_with_it_are_seen(
    *, lost_together: bool
) -> None:
    """T is 6 s for one, and 30 s for the others, which are seen cut off 10 s later."""
    run = start("b2", "b3", "b4", "b5")
    for second in range(0, 60, 2):
        run.see(session(second, "b1", "connected" if second < 10 else "expired", "0xb1", timeout_ms=6000))
        others = "disconnected" if lost_together and second >= 20 else "connected"
        run.see(*(session(second, name, others, f"0x{name}") for name in ("b2", "b3", "b4", "b5")))
        if second == 10:
            run.see(*(recovery(10 + n / 10, "b1", "reconnect", "failed", attempt=n) for n in range(1, 11)))
    went_down = [told for told in run.told("b1") if "shutdown" in told[1]]
    assert went_down == ([] if lost_together else [(38, "shutdown reconnect_exhausted")])


def test_without_a_budget_a_member_that_does_not_come_back_is_an_alert() -> None:
    run = start("b1", "b2", "b3", shutdown_budget=0, reconnect_deadline="4m")
    run.see(session(10, "b1", "expired", "0xb1")).until(260)
    assert run.told("b1")[-1] == (250, "reconnect shutdown_budget")
    assert ("reconnect-exhausted", "b1") not in run.firing(), "a reading four minutes old begins no critical alert"
    run.see(*still_lost("b1", first=265, last=270))
    assert ("reconnect-exhausted", "b1") in run.firing()


def test_a_closed_session_is_gone_and_its_bundles_are_free() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), session(10, "b1", "closed", "0xb1"), absent(11))
    assert run.told("b1") == [(10, "gone closed")]
    run.see(session(20, "b1", "connected", "0xnew"))
    assert run.told("b1")[-1] == (20, "resume joined")
    assert run.bundles == []


def unlisted(*also: str) -> Run:
    """One member has a session again and is registered, but not listed; the sessions of others cannot be read."""
    run = start("b1", "b2", zombie_after="1m").see(
        session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew"), registered(21, "b1", "0xnew")
    )
    for seconds in range(22, 200, 10):
        run.see(session(seconds, "b1", "connected", "0xnew"), registered(seconds, "b1", "0xnew"))
        run.see(health(seconds, "b1", listed=False), *(unread(seconds, each) for each in also))
    return run


def test_a_registered_member_that_the_cluster_does_not_list_is_not_ready() -> None:
    assert unlisted("b2").told("b1")[-1] == (20.001, "resume recovered"), "not while ZooKeeper cannot be read"
    run = unlisted()
    assert run.told("b1")[-1] == (82, "shutdown not_ready")
    run.see(session(200, "b1", "disconnected", "0xnew"))
    assert run.told("b1")[-1] == (82, "shutdown not_ready")
    run.see(health(201, "b1", listed=True), session(202, "b1", "disconnected", "0xnew"))
    assert run.told("b1")[-1] == (201, "hold connection_lost"), "once it is listed, the shutdown is not in force"


def flap(run: Run, losses: int) -> Run:
    for n in range(1, losses + 1):
        before = "0xb1" if n == 1 else f"0x{n - 1}"
        run.see(session(n * 20, "b1", "expired", before), session(n * 20 + 5, "b1", "connected", f"0x{n}"))
    return run


def test_a_flapping_member_is_held_and_nothing_of_its_is_cleaned_up_until_it_is_stable() -> None:
    run = flap(start("b1", "b2").see(owned(1, "b1", "0xb1")), 4).see(owned(90, "b2", "0xb2"))
    assert run.told("b1")[-1] == (80, "hold unsettled")
    assert ("session-flapping", "b1") in run.firing()
    assert not any(seconds >= 80 for seconds, _ in run.ruled("b1"))
    run.see(owned(200, "b2", "0xb2"), session(265, "b1", "connected", "0x4")).until(290)
    assert run.told("b1")[-2:] == [(265, "recover session_reestablished"), (265.001, "resume recovered")]
    assert run.ruled("b1")[-1] == (265, "unload double_ownership")
    assert ("session-flapping", "b1") not in run.firing()


def reestablished(**settings: Any) -> Run:
    return start("b1", "b2", **settings).see(
        owned(1, "b1", "0xb1"), session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew")
    )


def test_a_second_loss_within_a_recovery_has_a_plan_of_its_own() -> None:
    run = reestablished().together(
        session(30, "b1", "expired", "0xnew"), session(31, "b1", "connected", "0xnext"), owned(32, "b1", "0xnext")
    )
    plans = [(second, what) for second, what in run.told("b1") if what.startswith("re")]
    assert plans[-1] == (32, "recover session_reestablished")


def test_of_sessions_without_an_id_an_owner_read_before_the_present_one_began_orders_nothing() -> None:
    run = Run().together(*[session(0, m, "connected") for m in ("b1", "b2")]).see(owned(1, "b1", None))
    run.see(session(10, "b1", "expired"), owned(12, "b2", None), session(20, "b1", "connected"))
    assert [second for second, _ in run.ruled("b1") if second >= 20] == []


def test_a_node_of_the_old_session_is_waited_for_until_the_time_is_over() -> None:
    run = reestablished(ownership_rules="pip57").see(owned(21, "b1", "0xb1")).until(60)
    assert run.ruled("b1") == [(21, "wait old_session"), (50, "unload old_session_persists")]
    assert run.bundles[0].seconds_left == 29


def test_a_bundle_that_is_not_read_in_the_interval_of_its_readings_waits_and_says_so() -> None:
    """A `wait` is no record of its own where another ruling follows within one interval, here of five seconds."""
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), owned(6, "b1", "0xb1"), session(10, "b1", "expired", "0xb1"))
    run.see(session(20, "b1", "connected", "0xnew")).until(40)
    assert run.ruled("b1") == [(25, "wait unread")]


def test_a_collector_that_publishes_changes_at_once_and_nothing_else_for_five_seconds_delays_no_order() -> None:
    """The readings 0.2 s apart do not show how long the next one takes."""
    run = Run().together(*[session(0, name, "connected", f"0x{name}") for name in ("b1", "b2")])
    run.see(tree(0, node("b1", "0xb1", BUNDLE)), session(10, "b1", "expired", "0xb1"))
    run.see(tree(10.0, node("b1", "0xb1", BUNDLE)), tree(10.2), session(11, "b1", "connected", "0xnew"))
    run.see(tree(15.2))
    assert [what for _, what in run.ruled("b1")] == ["re-own absent"]


def test_a_node_of_the_old_session_is_replaced_under_current_rules() -> None:
    run = reestablished(ownership_rules="current").see(owned(21, "b1", "0xb1", version=4))
    assert run.ruled("b1")[-1] == (21, "re-own old_session")
    decision = run.bundles[-1]
    assert (decision.delete_first, decision.expected_version, decision.preload) == (True, 4, True)


def test_two_members_that_believe_they_own_a_bundle_are_an_alert_and_one_lets_go() -> None:
    run = reestablished().see(owned(21, "b2", "0xb2"))
    assert run.ruled("b1")[-1] == (21, "unload double_ownership")
    assert run.ruled("b2") == [(21, "keep own_session")]
    assert run.said("double-ownership") == [(21, "t/ns/0x00000000_0x40000000", "firing")]
    run.see(recovery(25, "b1", "unload", path=BUNDLE)).until(30)
    assert run.firing() == set()
    assert run.told("b1")[-1][1] == "resume recovered"


def test_a_bundle_that_a_member_was_to_unload_is_its_own_if_it_has_it_again_but_it_need_not_take_it() -> None:
    run = reestablished().see(owned(21, "b2", "0xb2"), absent(25))
    assert run.ruled("b1")[-1] == (21, "unload double_ownership")
    assert run.see(owned(26, "b1", "0xnew")).ruled("b1")[-1] == (26, "keep own_session")


def test_a_bundle_that_changes_hands_in_order_is_nobodys_double() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), absent(10), owned(11, "b2", "0xb2")).until(100)
    assert run.published == []


def test_a_process_with_two_names_and_one_session_contests_nothing() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), session(2, "p1", "connected", "0xb1", role="proxy")).until(60)
    assert run.published == []


def test_load_data_that_is_missing_is_asked_for_and_then_an_alert() -> None:
    run = reestablished().see(owned(25, "b1", "0xnew"), registered(26, "b1", "0xb1")).until(90)
    assert run.told("b1")[-1] == (55.0, "republish-load-data load_data_missing")
    assert run.said("load-data-missing") == [(85.0, "b1", "firing")]
    run.see(registered(95, "b1", "0xnew"))
    assert run.told("b1")[-1] == (95, "resume registered")
    assert run.firing() == set()
    assert reestablished().see(owned(25, "b1", "0xnew")).until(120).firing() == set(), "registrations are not read"


# --- Only a decision that differs from the one in force is published; what is remembered, and what is forgotten

OTHER = "/namespace/t/ns/0x40000000_0x80000000"
NODE = NodeRecord(BUNDLE, 1, "n", owner="b2", session="0xold", version=4)
WAIT, RE_OWN, UNLOAD = OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN, OwnershipVerdict.UNLOAD


def test_bundles_are_numbered_before_members_and_members_by_their_losses() -> None:
    facts = joined(
        *connected("b1", "b2", "b3"), owned(1, "b2", "0xb2"), owned(1, "b1", "0xb1", OTHER),
        *expired("b2", seconds=10), *expired("b1", seconds=11),
        session(20, "b1", "connected", "0xn1"), session(20, "b2", "connected", "0xn2"), tree(21), until=21,
    )  # fmt: skip
    said = published(facts)
    first = said.bundles[0].sequence
    assert [(d.path, d.sequence) for d in said.bundles] == [(BUNDLE, first), (OTHER, first + 1)]
    assert [(d.member, d.sequence) for d in said.sessions] == [("b2", first + 2), ("b1", first + 3)]
    assert said.sequence == first + 3
    assert set(said.orders) == {"b1", "b2"}
    assert set(said.rulings) == {(BUNDLE, "b2"), (OTHER, "b1")}


def message(ruling: BundleRuling, node: NodeRecord | None = NODE, *rivals: str) -> str:
    claim = ClaimFacts(Claim(BUNDLE, "b1", 0), node, rivals=dict.fromkeys(rivals))
    return explain_ruling("t/ns/0x0", (claim, ruling), "0xnew")


@pytest.mark.parametrize(
    ("ruling", "rivals", "expected"),
    [
        (
            BundleRuling(WAIT, OwnershipReason.OLD_SESSION, left_ms=12_000), (),
            "b1 must wait: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now), 12 s left.",
        ),
        (
            BundleRuling(RE_OWN, OwnershipReason.OLD_SESSION, expected_version=4), (),
            "b1 must own it again: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now) and is "
            "replaced at version 4.",
        ),
        (
            BundleRuling(UNLOAD, OwnershipReason.DOUBLE_OWNERSHIP), ("b3", "b2"),
            "b1 must unload it: bundle t/ns/0x0 is claimed by b2, b3 as well; its node names b2, session 0xold.",
        ),
        (
            BundleRuling(WAIT, OwnershipReason.UNREADABLE, retry_ms=200), (),
            "b1 must wait and read it again after 200 ms: bundle t/ns/0x0 has a node whose owner or session cannot be "
            "read: its node names b2, session 0xold.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_about_a_bundle(ruling: BundleRuling, rivals: tuple[str, ...], expected: str) -> None:
    assert message(ruling, NODE, *rivals) == expected


@for_each("reason", OwnershipReason)
def test_there_is_a_sentence_for_every_reason_with_and_without_a_node_and_what_it_says(reason: OwnershipReason) -> None:
    for known in (NODE, NodeRecord(BUNDLE, 1, "n"), None):
        said = message(BundleRuling(UNLOAD, reason), known, "b3")
        assert "bundle t/ns/0x0" in said
        assert "None" not in said


LOST = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]


@pytest.mark.parametrize("bundles", [(), (owned(1, "b1", "0xb1"), owned(12, "b2", "0xb2"))], ids=["none", "all taken"])
def test_a_recovery_of_nothing_ends_at_once_and_load_data_is_asked_for(bundles: tuple[Observation, ...]) -> None:
    run = start("b1", "b2").see(*bundles[:1], *expired("b1", seconds=10), *bundles[1:])
    run.see(registered(15, "b1", "0xb1"), session(20, "b1", "connected", "0xnew")).until(60)
    assert [(second // 1, what) for second, what in run.told("b1")[1:]] == [
        (20, "recover session_reestablished"), (20, "resume recovered"), (50, "republish-load-data load_data_missing"),
    ]  # fmt: skip


def test_a_claim_is_over_when_its_member_has_recovered_and_nobody_else_claims_it() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), *expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"), owned(25, "b1", "0xnew"))
    assert run.known.claims == ()


@for_each(
    ("unseen_ms", "who", "forgotten"),
    [
        (300_000, "b2", False), (300_001, "b2", True), (300_001, "b1", False), (FORGET_MS + 1, "b1", True),
        (300_001, "told to go down", False), (FORGET_MS + 1, "told to go down", True),
        (FORGET_MS + 1, "not read for as long", False),
    ],
)  # fmt: skip
def test_who_is_listed_no_more_is_forgotten_and_later_when_without_a_session(
    unseen_ms: int, who: str, forgotten: bool
) -> None:
    found = joined(*LOST, until=10).members["b1" if who == "b1" else "b2"].member
    member = Member(found.member, track=found.track, seen_ms=1000)
    read_ms = 1000 + unseen_ms
    sessions = SourceRecord("", read_ms, since_ms=read_ms if who == "not read for as long" else 1000)
    down = {member.member} if who == "told to go down" else set()
    assert bool(find_forgotten([member], sessions, 300_000, down)) is forgotten


@pytest.mark.parametrize(("asked_ms", "forgotten"), [(FORGET_MS, set()), (FORGET_MS + 1, {"z"})])
def test_a_member_of_which_only_its_health_was_read_is_forgotten_when_others_are_asked_and_it_is_not(
    asked_ms: int, forgotten: set[str]
) -> None:
    other = Health(1000 + asked_ms + 10_000, "", "ok", healthy=True, listed=True, before_ms=1000 + asked_ms)
    members = [Member("b1", health=other, seen_ms=other.at_ms), Member("z", seen_ms=1000)]
    assert find_forgotten(members, SourceRecord(""), 300_000) == forgotten


def test_a_member_that_is_forgotten_claims_nothing() -> None:
    lost = [*LOST, owned(12, "b2", "0xb2"), *(session(second, None, None) for second in (0, 200, 400))]
    found = joined(*lost, *expired("b1", seconds=400), until=400)
    assert [claim.rivals for claim in found.members["b1"].claims] == [{}]


def test_a_node_that_is_claimed_is_remembered_as_long() -> None:
    late = [session(3600 + n, "b1", "expired", "0xb1") for n in (1, 12)]
    assert BUNDLE in after(joined(*LOST, absent(11), *late, until=3612, reconnect_deadline="2h")).nodes
    for last_s, is_kept in ((3610.999, True), (3611, False)):
        free = joined(*connected("b1"), owned(1, "b1", "0xb1"), absent(11), absent(last_s), until=3612)
        assert (BUNDLE in after(free).nodes) is is_kept


def test_the_absence_of_a_member_s_registration_is_remembered_as_long_as_the_member() -> None:
    """Or a zombie's alert would end after an hour."""
    looks = [reading for n in range(0, 3700, 100) for reading in (unregistered(n, "b1"), health(n + 1, "b1"))]
    found = after(joined(*connected("b1"), *looks, until=3700))
    assert found.members["b1"].liveness.unregistered is not None
    assert registration_path("b1") in found.nodes


def test_a_source_that_nobody_has_tried_for_an_hour_is_forgotten() -> None:
    found = joined(*connected("b1"), tree(1), until=5)
    assert set(after(found).sources) == {"", "/namespace"}
    assert set(after(joined(*connected("b1"), tree(1), *connected("b1", seconds=3602), until=3602)).sources) == {""}
