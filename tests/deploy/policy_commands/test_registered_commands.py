"""The commands of policies: found by their registration, though `--help` imports no policy."""

from typing import get_args

import pytest

from connectors.registration import connectors_of
from deploy.policy_commands import apps
from deploy.policy_commands.apps import ENTRY_POINTS, OWN, RuleSetName, command_apps
from policies import registry
from policies.isolation.settings import RuleSet
from policies.registry import POLICIES
from policies.units import UserError


def test_the_own_commands_are_those_of_the_registrations() -> None:
    registered = (connectors_of(kind).commands for kind in POLICIES.values())
    assert list(dict.fromkeys(place for place in registered if place is not None)) == list(OWN)
    assert registry.ENTRY_POINTS == ENTRY_POINTS
    assert [app.info.name for app in command_apps() if isinstance(app.info.name, str)] == ["switch"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no.such.module:app", "commands 'no.such.module:app' cannot be loaded"),
        ("deploy.switch.cli:none", "commands 'deploy.switch.cli:none' cannot be loaded"),
        ("deploy.switch.cli:status", "must name a typer.Typer, and name a function"),
    ],
)
def test_commands_that_cannot_be_loaded_are_named(place: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "OWN", (place,))
    with pytest.raises(UserError, match=message):
        list(command_apps())


def test_the_names_that_options_accept_are_those_of_the_policies() -> None:
    assert set(get_args(RuleSetName)) == set(RuleSet)
    assert {command.name for command in next(command_apps()).registered_commands} >= {"import-strimzi", "forget"}
