"""A policy's part with I/O: found by its name, and when it is not, one sentence says what is missing."""

from dataclasses import replace

import pytest

from connectors.registration import PolicyConnectors, connectors_of, find_needs
from deploy.settings.application import Settings
from policies.registry import POLICIES
from policies.units import UserError

THROTTLE = POLICIES["throttle"]


def test_a_policy_that_names_none_has_none() -> None:
    assert connectors_of(replace(THROTTLE, connectors=None)) == PolicyConnectors()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no_such_package:CONNECTORS", "cannot be loaded (No module named 'no_such_package')"),
        (
            "connectors.throttle.registration:CONNECTOR",
            "cannot be loaded (module 'connectors.throttle.registration' has no",
        ),
        ("connectors.throttle.registration", "it must be module:attribute"),
        (":CONNECTORS", "it must be module:attribute"),
        (
            "connectors.throttle.registration:QuotaSettings",
            "must be a connectors.registration.PolicyConnectors, and is a",
        ),
    ],
)
def test_connectors_that_are_none_are_named_with_what_they_must_be(place: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        connectors_of(replace(THROTTLE, name="mine", connectors=place))
    message = str(refused.value)
    assert message.startswith("policy mine: ")
    assert place in message
    assert said in message
    assert "\n" not in message


def test_each_cluster_without_an_actuator_has_the_setting_that_would_make_one() -> None:
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}]}
    file = {"clusters": {"idle": {"kafka": KAFKA}, "acted": {"kafka": KAFKA, "quotas": quotas}}}
    settings = Settings.model_validate({"kafka": KAFKA, **file})
    needs = find_needs(settings.policy_settings(), settings.clusters)
    assert needs["throttle", "idle"] == "`quotas`"
    assert ("throttle", "acted") not in needs
    assert needs["isolation", "idle"] == "`bookies` or `pulsar_bookies` with policies.isolation.quarantine on"


KAFKA = {"bootstrap_servers": "k:1"}
