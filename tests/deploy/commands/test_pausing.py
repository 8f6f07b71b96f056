"""`headgate pause` and `resume`: what is refused before anything is sent."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.decided import DecisionsInForce
from deploy.commands.root import app
from deploy.inspection import pausing
from deploy.inspection.pausing import PauseRequest, actor, command_pause
from deploy.settings.application import Settings
from policies.decisions import Issuer, Mode, Standing
from policies.observations import ReportResult
from policies.pauses import PauseCommand, PolicyPause
from policies.units import UserError, to_millis
from streaming.key_state import LastHeartbeat, emit_heartbeat
from tests.cases import for_each
from tests.connectors.exporter.loop import quota, reported

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOWHERE: dict[str, Any] = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}
WATCHED = {**NOWHERE, "clusters": {"payments": {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}}}


@for_each(
    ("settings", "request_", "message"),
    [
        (WATCHED, PauseRequest("trottle", None, HOUR), "policy: 'trottle' is no policy; did you mean throttle?"),
        (WATCHED, PauseRequest("switching", None, HOUR), "policy switching is paused by `headgate switch pause`"),
        (WATCHED, PauseRequest("throttle", "orders", HOUR), "settings name no cluster 'orders'; there is payments"),
        (WATCHED, PauseRequest("throttle", None, timedelta(days=31)), "--for: a pause lasts 30d at most; for longer"),
        (NOWHERE, PauseRequest("throttle", None, HOUR), "the settings name no cluster: pass the file of the running"),
        ({}, PauseRequest("throttle", "orders", None), "the settings name no cluster: pass the file"),
        (WATCHED, PauseRequest("throttle", None, HOUR, "x" * 2001), "--reason: String should have at most 2000 char"),
    ],
)
def test_what_cannot_be_paused_is_refused(settings: dict[str, Any], request_: PauseRequest, message: str) -> None:
    with pytest.raises(UserError) as error:
        list(command_pause(Settings.model_validate(settings), request_))
    assert message in str(error.value)


def test_a_user_that_has_a_number_only_is_known_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    assert actor().startswith("4711@")


class Reader:
    """What a loop says: of one cluster a policy spoke before, and it answers for that one alone."""

    def __init__(self, *_: object) -> None:
        self.answered = False

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None: ...

    def now(self) -> "Reader":
        return self

    def poll(self) -> "Reader":
        self.answered = True
        return self

    def heartbeats(self) -> list[Standing]:
        issuer = Issuer("isolation", "messaging", Mode.SHADOW if self.answered else Mode.ACTIVE, "cafe")
        quiet = PolicyPause(to_millis(NOON) + 3_600_000, actor="alice") if self.answered else None
        _, said = emit_heartbeat(issuer, LastHeartbeat(), to_millis(NOON) + self.answered, quiet)
        return [Standing.model_validate(json.loads(said.value)["data"])]


@pytest.mark.parametrize("cluster", [None, "messaging"])
def test_who_names_no_cluster_waits_for_those_alone_of_which_the_policy_spoke(
    monkeypatch: pytest.MonkeyPatch, cluster: str | None
) -> None:
    sent: list[PauseCommand] = []
    monkeypatch.setattr(pausing, "InForceReader", Reader)
    monkeypatch.setattr(pausing, "send", lambda _, __, commands, **___: sent.extend(commands.values()))
    settings = Settings.model_validate({**WATCHED, "clusters": {"messaging": {}, "moving": {}, "payments": {}}})
    request = PauseRequest("isolation", cluster, HOUR, timeout_seconds=0.5)
    assert [each.cluster for each in command_pause(settings, request)] == ["messaging"]
    told = {each.cluster for each in sent}
    assert told == ({"messaging", "moving", "payments"} if cluster is None else {"messaging"})


def test_who_names_a_cluster_is_told_that_the_policy_does_not_answer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "InForceReader", Reader)
    monkeypatch.setattr(pausing, "send", lambda *_, **__: None)
    with pytest.raises(UserError, match="has not answered for payments within"):
        list(command_pause(Settings.model_validate(WATCHED), PauseRequest("isolation", "payments", HOUR, "", 0.1)))


def test_a_pause_that_takes_back_names_what_and_needs_consent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lifted = DecisionsInForce()
    lifted.fold_records([reported(quota(ReportResult.APPLIED, 134_000), datetime.now(UTC))])

    class Holding(Reader):
        def now(self) -> Any:
            return lifted

    sent: list[PauseCommand] = []
    monkeypatch.setattr(pausing, "InForceReader", Holding)
    monkeypatch.setattr(pausing, "send", lambda _, __, commands, **___: sent.extend(commands.values()))
    file = tmp_path / "hg.yaml"
    file.write_text(json.dumps(WATCHED))
    line = ["pause", "throttle", "payments", "--release", "--timeout", "1", "-s", str(file)]
    refused = CliRunner().invoke(app, line)
    assert "payments: set: 134 kB/s a broker for user=alice since" in refused.output
    assert "add --yes" in str(refused.exception)
    assert sent == []
    agreed = CliRunner().invoke(app, [*line, "--yes"])
    assert "payments: set: 134 kB/s" in agreed.output
    assert [each.keep for each in sent] == [False]
    CliRunner().invoke(app, [each for each in line if each != "--release"])
    assert [each.keep for each in sent] == [False, True], "without it, everything stays"
