"""A scenario that lacks something is refused with one sentence that names the policy and the event."""

from dataclasses import replace

import pytest

from policies.examples import Examples
from policies.policy import PolicyKind
from policies.registry import POLICIES
from policies.units import UserError
from tools.reference import examples

THROTTLE = POLICIES["throttle"]
SCENARIO = THROTTLE.examples()


def with_examples(scenario: Examples) -> PolicyKind:
    return replace(THROTTLE, examples=lambda: scenario)


@pytest.mark.parametrize(
    ("scenario", "missing"),
    [
        (
            replace(SCENARIO, reports=()),
            "headgate.quota-application.v1, headgate.applied-quota.v1",
        ),
        (
            replace(SCENARIO, batches=()),
            "headgate.log-dirs.v1, headgate.replica-sizes.v1, headgate.kafka-cluster.v1, headgate.quota-state.v1, "
            "headgate.throttle-factor.v1",
        ),
    ],
    ids=["no report", "no reading"],
)
def test_an_event_without_an_example_is_named(
    scenario: Examples, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, "throttle", with_examples(scenario))
    with pytest.raises(UserError) as refused:
        examples.examples()
    assert str(refused.value) == (
        f"policy throttle: its examples() give no {missing}; the references show one of each event"
    )
