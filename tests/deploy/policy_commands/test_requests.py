"""`headgate promise`, `forget` and `adopt`: what is sent, what is awaited, and what is said when nothing comes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.inspection import pausing
from deploy.policy_commands import requests
from deploy.policy_commands.requests import adopt_cluster, forget_log_dir, send_promise
from deploy.settings.application import Settings
from policies.decisions import Alert, Decision
from policies.isolation import NamespacePromise
from policies.isolation.settings import RuleSet
from policies.observations import Reading
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.units import UserError
from tests.cases import for_each
from tests.policies.isolation.scenario import placement_of
from tests.policies.scenario import HARD, Run, log_dirs, members, throttle

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
        monkeypatch.setattr(pausing, "InForceReader", lambda *_: self)
        monkeypatch.setattr(requests, "InForceReader", lambda *_: self)
        monkeypatch.setattr(pausing, "send", self._send)

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
    said = r"nothing was decided on acme/none by this promise within 0\.1 s: the query may not be running, or the names"
    with pytest.raises(UserError, match=said):
        send_promise(SETTINGS, "c1", "acme/none", None, "", 0.1)
    assert len(loop.sent) == 1


@for_each(
    ("cluster", "namespace", "reason", "said"),
    [
        ("c1", "acme", "", "--namespace: 'acme' is no namespace: write it as tenant/namespace"),
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
