"""Closed sets explain themselves."""

import pickle

import msgspec
import pytest
from pydantic import TypeAdapter

from policies.units import ClosedEnum


class Weather(ClosedEnum):
    """Of today."""

    RAIN = "rain", "Take an umbrella."
    SUN = "sun", "Leave it."


def test_a_member_is_its_word_and_says_what_it_means() -> None:
    assert Weather.RAIN.value == "rain"
    assert f"{Weather.RAIN}" == "rain"
    assert Weather.RAIN.meaning == "Take an umbrella."
    assert Weather("sun") is Weather.SUN


def test_a_member_goes_over_the_wire_as_its_word() -> None:
    adapter = TypeAdapter(Weather)
    assert adapter.dump_json(Weather.SUN) == b'"sun"'
    assert adapter.validate_json(b'"sun"', strict=True) is Weather.SUN
    assert adapter.json_schema()["enum"] == ["rain", "sun"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Weather.SUN), type=Weather) is Weather.SUN
    assert pickle.loads(pickle.dumps(Weather.SUN)) is Weather.SUN


def test_a_member_that_explains_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="say what `fog` means"):

        class _Murk(ClosedEnum):
            FOG = "fog"
