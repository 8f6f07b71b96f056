"""Each alert has a runbook: a command that can be pasted, what to do, and when it ends."""

import shlex
from functools import cache

import typer.main

from deploy.commands.root import app
from policies.alerts import HOST_ALERT_KINDS
from policies.policy import AlertKind
from policies.registry import POLICIES, alert_kind
from tests.cases import for_each

KINDS = {
    f"{policy}/{alert.name}": alert
    for policy, alerts in (*((kind.name, kind.alerts) for kind in POLICIES.values()), ("any", HOST_ALERT_KINDS))
    for alert in alerts
}
parser = cache(typer.main.get_command)
HOSTILE = "it's; rm -rf $HOME"


@for_each("alert", KINDS.values(), ids=KINDS)
def test_a_runbook_can_be_followed(alert: AlertKind) -> None:
    for text in (alert.meaning, alert.remedy, alert.ends):
        assert text.endswith(".")
    words = shlex.split(alert.command(HOSTILE, f"{HOSTILE}/1"))
    assert words[0] == "headgate"
    assert {word for word in words if "rm -rf" in word} <= {HOSTILE, f"{HOSTILE}/1"}, "quoted for a shell"
    command = whole = parser(app)
    for word in words[1:]:
        known = getattr(command, "commands", {})
        if word not in known:
            break
        command = known[word]
    assert command is not whole, f"headgate {words[1]} is a command"
    options = {each for parameter in command.params for each in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_an_alert_is_found_by_policy_and_name() -> None:
    assert alert_kind("throttle", "policy-failed") is not None
    assert alert_kind("throttle", "session-lost") is None
    assert alert_kind("gone", "session-lost") is None
