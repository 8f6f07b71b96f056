"""Rows 3, 5, 7 and 25: what follows from registry, brokers and clusters."""

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.state import LedgerStage, SwitchStage
from tests.policies.switching.commands import command
from tests.policies.switching.events import RegistrySeen
from tests.policies.switching.world import Bookies, World, codes

S, L = SwitchStage, LedgerStage


def test_what_the_registry_lacks_is_written_again_until_it_is_seen_there() -> None:
    world = World().to(S.REGISTERED)
    held = list(world.state.entries)
    said = world.tell(RegistrySeen((replace(held[1], version=3),), "old", None, 0))
    assert [(s.verdict, s.reason, s.subject) for s in said] == [
        (SwitchVerdict.WRITE_REGISTRY, SwitchReason.NOT_SEEN, f"registry/{held[0].name}")
    ]
    assert said[0].details["bootstrap"] == "old"
    assert world.tell(RegistrySeen(tuple(replace(e, version=4) for e in held), "old", None, 0)) == []
    assert [e.version for e in world.state.entries] == [4, 4]


def test_what_was_unregistered_is_removed_again_until_the_registry_is_seen_without_it() -> None:
    world = World().to(S.REGISTERED)
    everything = tuple(replace(e, version=7) for e in world.state.entries)
    world.later().tell(world.inventory_event())
    world.tell(command("unregister", world.key(), name="new"))
    said = world.tell(RegistrySeen(everything, "old", None, 0))
    assert [(s.verdict, s.reason, s.details["version"]) for s in said] == [
        (SwitchVerdict.REMOVE_REGISTRY, SwitchReason.NOT_SEEN, 7)
    ]
    left = tuple(e for e in everything if e.name != "new")
    assert world.tell(RegistrySeen(left, "old", None, 0)) == []
    assert world.tell(RegistrySeen(everything, "old", None, 0)) == [], "somebody else registered it since"


def test_without_the_lease_nothing_of_the_registry_is_written_again() -> None:
    world = World().to(S.REGISTERED)
    world.state = replace(world.state, lease=None)
    assert world.tell(RegistrySeen((), "old", None, 0)) == []


def test_a_stale_ack_is_ignored() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), world.follow("b1"), world.broker_event("b2", epoch=0))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED)


def test_a_client_that_cannot_be_made_before_any_ack_takes_the_switch_back() -> None:
    world = World().to(S.REJECTED)
    assert world.is_at(S.REJECTED)
    assert world.state.directive is not None
    assert (world.state.directive.epoch, world.state.directive.target) == (2, "old")
    assert world.state.active() == "old"


def test_a_paused_switch_is_not_taken_back_by_itself_as_no_directive_would_say_so() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(command("pause", "p"), *(world.cluster_event(n) for n in world.clusters))
    assert world.later().tell(world.broker_event("b1", failed=True, epoch=world.switch.epoch)) == []
    world.tell(command("resume", "r"))
    world.raise_ids()
    assert world.is_at(S.REJECTED)


def test_a_client_that_cannot_be_made_after_an_ack_leaves_it_to_a_person() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.follow("b1"))
    assert world.tell(world.broker_event("b2", failed=True, epoch=1)) == []
    assert world.is_at(S.TRIGGERED)
    assert world.state.active() == "new"


def test_a_cluster_that_answers_with_another_identity_is_not_believed() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"] = Bookies("old", "id-of-another")
    assert codes(world.later().tell(world.cluster_event("old"))) == [RejectCode.NAME_CONFLICT]
    seen = world.state.cluster("old")
    assert seen is not None
    assert seen.instance_id == "id-of-old"
