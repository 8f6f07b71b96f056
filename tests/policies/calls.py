"""Recorded calls of the pure functions that actuators and the precheck call: a plan of a quota, of a publish limit.

This records the calls of some tests anew, each with what it returns::

    python -m tests.policies.calls
"""

import importlib
import inspect
import json
import lzma
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import pytest
from pydantic import BaseModel

DATA = Path(__file__).parents[1] / "data" / "replay" / "calls.jsonl.xz"
RECORDED = {
    "policies.throttle.quotas:note_put_back": "tests/policies/throttle/test_quotas.py",
    "policies.throttle.settings:parse_entity": "tests/policies/throttle/test_quotas.py",
    "policies.free_space.levels:plan_level": "tests/policies/free_space/test_levels.py",
    "policies.throttle.quotas:RatesInForce.step": "tests/policies/throttle/test_quotas.py",
    "policies.throttle.quotas:full_rate_seconds": "tests/policies/throttle/test_quotas.py",
    "policies.bookie_disks.readings:plan_publish": "tests/policies/bookie_disks/test_publish_plan.py",
    "policies.switching.precheck:precheck": "tests/policies/switching/test_precheck.py",
}
_MOST = 150
"""Calls of one function; a property test makes thousands."""


class Call(NamedTuple):
    """A call and what it returned, as plain values."""

    function: str
    arguments: dict[str, Any]
    result: Any


def read_calls() -> list[Call]:
    """The recorded calls."""
    return [Call(*json.loads(line)) for line in lzma.decompress(DATA.read_bytes()).splitlines()]


def repeat(call: Call) -> object:
    """Call the function with the recorded arguments."""
    owner, function = _find(call.function)
    types = {"self": owner, **get_type_hints(function)}
    arguments = {
        name: msgspec.convert(value, types[name], strict=False, dec_hook=lambda kind, plain: kind(**plain))
        for name, value in call.arguments.items()
    }
    return plain(function(**arguments))


def _dump(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True)


def plain(value: object) -> Any:
    """A value as it stands in JSON; sets are sorted."""
    return json.loads(json.dumps(msgspec.to_builtins(value, str_keys=True, order="sorted", enc_hook=_dump)))


def _find(name: str) -> tuple[Any, Callable[..., object]]:
    """Return the module or class of a function, and the function."""
    module, _, path = name.partition(":")
    *classes, function = path.split(".")
    owner = reduce(getattr, classes, importlib.import_module(module))
    return owner, getattr(owner, function)


class _Recorder:
    """A pytest plugin that records the calls of one function."""

    def __init__(self, name: str) -> None:
        self.calls: list[Call] = []
        self._name = name
        self._owner, self._function = _find(name)

    def pytest_collection_finish(self) -> None:
        """Put the recording function in the place of the other, wherever it was imported."""
        for owner in (self._owner, *sys.modules.values()):
            for attribute, value in list(vars(owner).items()):
                if value is self._function:
                    setattr(owner, attribute, lambda *given, **named: self._record(*given, **named))

    def _record(self, *given: object, **named: object) -> object:
        result = self._function(*given, **named)
        names = inspect.signature(self._function).parameters
        arguments = plain(dict(zip(names, given, strict=False)) | named)
        call = Call(self._name, arguments, plain(result))
        if len(self.calls) < _MOST and call not in self.calls:
            self.calls.append(call)
        return result


def _record_all() -> Iterator[Call]:
    for name, tests in RECORDED.items():
        recorder = _Recorder(name)
        pytest.main(["-q", "-n0", tests], plugins=[recorder])
        yield from recorder.calls


if __name__ == "__main__":
    lines = (json.dumps(call, separators=(",", ":")) for call in _record_all())
    DATA.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
