"""Each hold has a bound, an alert and a command that ends it, and the runbook of its alert is made from it.

That a command is accepted where it is named is shown by random walks (`tests/bench/test_switch_walk.py`) and
`tests/deploy/switch/test_next_commands.py`.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
import typer.main

from deploy.switch.cli import switch_app
from policies.switching.alert_kinds import ALERTS, IDS_BEHIND
from policies.switching.judge.holds import BOUNDS, HOLDS, HoldKind
from policies.switching.registration import KIND

COMMANDS = {*typer.main.get_command(switch_app).commands, "headgate"}  # type: ignore[attr-defined]
RUNBOOKS = {alert.name: alert.remedy for alert in KIND.alerts}


def flaws(kind: HoldKind) -> list[str]:
    named = {words.split()[0] for words in re.findall(r"`([^`]+)`", kind.ends_with)}
    is_remedied = bool(named) and named <= COMMANDS
    # Ids that are behind are advanced in ZooKeeper, and clients are restarted: no command of Headgate does either.
    is_remedied = is_remedied or (kind.alert == IDS_BEHIND and kind.ends_with != "")
    return [
        flaw
        for flaw, is_right in (
            ("bound", kind.bound in BOUNDS),
            ("alert", kind.alert in RUNBOOKS),
            ("command", is_remedied),
            ("runbook", f"If {kind.when}" in RUNBOOKS.get(kind.alert, "")),
        )
        if not is_right
    ]


@pytest.mark.parametrize("kind", HOLDS, ids=lambda kind: f"{kind.alert}/{kind.name}")
def test_each_hold_has_a_bound_an_alert_and_a_command(kind: HoldKind) -> None:
    assert flaws(kind) == []


@pytest.mark.parametrize(
    ("field", "value", "flaw"),
    [("bound", "1 week", "bound"), ("alert", "gone", "alert"), ("ends_with", "", "command"), ("when", "?", "runbook")],
)
def test_a_hold_that_lacks_one_of_them_is_found(field: str, value: str, flaw: str) -> None:
    without: dict[str, Any] = {field: value}
    assert flaw in flaws(replace(HOLDS[0], **without))


def test_every_alert_is_one_of_a_hold_and_no_two_holds_share_a_name() -> None:
    assert {kind.alert for kind in HOLDS} == {alert.name for alert in ALERTS}
    assert len({(kind.alert, kind.name) for kind in HOLDS}) == len(HOLDS)
