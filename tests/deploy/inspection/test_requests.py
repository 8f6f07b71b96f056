"""Commands to the running loop: what is refused, what is sent and awaited, and what is said when nothing comes."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from connectors.decided import DecisionsInForce
from deploy.commands.root import app
from deploy.inspection import requests
from deploy.inspection.requests import PauseRequest, actor, adopt_cluster, command_pause, forget_log_dir, send_promise
from deploy.settings.application import Settings
from policies.decisions import Alert, Decision, Issuer, Mode, Standing
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import RuleSet
from policies.observations import Reading, ReportResult
from policies.pauses import PauseCommand, PolicyPause
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.units import UserError, to_millis
from streaming.key_state import LastHeartbeat, emit_heartbeat
from tests.cases import for_each
from tests.connectors.exporter.loop import quota, reported
from tests.policies.isolation.scenario import placement_of
from tests.policies.scenario import HARD, Run, log_dirs, members, throttle

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOWHERE: dict[str, Any] = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}
PAYMENTS = {**NOWHERE, "clusters": {"payments": {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}}}


@for_each(
    ("settings", "request_", "message"),
    [
        (PAYMENTS, PauseRequest("trottle", None, HOUR), "policy: 'trottle' is no policy; did you mean throttle?"),
        (PAYMENTS, PauseRequest("switching", None, HOUR), "policy switching is paused by `headgate switch pause`"),
        (PAYMENTS, PauseRequest("throttle", "orders", HOUR), "settings name no cluster 'orders'; there is payments"),
        (PAYMENTS, PauseRequest("throttle", None, timedelta(days=31)), "--for: a pause lasts 30d at most; for longer"),
        (NOWHERE, PauseRequest("throttle", None, HOUR), "the settings name no cluster: pass the file of the running"),
        ({}, PauseRequest("throttle", "orders", None), "the settings name no cluster: pass the file"),
        (PAYMENTS, PauseRequest("throttle", None, HOUR, "x" * 2001), "--reason: String should have at most 2000 char"),
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
    monkeypatch.setattr(requests, "InForceReader", Reader)
    monkeypatch.setattr(requests, "send", lambda _, __, commands, **___: sent.extend(commands.values()))
    settings = Settings.model_validate({**PAYMENTS, "clusters": {"messaging": {}, "moving": {}, "payments": {}}})
    request = PauseRequest("isolation", cluster, HOUR, timeout_seconds=0.5)
    assert [each.cluster for each in command_pause(settings, request)] == ["messaging"]
    told = {each.cluster for each in sent}
    assert told == ({"messaging", "moving", "payments"} if cluster is None else {"messaging"})


def test_who_names_a_cluster_is_told_that_the_policy_does_not_answer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "InForceReader", Reader)
    monkeypatch.setattr(requests, "send", lambda *_, **__: None)
    with pytest.raises(UserError, match="has not answered for payments within"):
        list(command_pause(Settings.model_validate(PAYMENTS), PauseRequest("isolation", "payments", HOUR, "", 0.1)))


def test_a_pause_that_takes_back_names_what_and_needs_consent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lifted = DecisionsInForce()
    lifted.fold_records([reported(quota(ReportResult.APPLIED, 134_000), datetime.now(UTC))])

    class Holding(Reader):
        def now(self) -> Any:
            return lifted

    sent: list[PauseCommand] = []
    monkeypatch.setattr(requests, "InForceReader", Holding)
    monkeypatch.setattr(requests, "send", lambda _, __, commands, **___: sent.extend(commands.values()))
    file = tmp_path / "hg.yaml"
    file.write_text(json.dumps(PAYMENTS))
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


KAFKA, ZOOKEEPER = {"bootstrap_servers": "127.0.0.1:1"}, {"servers": "127.0.0.1:1"}
SETTINGS = Settings.model_validate({"kafka": KAFKA, "clusters": {"c1": {"zookeeper": ZOOKEEPER, "bookies": {}}}})
WATCHED = Settings.model_validate({"kafka": KAFKA, "clusters": {"payments": {"kafka": {"bootstrap_servers": "b:1"}}}})


class Loop:
    """The loop, as its topics show it: what was sent, and the decisions in force, of which each names the commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.published: list[Decision] = []
        self.firing: list[Alert] = []
        self._ids: list[str] = []
        monkeypatch.setattr(requests, "InForceReader", lambda *_: self)
        monkeypatch.setattr(requests, "send", self._send)

    def _send(self, _: object, topic: str, readings: Mapping[str, Reading], **__: object) -> None:
        self._ids += readings
        self.sent += ((topic, reading) for reading in readings.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """There is nothing to close."""

    def now(self) -> Self:
        return self

    poll = now

    def alerts(self) -> list[Alert]:
        return self.firing

    def decisions(self) -> list[Decision]:
        return [*self.published, *(d.model_copy(update={"evidence": tuple(self._ids)}) for d in self.published)]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_a_promise_is_sent_with_who_and_why_and_answered_by_the_placement_it_leads_to(loop: Loop) -> None:
    loop.published = [
        placement_of("bk1 bk11", "default", promise=promise) for promise in ("legacy", "strict", "current")
    ]
    placement = send_promise(SETTINGS, "c1", "acme/a", RuleSet.CURRENT, "until the new bookies are there", 5.0)
    assert (placement.promise, placement.verdict) == ("current", "spills_to_secondary")
    ((topic, sent),) = loop.sent
    assert isinstance(sent, NamespacePromise)
    assert (topic, sent.subject(), sent.promise) == ("headgate.observed.bookies", "c1/acme/a", "current")
    assert (sent.reason, "@" in sent.actor) == ("until the new bookies are there", True)
    assert send_promise(SETTINGS, "c1", "acme/a", None, "", 5.0).promise == "strict"


def test_where_nothing_is_decided_that_is_said(loop: Loop) -> None:
    loop.published = [placement_of("bk1 bk11", "default")]
    said = r"nothing was decided on acme/none by this command within 0\.1 s: the query may not be running, or the names"
    with pytest.raises(UserError, match=said):
        send_promise(SETTINGS, "c1", "acme/none", None, "", 0.1)
    assert len(loop.sent) == 1


@for_each(
    ("cluster", "namespace", "reason", "said"),
    [
        ("c1", f"acme/{'a' * 600}", "", "--namespace: String should have at most 512 characters"),
        ("c1", "acme/a", "x" * 3000, "--reason: String should have at most"),
        ("c2", "acme/a", "", "--cluster: the settings name no cluster 'c2'"),
    ],
)
def test_what_no_record_takes_is_a_mistake_and_nothing_is_sent(
    loop: Loop, cluster: str, namespace: str, reason: str, said: str
) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        send_promise(SETTINGS, cluster, namespace, None, reason, 1.0)
    assert loop.sent == []


def test_a_command_to_forget_is_answered_by_the_factor_that_names_it(loop: Loop) -> None:
    loop.published = [*Run(throttle(HARD)).see(log_dirs(0, 1, 0)).decisions]
    factor = forget_log_dir(WATCHED, "payments", 7, "/disk2", "replaced", 1.0)
    ((_, command),) = loop.sent
    assert isinstance(command, ForgetCommand)
    assert (factor.factor, len(factor.evidence), factor.evidence == loop.published[0].evidence) == (0.0, 1, False)
    assert (command.policy, command.broker, command.log_dir, command.reason) == ("throttle", 7, "/disk2", "replaced")
    assert "@" in command.actor


def test_a_mistake_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UserError, match="settings name no cluster 'orders'; there is payments"):
        forget_log_dir(WATCHED, "orders", 7, "/a", "", 1.0)
    with pytest.raises(UserError, match="--log-dir: String"):
        forget_log_dir(WATCHED, "payments", 7, "", "", 1.0)
    assert CliRunner().invoke(app, ["forget", "--cluster", "payments", "--broker", "7"]).exit_code == 2


def test_there_is_nothing_to_adopt_unless_the_alert_names_another_cluster(loop: Loop) -> None:
    known = [members(0, 1), log_dirs(0, 1, 0), log_dirs(60, 1, 0)]
    of = [o.reading.model_copy(update={"cluster_id": i}) for o, i in zip(known, ("old", "old", "new"), strict=True)]
    run = Run(throttle(HARD)).feed([replace(o, reading=r) for o, r in zip(known, of, strict=True)])
    loop.published, loop.firing = [*run.decisions], [a for a in run.alerts if a.alert != "cluster-replaced"]
    with pytest.raises(UserError, match="the alert cluster-replaced does not fire for payments"):
        adopt_cluster(WATCHED, "payments", "", 1.0)
    loop.firing = [*run.alerts]
    adopt_cluster(WATCHED, "payments", "set up again", 1.0)
    ((_, command),) = loop.sent
    assert isinstance(command, AdoptCommand)
    assert (command.cluster_id, command.reason) == ("new", "set up again")
