"""What a status offers to command is what the policy takes, wherever the switch stands."""

import re

import pytest
from msgspec.structs import replace

from deploy.switch.next_commands import next_commands
from policies.switching.decisions import SwitchVerdict
from policies.switching.events import RegistrySeen
from policies.switching.readings import SwitchCommand
from policies.switching.settings import DAY_MS
from policies.switching.state import ClusterStatus, Directive, SwitchStage
from policies.units import from_millis
from tests.policies.switching.commands import command
from tests.policies.switching.wire import WireWorld

S = SwitchStage
STAGES = [
    S.REGISTERED, S.PRECHECKED, S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK,
    S.ROLLED_BACK, S.REJECTED, S.DONE,
]  # fmt: skip


def found(world: WireWorld) -> dict[str, str]:
    """By command what is said of it."""
    said = next_commands(world.records()[-1], from_millis(world.now_ms))
    return {re.findall(r"`([^`]+)`", way)[0]: way for way in said}


def offered(world: WireWorld) -> list[str]:
    return list(found(world))


def event(words: str) -> SwitchCommand:
    match words.split():
        case ["rollback", *brokers]:
            return command("rollback", words, attribution_only=not brokers)
        case ["start", "--target", name]:
            return command("start", words, target=name, digest=None)
        case ["cleanup"]:
            return command("cleanup", words, dry_run=True)
        case ["abort" | "end" as name]:
            return command(name, words)
    return command("pause", words) if words == "pause" else command("resume", words)


def refused(stage: SwitchStage, words: str, *before: SwitchCommand, days: int = 0) -> list[str]:
    """Why a command is not taken, given in a world of its own."""
    world = reached(stage, *before, days=days)
    said = world.tell(event(words))
    return [s.sentence for s in said if s.verdict is SwitchVerdict.REJECT or "would be rejected" in s.sentence]


def reached(stage: SwitchStage, *before: SwitchCommand, days: int = 0) -> WireWorld:
    world = WireWorld()
    world.to(stage)
    world.later(days * DAY_MS)
    if days:
        world.tell(*(world.cluster_event(n) for n in world.clusters), world.members_event())
    world.tell(*before)
    return world


@pytest.mark.parametrize(("theirs", "offers"), [(True, ["resume"]), (False, [])], ids=["a directive", "two active"])
def test_a_contested_switch_is_resumed_only_over_a_directive(theirs: bool, offers: list[str]) -> None:
    world = reached(S.HOLD)
    entries = tuple(replace(e, status=ClusterStatus.ACTIVE) for e in world.state.entries)
    directive = Directive(world.state.epoch + 2, "old")
    world.tell(RegistrySeen(world.state.entries if theirs else entries, "old", directive if theirs else None, 0))
    assert offered(world) == offers
    assert ([d.code for d in world.tell(command("resume", "r")) if d.code] == []) is theirs


@pytest.mark.parametrize("before", [(), (command("pause", "p"),)], ids=["", "paused"])
@pytest.mark.parametrize("stage", STAGES)
def test_every_command_that_is_offered_is_taken(stage: SwitchStage, before: tuple[SwitchCommand, ...]) -> None:
    for words, way in found(reached(stage, *before)).items():
        why = refused(stage, words, *before)
        assert not why, (way, why)


@pytest.mark.parametrize(
    ("stage", "days", "commands"),
    [
        (S.REGISTERED, 0, []),
        (S.TRIGGERED, 0, ["abort", "pause"]),
        (S.BUILD, 0, ["rollback", "rollback --with-brokers", "pause"]),
        (S.HOLD, 2, ["end", "pause"]),
        (S.HOLD, 16, ["cleanup", "end", "pause"]),
        (S.ROLLED_BACK, 0, ["rollback --with-brokers"]),
        (S.DONE, 0, []),
    ],
)
def test_what_is_offered(stage: SwitchStage, days: int, commands: list[str]) -> None:
    assert offered(reached(stage, days=days)) == commands


def test_a_paused_switch_is_resumed_first_and_not_paused_again() -> None:
    assert offered(reached(S.BUILD, command("pause", "p"))) == ["resume", "rollback", "rollback --with-brokers"]


def test_a_cleanup_is_offered_only_where_it_is_accepted() -> None:
    world = reached(S.HOLD, days=16)
    world.tell(world.broker_event("b2", writes=("new", "old")))
    assert offered(world) == ["end", "pause"]


def test_the_hold_of_a_halt_by_ids_names_how_to_advance() -> None:
    world = reached(S.HOLD)
    world.clusters["old"].hob, world.clusters["old"].created = 2, 1
    world.later().tell(world.cluster_event("old"))
    [halt] = [hold for hold in world.records()[-1].holds if hold.name == "halted"]
    assert "advance to HOB-0000000003" in halt.why
    assert halt.ends_with.startswith("create that HOB below `<ledgers root>/idgen-long`")
