"""What is wrong with a policy of an installed package is said in one sentence that names it and the remedy."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from policies.actuator_events import ActuatorEvent
from policies.decisions import Decision
from policies.errors import UserError
from policies.observations import Reading
from policies.policy import PolicyKind, ReportKind
from policies.registry import ENTRY_POINTS, POLICIES, registered
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quota_events import QuotaApplication
from policies.throttle.readings import LogDirs

THROTTLE = POLICIES["throttle"]


class Foreign(Reading):
    """A reading of nobody here."""

    event_type: ClassVar[str] = "example.foreign.v1"


def foreign(
    name: str = "foreign",
    topic: str = "observed.foreign",
    reading: type[Reading] = Foreign,
    decision: type[Decision] | None = None,
    report: type[ActuatorEvent] | None = None,
) -> PolicyKind:
    return replace(
        THROTTLE,
        name=name,
        observed={topic: (reading,)},
        decisions=(decision,) if decision else (),
        reports=(ReportKind(report, "nobody"),) if report else (),
    )


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
        ("policies.throttle:ThrottlePolicy", "it must name a policies.policy.PolicyKind, and names a type"),
    ],
)
def test_an_entry_point_that_gives_no_policy_is_named_with_what_it_gives(value: str, said: str) -> None:
    assert f"entry point mine = {value} of headgate.policies: {said}" in refusal((), entry(value))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (foreign(name="throttle"), "policy throttle: another policy has this name"),
        (foreign(topic="observed.log-dirs"), "policy foreign: topic observed.log-dirs is read by policy throttle"),
        (foreign(reading=LogDirs), "policy foreign: event type headgate.log-dirs.v1 is one of policy throttle"),
        (
            foreign(decision=ThrottleFactor),
            "policy foreign: event type headgate.throttle-factor.v1 is one of policy throttle",
        ),
        (
            foreign(report=QuotaApplication),
            f"policy foreign: event type {QuotaApplication.event_type} is one of policy throttle",
        ),
    ],
    ids=["name", "topic", "reading", "decision", "report"],
)
def test_what_is_taken_is_said_with_whose_it_is(kind: PolicyKind, said: str) -> None:
    assert said in refusal((THROTTLE, kind))
