"""`headgate pause` and `resume`: what is refused before anything is sent."""

from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.commands import app
from deploy.pausing import PauseRequest, command_pause
from deploy.settings import Settings
from policies.errors import UserError

HOUR = timedelta(hours=1)
NOWHERE: dict[str, Any] = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}
WATCHED = {**NOWHERE, "clusters": {"payments": {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}}}


@pytest.mark.parametrize(
    ("settings", "request_", "message"),
    [
        (WATCHED, PauseRequest("trottle", None, HOUR), "'trottle' is no policy: write one of isolation, sessions"),
        (WATCHED, PauseRequest("switching", None, HOUR), "policy switching is paused by `headgate switch pause`"),
        (WATCHED, PauseRequest("throttle", "orders", HOUR), "name no cluster 'orders'; those they name: payments"),
        (WATCHED, PauseRequest("throttle", None, timedelta(days=31)), "--for: a pause lasts 30d at most; for longer"),
        (NOWHERE, PauseRequest("throttle", None, HOUR), "the settings name no cluster: give the file that the loop"),
        ({}, PauseRequest("throttle", "orders", None), "those they name: embedded"),
    ],
)
def test_what_cannot_be_paused_is_refused_before_anything_is_sent(
    settings: dict[str, Any], request_: PauseRequest, message: str
) -> None:
    with pytest.raises(UserError) as error:
        list(command_pause(Settings.model_validate(settings), request_))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("length", "message"),
    [("2", "--for: '2' is not a duration: write it as 30s"), ("0s", "--for: must be longer than 0s")],
)
def test_a_length_that_is_none_is_refused(length: str, message: str) -> None:
    result = CliRunner().invoke(app, ["pause", "throttle", "--for", length])
    assert message in str(result.exception)
