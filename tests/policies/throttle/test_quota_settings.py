"""Settings of the quota actuator: every mistake is found."""

from typing import Any

import pytest
from pydantic import ValidationError

from policies.throttle.settings import DEFAULT, Entity, QuotaSettings
from tests.cases import for_each

ANY_CLIENT = {"client_id": "default", "base": "10MB"}


@pytest.mark.parametrize(("given", "seconds"), [("none", None), (None, None), ("45s", 45.0)])
def test_the_longest_wait_may_be_none(given: str | None, seconds: float | None) -> None:
    wait = QuotaSettings.model_validate({"entities": [ANY_CLIENT], "max_told_wait": given}).max_told_wait
    assert (wait and wait.total_seconds()) == seconds


@for_each(
    ("block", "said"),
    [
        ({"entities": []}, "needs at least one"),
        ({"entities": [{}]}, "needs a user, a client_id or both"),
        ({"entities": [{"user": ""}]}, "at least 1 character"),
        ({"entities": [{"user": {"name": ""}}]}, "at least 1 character"),
        ({"entities": [{"user": 5}]}, "valid string"),
        ({"entities": [{"client": "x"}]}, "Unexpected keyword"),
        ({"entities": [{"user": "a", "base": 0}]}, "greater than 0"),
        ({"entities": [{"user": "a", "base": "64kB"}]}, "user=a (64000) is below floor_bytes_per_second (65536)"),
        ({"entities": [ANY_CLIENT, ANY_CLIENT]}, "client-id=<default> stands there twice"),
        ({"entities": [{"user": "bob", "client_id": "x"}], "exclude": ["bob"]}, "names user bob, which is excluded"),
        ({"entities": [ANY_CLIENT], "exclude": ["default"]}, "name users one by one"),
        ({"entities": [ANY_CLIENT], "floor_bytes_per_second": 0}, "greater than 0"),
        ({"entities": [ANY_CLIENT], "flor": 1}, "Extra inputs"),
    ],
)
def test_a_mistake_is_named(block: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        QuotaSettings.model_validate(block)
    assert said in str(error.value)


NAMED_DEFAULT = {"client_id": {"name": "default"}, "user": "default"}


def test_the_bare_word_is_the_default_entity_and_a_name_is_the_one_that_is_called_so() -> None:
    block = {
        "entities": [ANY_CLIENT, NAMED_DEFAULT],
        "exclude": ["User:alice", {"name": "default"}, {"name": "User:x"}],
    }
    settings = QuotaSettings.model_validate(block)
    assert [spec.entity for spec in settings.entities] == [Entity(None, DEFAULT), Entity(DEFAULT, "default")]
    assert settings.exclude == ("alice", "default", "User:x")
    written = settings.model_dump(mode="json")
    assert written["entities"][1] == {**NAMED_DEFAULT, "base": None}
    assert QuotaSettings.model_validate(written) == settings
