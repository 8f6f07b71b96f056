"""`headgate forget` and `adopt`: what is sent, and what is refused before anything is sent."""

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.policy_commands import throttle_commands
from deploy.policy_commands.throttle_commands import adopt_cluster, forget_log_dir
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.observations import Reading
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.units import UserError
from tests.policies.scenario import HARD, Run, log_dirs, members, throttle

SETTINGS = Settings.model_validate(
    {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "clusters": {"payments": {"kafka": {"bootstrap_servers": "b:1"}}}}
)


def test_it_is_answered_by_the_factor_that_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    (decision,) = Run(throttle(HARD)).see(log_dirs(0, 1, 0)).decisions
    sent: list[Reading] = []

    def ask(_settings: Settings, policy: str, command: Reading, read_answer: Any, **_: Any) -> Decision | None:
        sent.append(command)
        assert policy == "throttle"
        assert read_answer(decision, "its-id") is None
        answer: Decision | None = read_answer(decision.model_copy(update={"evidence": ("its-id",)}), "its-id")
        return answer

    monkeypatch.setattr(throttle_commands, "ask", ask)
    assert forget_log_dir(SETTINGS, "payments", 7, "/disk2", "replaced", 1.0).factor == 0.0
    (command,) = sent
    assert isinstance(command, ForgetCommand)
    assert (command.policy, command.broker, command.log_dir, command.reason) == ("throttle", 7, "/disk2", "replaced")
    assert "@" in command.actor
    monkeypatch.setattr(throttle_commands, "ask", lambda *_given, **_more: None)
    with pytest.raises(UserError, match=r"nothing was decided on payments by this command within 1 s: the query may"):
        forget_log_dir(SETTINGS, "payments", 7, "/disk2", "", 1.0)


@pytest.mark.parametrize(
    ("cluster", "log_dir", "message"),
    [("orders", "/a", "settings name no cluster 'orders'; there is payments"), ("payments", "", "--log-dir: String")],
)
def test_a_mistake_is_refused_before_anything_is_sent(cluster: str, log_dir: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        forget_log_dir(SETTINGS, cluster, 7, log_dir, "", 1.0)


def test_each_part_of_the_name_is_needed() -> None:
    assert CliRunner().invoke(app, ["forget", "--cluster", "payments", "--broker", "7"]).exit_code == 2


def test_there_is_nothing_to_adopt_unless_the_alert_names_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [members(0, 1), log_dirs(0, 1, 0), log_dirs(60, 1, 0)]
    ids = ("old", "old", "new")
    readings = [
        replace(o, reading=o.reading.model_copy(update={"cluster_id": i})) for o, i in zip(known, ids, strict=True)
    ]
    alerts = Run(throttle(HARD)).feed(readings).alerts
    reader, asked = MagicMock(), list[Reading]()
    monkeypatch.setattr(throttle_commands, "InForceReader", reader)
    monkeypatch.setattr(throttle_commands, "ask", lambda _s, _p, command, *_, **__: asked.append(command))
    now = reader.return_value.__enter__.return_value.now.return_value
    now.alerts.return_value = [a for a in alerts if a.alert != "cluster-replaced"]
    with pytest.raises(UserError, match="the alert cluster-replaced does not fire for payments"):
        adopt_cluster(SETTINGS, "payments", "", 1.0)
    now.alerts.return_value = alerts
    with pytest.raises(UserError, match="nothing was decided on payments by this command"):
        adopt_cluster(SETTINGS, "payments", "set up again", 1.0)
    (command,) = asked
    assert isinstance(command, AdoptCommand)
    assert (command.cluster_id, command.reason) == ("new", "set up again")
