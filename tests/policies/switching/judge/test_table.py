"""Each hold has a bound, an alert and a command that ends it, and the runbook of its alert is made from it.

A command is accepted where a hold or a refusal names it; so do random walks (`tests/bench`).
"""

import re
from dataclasses import replace
from typing import Any

import pytest
import typer.main
from msgspec import structs

from deploy.switch.cli import switch_app
from policies.switching.alert_kinds import ALERTS, HOLDS, IDS_BEHIND, HoldKind
from policies.switching.decisions import ORDERS, SwitchVerdict
from policies.switching.readings import CommandName, SwitchCommand
from policies.switching.registration import KIND
from policies.switching.settings import DAY_MS
from policies.switching.state import ClusterStatus, Directive, SwitchStage
from tests.cases import for_each
from tests.examples import combined
from tests.policies.switching.events import command, status
from tests.policies.switching.wire import WireWorld

S = SwitchStage

COMMANDS = {*typer.main.get_command(switch_app).commands, "headgate"}  # type: ignore[attr-defined]
RUNBOOKS = {alert.name: alert.remedy for alert in KIND.alerts}


def flaws(kind: HoldKind) -> list[str]:
    named = {words.split()[0] for words in re.findall(r"`([^`]+)`", kind.ends_with)}
    is_remedied = bool(named) and named <= COMMANDS
    # Ids that are behind are advanced in ZooKeeper, and clients are restarted: no command of Headgate does either.
    is_remedied = is_remedied or (kind.alert == IDS_BEHIND and kind.ends_with != "")
    is_told = f"If {kind.when}" in RUNBOOKS.get(kind.alert, "")
    checks = {"alert": kind.alert in RUNBOOKS, "command": is_remedied, "runbook": is_told}
    return [flaw for flaw, is_right in checks.items() if not is_right]


@for_each("kind", HOLDS.values())
def test_each_hold_has_a_bound_an_alert_and_a_command(kind: HoldKind) -> None:
    assert flaws(kind) == []


@pytest.mark.parametrize(
    ("field", "value", "flaw"),
    [("alert", "gone", "alert"), ("has_ways_out", False, "command"), ("when", "?", "runbook")],
)
def test_a_hold_that_lacks_one_of_them_is_found(field: str, value: str, flaw: str) -> None:
    without: dict[str, Any] = {field: value}
    assert flaw in flaws(replace(HOLDS["inventory"], **without))


def test_every_alert_is_one_of_a_hold() -> None:
    assert {kind.alert for kind in HOLDS.values()} == {alert.name for alert in ALERTS}


STAGES = [
    S.REGISTERED, S.PRECHECKED, S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK,
    S.ROLLED_BACK, S.REJECTED, S.DONE, S.DONE_WITH_FAILURES,
]  # fmt: skip
ABOUT_A_SWITCH = ("rollback", "abort", "pause", "resume", "cleanup", "end")


def reached(stage: SwitchStage, *before: SwitchCommand, days: int = 0) -> WireWorld:
    world = WireWorld().to(stage)
    world.later(days * DAY_MS)
    world.tell(*world.reported_again(), *before)
    return world


def named(words: str) -> set[str]:
    commands = "|".join(each.value for each in CommandName)
    return set(re.findall(rf"`((?:{commands})\b[^`]*)`", words))


def named_by_holds(world: WireWorld) -> set[str]:
    return {words for hold in world.records()[-1].holds for words in named(hold.ends_with)}


def is_accepted(world: WireWorld, words: str) -> bool:
    """Whether a dry run of a command is accepted, or lacks only the precheck that `headgate switch start` makes."""
    name, _, option = words.partition(" ")
    args: dict[str, Any] = {"target": option.removeprefix("--target ")} if name == "start" else {}
    args |= {"attribution_only": option != "--with-brokers"} if name == "rollback" else {}
    [said] = world.tell(command(name, world.key(), dry_run=True, **args))
    return "would be rejected" not in said.sentence or "precheck" in said.sentence


@pytest.mark.parametrize(
    ("stage", "days", "before"), combined(STAGES, [0, 2, 16], [(), (command("pause", "p"),)], one_of=3)
)
def test_every_command_that_a_hold_or_a_refusal_names_is_accepted(
    stage: SwitchStage, days: int, before: tuple[SwitchCommand, ...]
) -> None:
    world = reached(stage, *before, days=days)
    refused = [world.tell(command(name, world.key(), dry_run=True))[0].sentence for name in ABOUT_A_SWITCH]
    refused += [s.sentence for s in world.tell(command("start", world.key(), dry_run=True, target="old"))]
    for words in named_by_holds(world).union(*(named(r) for r in refused if "would be rejected" in r)):
        assert is_accepted(world, words), words


@pytest.mark.parametrize(
    ("stage", "days", "before", "commands"),
    [
        (S.REGISTERED, 0, (), set()), (S.TRIGGERED, 0, (), {"abort"}), (S.LIVE_DUAL_READ, 0, (), {"rollback"}),
        (S.BUILD, 0, (), set()), (S.BUILD, 0, (command("pause", "p"),), {"resume", "rollback"}),
        (S.HOLD, 0, (), {"rollback", "end"}), (S.HOLD, 2, (), {"end"}),
        (S.HOLD, 16, (), {"cleanup --execute", "end"}), (S.CLEANUP, 0, (), {"end"}),
        (S.DONE_WITH_FAILURES, 0, (), {"start --target new"}), (S.DONE, 0, (), set()),
    ],
)  # fmt: skip
def test_at_each_stage_the_holds_name_the_way_on(
    stage: SwitchStage, days: int, before: tuple[SwitchCommand, ...], commands: set[str]
) -> None:
    assert named_by_holds(reached(stage, *before, days=days)) == commands


def test_a_cleanup_is_named_only_where_it_is_accepted() -> None:
    world = reached(S.HOLD, days=16)
    world.tell(world.broker_event("b2", writes=("new", "old")))
    assert named_by_holds(world) == {"end"}
    [refused] = world.tell(command("cleanup", "c"))
    assert refused.sentence.endswith("b2 writes to old; to go on: restart or stop it, or `end`")


def test_a_switch_whose_registry_could_not_be_written_is_driven_on() -> None:
    """Neither `abort` nor `end` is accepted before its last step is done."""
    world = reached(S.CLEANUP)
    world.work(*(ORDERS - {SwitchVerdict.WRITE_STATUS}))
    world.tell(status(world.switch.op, ok=False))
    assert world.is_at(S.DONE_WITH_FAILURES)
    [refused] = world.tell(command("cleanup", "c"))
    assert refused.sentence.endswith("; to go on: `start --target new`")
    world.drive_on()
    world.tell(command("cleanup", "d"))
    assert world.work().is_at(S.DONE)


@pytest.mark.parametrize(("theirs", "way"), [(True, "`resume`"), (False, "undo that in the registry")])
def test_a_contested_switch_is_resumed_only_over_a_directive(theirs: bool, way: str) -> None:
    world = reached(S.HOLD)
    entries = tuple(structs.replace(e, status=ClusterStatus.ACTIVE) for e in world.state.entries)
    directive = Directive(world.state.epoch + 2, "old")
    shown: dict[str, Any] = {"directive": directive} if theirs else {"clusters": entries}
    world.tell(world.registry_event(**shown))
    [refused] = world.tell(command("end", "e"))
    assert (refused.verdict, refused.sentence.endswith(f"; to go on: {way}")) == (SwitchVerdict.REJECT, True)
    assert is_accepted(world, "resume") is theirs


def test_the_hold_of_a_halt_by_ids_names_how_to_advance() -> None:
    world = reached(S.HOLD)
    world.clusters["old"].hob, world.clusters["old"].created = 2, 1
    world.later().tell(world.cluster_event("old"))
    [halt] = [hold for hold in world.records()[-1].holds if hold.name == "halted"]
    assert "advance to HOB-0000000003" in halt.why
    assert halt.ends_with.startswith("create that HOB below `<ledgers root>/idgen-long`, then `resume`")
