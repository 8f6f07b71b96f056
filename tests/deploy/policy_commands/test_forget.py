"""`headgate forget`: what is sent, and what is refused before anything is sent."""

from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.policy_commands import forget
from deploy.policy_commands.forget import forget_log_dir
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.errors import UserError
from policies.observations import Reading
from policies.throttle.commands import ForgetCommand
from tests.policies.scenario import HARD, Run, log_dirs, throttle

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

    monkeypatch.setattr(forget, "ask", ask)
    assert forget_log_dir(SETTINGS, "payments", 7, "/disk2", "replaced", 1.0).factor == 0.0
    (command,) = sent
    assert isinstance(command, ForgetCommand)
    assert (command.policy, command.broker, command.log_dir, command.reason) == ("throttle", 7, "/disk2", "replaced")
    assert "@" in command.actor
    monkeypatch.setattr(forget, "ask", lambda *_given, **_more: None)
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
