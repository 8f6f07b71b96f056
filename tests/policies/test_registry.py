"""What is wrong with a policy of an installed package is said in one sentence that names it and the remedy."""

import shlex
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
import typer.main
from hypothesis import given
from hypothesis import strategies as st

from deploy.commands.root import app
from policies.decisions import Alert, Decision
from policies.observations import ActuatorEvent, Reading
from policies.policy import HOST_ALERT_KINDS, AlertKind, PolicyKind, ReportKind
from policies.registry import ENTRY_POINTS, POLICIES, alert_kind, registered
from policies.settings import PolicySettings
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.readings import LogDirs, QuotaApplication
from policies.units import UserError
from policies.wire import SHARE_COUNT, clusters_in, share_of
from tests.cases import for_each

THROTTLE = POLICIES["throttle"]


class Foreign(Reading):
    """A reading of nobody here."""

    event_type: ClassVar[str] = "example.foreign.v1"


class ForeignSettings(PolicySettings):
    """Its own settings."""


def decided(topic: str = "decided.foreign", event_type: str = "example.decided.v1") -> type[Decision]:
    """A kind of decision."""
    return type("Decided", (Decision,), {"topic": topic, "event_type": event_type})


class Installed:
    """An entry point of an installed package that names this policy."""

    name, value = "mine", "package:KIND"

    def __init__(self, kind: PolicyKind) -> None:
        self._kind = kind

    def load(self) -> PolicyKind:
        return self._kind


def foreign(
    name: str = "foreign", topic: str = "observed.foreign", reading: type[Reading] = Foreign,
    decision: type[Decision] | None = None, report: type[ActuatorEvent] | None = None, **others: Any,
) -> PolicyKind:  # fmt: skip
    decisions, reports = (decision,) if decision else (), (ReportKind(report, "nobody"),) if report else ()
    own = {"commands": (), "decisions": decisions, "reports": reports, "settings": ForeignSettings, **others}
    return replace(THROTTLE, name=name, observed={topic: (reading,)}, **own)


def entry(value: str, name: str = "mine") -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINTS)


def refusal(own: tuple[PolicyKind, ...] = (), *others: EntryPoint) -> str:
    with pytest.raises(UserError) as refused:
        registered(own, others)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_an_entry_point_adds_its_policy_after_headgates_own() -> None:
    kinds = registered((foreign(),), [entry("policies.throttle.registration:KIND")])
    assert list(kinds) == ["foreign", "throttle"]
    assert kinds["throttle"] is THROTTLE


def test_entry_points_come_in_order_of_their_names() -> None:
    entries = [entry(f"policies.{name}.registration:KIND", name) for name in ("throttle", "isolation")]
    assert list(registered((), entries)) == ["isolation", "throttle"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_package:KIND", "it cannot be loaded (ModuleNotFoundError: No module named 'no_such_package')"),
        ("policies.throttle.registration:KIN", "it cannot be loaded (AttributeError: "),
        ("policies.throttle:NAME", "it must name a policies.policy.PolicyKind, and names a str"),
        ("policies.policy:PolicyKind", "it must name a policies.policy.PolicyKind, and names a type"),
    ],
)
def test_an_entry_point_that_gives_no_policy_is_named_with_what_it_gives(value: str, said: str) -> None:
    assert f"entry point mine = {value} of headgate.policies: {said}" in refusal((), entry(value))


@for_each(
    ("flawed", "said"),
    [
        ({"name": "throttle"}, "another policy has this name"),
        ({"topic": "observed.log-dirs"}, "topic observed.log-dirs is policy throttle's: a topic is one policy's"),
        ({"reading": LogDirs}, "event type headgate.log-dirs.v1 is one of policy throttle"),
        ({"report": QuotaApplication}, f"event type {QuotaApplication.event_type} is one of policy throttle"),
        ({"decision": decided(event_type=Foreign.event_type)}, "two of its readings, decisions and reports have"),
        ({"decision": decided(event_type=Alert.event_type)}, "event type headgate.alert.v1 is Headgate's own"),
        ({"topic": "commands"}, "topic commands is Headgate's own: name another"),
        ({"topic": "ticks"}, "topic ticks is Headgate's own: name another"),
        ({"decision": decided("audit")}, "topic audit is Headgate's own: name another"),
        ({"decision": ThrottleFactor}, "topic decided.throttle is policy throttle's: a topic is one policy's"),
        ({"decision": decided("observed.log-dirs")}, "topic observed.log-dirs is policy throttle's: a topic is one"),
        ({"topic": ThrottleFactor.topic}, f"topic {ThrottleFactor.topic} is policy throttle's: a topic is"),
        ({"decision": decided("observed.foreign")}, "topic observed.foreign has both its readings and"),
        ({"topic": "observed foreign"}, "topic 'observed foreign' is no name of a Kafka topic: use up to 200"),
        ({"settings": dict}, "its settings, dict, must be a PolicySettings: make it one"),
        ({"state": dict}, "its state, dict, must be a Struct: make it one"),
        ({"state_version": 2}, "state_version is 2, but upgrades has no step from 1: add one"),
        ({"state_version": 3, "upgrades": {1: list}}, "state_version is 3, but upgrades has no step from 2: add one"),
        ({"name": ""}, "a name has at least one character and no `/`"),
        ({"name": "a/b"}, "a name has at least one character and no `/`"),
        ({"settings": THROTTLE.settings}, "its settings, ThrottleSettings, are policy throttle's: give it"),
    ],
)
def test_a_flawed_registration_is_refused_in_one_sentence(flawed: dict[str, Any], said: str) -> None:
    kind = foreign(**flawed)
    installed: Any = Installed(kind)
    assert refusal((THROTTLE,), installed).startswith(f"policy {kind.name}: {said}")


def test_a_sound_registration_of_a_package_is_accepted() -> None:
    installed: Any = Installed(foreign(decision=decided(), state_version=2, upgrades={1: list}))
    assert list(registered((THROTTLE,), [installed])) == ["throttle", "foreign"]


# --- Each alert has a runbook: a command that can be pasted, what to do, and when it ends

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


# --- Which share a cluster belongs to: agreed on by all processes and versions, and spread well

NAMES = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize(("cluster", "share"), [("payments", 6), ("orders", 2), ("c0", 3), ("c1", 5), ("größe", 5)])
def test_the_share_of_a_name_is_pinned(cluster: str, share: int) -> None:
    """Processes of two versions that run at once must agree."""
    assert share_of(cluster) == share


@given(st.lists(NAMES, unique=True), st.sets(st.integers(0, SHARE_COUNT - 1)))
def test_each_cluster_is_in_exactly_one_of_two_parts_whoever_else_there_is(names: list[str], some: set[int]) -> None:
    rest = set(range(SHARE_COUNT)) - some
    mine, others = clusters_in(some, names), clusters_in(rest, names)
    assert mine | others == set(names)
    assert not mine & others
    assert clusters_in(some, names[:1]) == mine & set(names[:1])


def test_many_clusters_are_spread_over_all_shares() -> None:
    sizes = Counter(share_of(f"cluster-{number}") for number in range(1200))
    assert set(sizes) == set(range(SHARE_COUNT))
    assert max(sizes.values()) < 1.35 * 1200 / SHARE_COUNT
